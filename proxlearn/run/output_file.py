"""Files that a command writes where the user says: whole or not at all, and never over an input or a run's own file.

A device or a pipe is written through: it has no name that could be replaced.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from proxlearn.errors import InputError, RunError
from proxlearn.files.atomic import temporary_name
from proxlearn.loggers.logger import EVENTS_FOLDER
from proxlearn.portability import PLAIN
from proxlearn.run.owner_file import NAME as OWNER_FILE
from proxlearn.run.ownership import is_run
from proxlearn.run.run_folder import RUN_FILES
from proxlearn.run.sweep_folder import SweepFolder

STANDARD = {"stdin": 0, "stdout": 1, "stderr": 2}
DESCRIPTOR = re.compile(r"/dev/(?:(std(?:in|out|err))|fd/(\d{1,6}))|/proc/(?:self|thread-self)/fd/(\d{1,6})")
OWN_TASK = re.compile(r"/proc/(\d+)(?:/task/\d+)?/fd/(\d{1,6})")
MOST_LINKS = 40
DISK_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""The command was right and the disk failed: exit code 1, as for a run folder."""
REMEDY = "choose another -o FILE"
NAMES = RUN_FILES | {"checkpoints", "jobs", "sweep.yaml", "summary.csv", "summary.md", ".lock", OWNER_FILE}


def check_output(output: Path, inputs: Iterable[Path | int] = ()) -> None:
    """Refuse, before anything is computed, a place that cannot or must not be written.

    ``inputs`` are what the command reads: paths, or descriptors such as that of the standard input.
    """
    status = _status(output)
    target = Path(os.path.realpath(output))
    is_file = status is None or stat.S_ISREG(status.st_mode)
    if _descriptor(output) is None and is_file:
        if not target.parent.is_dir() or not os.access(target.parent, os.W_OK | os.X_OK):
            raise InputError(f"cannot write to {output}: no folder {target.parent} to write to", REMEDY)
        if _is_run_file(target):
            raise InputError(f"-o {output} is a file of the run itself", REMEDY)
    if status is not None and stat.S_ISDIR(status.st_mode):
        raise InputError(f"cannot write to {output}: it is a folder", REMEDY)
    for source in inputs:
        if status is not None and is_file and same_file(status, source):
            raise InputError(f"-o {output} is the input", REMEDY)


def check_replaced(output: Path, is_ours: Callable[[bytes], bool], what: str) -> None:
    """Refuse a default output that has been put there by somebody else; ``is_ours`` looks at its content."""
    if not output.is_file() or is_written_through(output):
        return
    try:
        content = output.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {output}, which would be replaced: {error.strerror}", REMEDY) from error
    if not is_ours(content):
        raise InputError(f"{output} was not written by `proxlearn {what}`", "give -o FILE, or move it")


def same_file(status: os.stat_result, source: Path | int) -> bool:
    """Whether a regular file is the one that ``source`` names, under whatever name."""
    try:
        other = os.stat(source)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(other.st_mode) and os.path.samestat(status, other)


@contextlib.contextmanager
def open_output(output: Path) -> Iterator[BinaryIO]:
    """The output, for writing; a regular file appears under its name when it is whole."""
    number, status = _descriptor(output), _status(output)
    try:
        if number is not None:
            sys.stdout.flush()
            with os.fdopen(os.dup(number), "wb") as file:
                yield file
        elif status is not None and not stat.S_ISREG(status.st_mode):
            with open(output, "wb") as file:
                yield file
        else:
            with _replacing(Path(os.path.realpath(output)), status) as file:
                yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        kind = RunError if error.errno in DISK_FAILURES else InputError
        raise kind(f"cannot write {output}: {error.strerror or error}", REMEDY) from error


def write_output(output: Path, content: bytes) -> None:
    with open_output(output) as file:
        file.write(content)


def is_written_through(output: Path) -> bool:
    """Whether the output is a device, a pipe or an open descriptor: nothing can be put beside it."""
    status = _status(output)
    return _descriptor(output) is not None or (status is not None and not stat.S_ISREG(status.st_mode))


@contextlib.contextmanager
def _replacing(target: Path, old: os.stat_result | None) -> Iterator[BinaryIO]:
    temporary = temporary_name(target)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | PLAIN, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            if old is not None and hasattr(os, "fchown"):
                # The new file keeps the owner of the old one, and who may read it. Only root can set another owner.
                with contextlib.suppress(PermissionError):
                    os.fchown(handle, old.st_uid, old.st_gid)
                os.fchmod(handle, stat.S_IMODE(old.st_mode))
            yield file
            file.flush()
            os.fsync(handle)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _status(output: Path) -> os.stat_result | None:
    """What is there now, links followed; None where nothing is."""
    number = _descriptor(output)
    try:
        return os.stat(output if number is None else number)
    except FileNotFoundError:
        if not output.is_symlink():
            return None
        raise InputError(f"cannot write to {output}: it is a link to nothing", REMEDY) from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "the name is not possible"
        raise InputError(f"cannot write to {output}: {why}", REMEDY) from error


def _descriptor(output: Path) -> int | None:
    """/dev/stdout and its like, as the open descriptor that they are: opening the name would start at its beginning.

    A name is followed link by link, until one of them is an open descriptor. A regular file that the standard output
    or the standard error goes to (`>> log.csv`) is that descriptor under any name: to replace it loses its content.
    """
    if "\0" in str(output):
        return None
    path = os.path.abspath(output)
    for _ in range(MOST_LINKS):
        # A leading // is kept by abspath, and names the same as /. The folder's own links are followed, but not /proc's
        # and /dev/fd's, which would become the name of the process or of the file behind the descriptor.
        path = "/" + path.lstrip("/")
        number = _named_descriptor(path)
        if number is not None:
            return number
        folder, name = os.path.split(path)
        path = os.path.join(os.path.realpath(folder), name)
        number = _named_descriptor(path)
        if number is not None:
            return number
        try:
            path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
        except OSError:
            break
    return _same_as_standard(output)


def _named_descriptor(path: str) -> int | None:
    found = DESCRIPTOR.fullmatch(path)
    if found is not None:
        return STANDARD[found[1]] if found[1] else int(found[2] or found[3])
    task = OWN_TASK.fullmatch(path)
    return int(task[2]) if task is not None and int(task[1]) == os.getpid() else None


def _same_as_standard(output: Path) -> int | None:
    """The standard output or error, where it goes to this regular file."""
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if same_file(os.stat(output), number):
                return number
    return None


def _is_run_file(path: Path) -> bool:
    """Whether a run or a sweep has a file of this name here, or would take it for one of its own."""
    folder = path.parent
    if folder.name in ("checkpoints", "jobs", EVENTS_FOLDER) and _is_ours(folder.parent):
        return True
    return path.name in NAMES and _is_ours(folder)


def _is_ours(folder: Path) -> bool:
    return is_run(folder) or SweepFolder(folder).plan.is_file()
