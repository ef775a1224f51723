"""Reading files that anyone may have written: run folders are copied, edited, damaged and forged.

Every reader of a run, sweep or comparison folder opens its files here. Only regular files are opened, no link is
followed, no pipe is waited for, and no more bytes are read than the kind of file can have. What is wrong is an
`UnreadableFile`, which the command line shows as one line.
"""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from proxlearn.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

MAX_JSON_BYTES = 64 * 2**20
MAX_YAML_BYTES = 2**18
"""A config has some kilobytes, and YAML takes seconds for each megabyte."""
MAX_TABLE_BYTES = 2**31
MAX_DEPTH = 32
"""Levels of lists and groups in JSON or YAML: ours have five."""
PARSE_ERRORS = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RecursionError,
    yaml.YAMLError,
)
"""What parsers raise on damaged input; PyYAML raises IndexError for an empty `!!int`, AttributeError for a bad date."""
MACHINE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO)
"""Errors of the machine, which say nothing about the file."""
REMEDY = "copy the run folder again, or repeat its `train` command"


class UnreadableFile(InputError):
    """A file is damaged, forged, too large, or no regular file."""

    def __init__(self, path: Path, why: str, remedy: str = REMEDY) -> None:
        super().__init__(f"{path} cannot be read: {why}", remedy)
        self.path, self.why = path, why


class AbsentFile(UnreadableFile):
    """There is no such file."""


class PlainLoader(yaml.SafeLoader):
    """YAML without aliases: a few lines of them can stand for more values than fit in memory."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias")
        return super().compose_node(parent, index)


def open_regular(path: Path) -> int:
    """A file descriptor for reading; anything but a regular file is an UnreadableFile."""
    try:
        # Without O_NONBLOCK a pipe would be waited for until it is written to.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise AbsentFile(path, "there is no such file") from error
    except ValueError as error:
        raise UnreadableFile(path, "its name is not possible") from error
    except OSError as error:
        # macOS and the BSDs have other numbers for a link than Linux.
        link = error.errno in (errno.ELOOP, errno.EMLINK) or path.is_symlink()
        if not link and error.errno in MACHINE_ERRORS:
            raise
        raise UnreadableFile(
            path, "it is a link, and links are not followed" if link else os_error_text(error)
        ) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnreadableFile(path, "it is not a regular file")
    return handle


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most ``most`` bytes."""
    with os.fdopen(open_regular(path), "rb") as file:
        try:
            size = os.fstat(file.fileno()).st_size
            content = file.read(most + 1) if size <= most else b""
        except OSError as error:
            if error.errno in MACHINE_ERRORS:
                raise
            raise UnreadableFile(path, os_error_text(error)) from error
    if size > most or len(content) > most:
        raise UnreadableFile(path, f"it has {size} bytes, and {most} at most are expected")
    return content


def read_text(path: Path, most: int) -> str:
    try:
        return read_bytes(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableFile(path, f"it is not UTF-8 text (byte 0x{error.object[error.start]:02x})") from error


def read_json(path: Path, most: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """A JSON object of plain values."""
    text = read_text(path, most)
    try:
        return _require_plain_mapping(json.loads(text))
    except PARSE_ERRORS as error:
        raise UnreadableFile(path, parse_error_text(error, "JSON")) from error


def read_yaml(path: Path, most: int = MAX_YAML_BYTES) -> dict[str, Any]:
    """A YAML mapping of plain values, without aliases."""
    text = read_text(path, most)
    try:
        return _require_plain_mapping(yaml.load(text, Loader=PlainLoader))
    except PARSE_ERRORS as error:
        raise UnreadableFile(path, parse_error_text(error, "YAML")) from error


def read_table(
    path: Path, most: int = MAX_TABLE_BYTES, convert: Callable[[str], str] = lambda content: content
) -> pd.DataFrame:
    """A CSV file with a header line; a last line without its end is still being written, and is left out.

    ``convert`` turns a text of an earlier version into one of this version.
    """
    import pandas as pd

    content = read_bytes(path, most)
    whole = content[: content.rfind(b"\n") + 1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            warnings.simplefilter("ignore", pd.errors.DtypeWarning)
            table = pd.read_csv(io.StringIO(convert(whole.decode("utf-8"))), index_col=False)
    except (pd.errors.ParserWarning, *PARSE_ERRORS) as error:
        raise UnreadableFile(path, parse_error_text(error, "table")) from error
    return table


def parse_error_text(error: BaseException, kind: str) -> str:
    """A parser's account in a few words."""
    said = (str(error).strip() or type(error).__name__).splitlines()[-1].strip()
    return f"it is no {kind} ({said:.80})"


def os_error_text(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _require_plain_mapping(value: Any) -> dict[str, Any]:
    """``value``, if it is a group of plain values that every later reader can walk through and print."""
    if not isinstance(value, dict):
        raise TypeError("not a group of values")
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below += [*each, *each.values()]
                if not all(isinstance(key, str) for key in each):
                    raise TypeError("a key that is no text")
            elif isinstance(each, list):
                below += each
            elif isinstance(each, str):
                # Half of a surrogate pair can be written in JSON, and nowhere else.
                each.encode()
            elif each is not None and not isinstance(each, (bool, int, float)):
                raise TypeError(f"a value of type {type(each).__name__}")
        if not below:
            return value
        level = below
    raise RecursionError("its values are nested too deeply")
