"""Files that a command writes under a name given by the user.

A file gets its name only when it is complete, and it never replaces an input of the command or a file of a run. A
device or a pipe is written directly, because it cannot be replaced by another file.
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
from proxlearn.run.folder_recognition import is_run
from proxlearn.run.lock import NAME as OWNER_FILE
from proxlearn.run.run_folder import RUN_FILES
from proxlearn.run.sweep_folder import SweepFolder

STANDARD = {"stdin": 0, "stdout": 1, "stderr": 2}
DESCRIPTOR = re.compile(r"/dev/(?:(std(?:in|out|err))|fd/(\d{1,6}))|/proc/(?:self|thread-self)/fd/(\d{1,6})")
OWN_TASK = re.compile(r"/proc/(\d+)(?:/task/\d+)?/fd/(\d{1,6})")
MOST_LINKS = 40
DISK_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Error numbers of a full or failing disk, which lead to exit code 1, as for a run folder."""
REMEDY = "choose another -o FILE"
NAMES = RUN_FILES | {"checkpoints", "jobs", "sweep.yaml", "summary.csv", "summary.md", ".lock", OWNER_FILE}
"""Names of the files and folders that runs and sweeps create."""


def check_output(output: Path, inputs: Iterable[Path | int] = ()) -> None:
    """Raise InputError if an output file cannot or must not be written; called before anything is computed.

    ``inputs`` are the files that the command reads: paths, or descriptors such as 0 for standard input.
    """
    status = _status(output)
    target = Path(os.path.realpath(output))
    is_file = status is None or stat.S_ISREG(status.st_mode)
    if _descriptor(output) is None and is_file:
        if not target.parent.is_dir() or not os.access(target.parent, os.W_OK | os.X_OK):
            problem = f"cannot write to {output}: the folder {target.parent} does not exist or is not writable"
            raise InputError(problem, REMEDY)
        if _is_run_file(target):
            raise InputError(f"-o {output} would be taken for a file of a run or a sweep", REMEDY)
    if status is not None and stat.S_ISDIR(status.st_mode):
        raise InputError(f"cannot write to {output}: it is a folder", REMEDY)
    for source in inputs:
        if status is not None and is_file and same_file(status, source):
            raise InputError(f"-o {output} is also the input file", REMEDY)


def check_replaced(output: Path, is_ours: Callable[[bytes], bool], command: str) -> None:
    """Raise InputError if the file at the default output path was not written by ``proxlearn <command>``.

    ``is_ours`` returns whether the content of a file was written by the command.
    """
    if not output.is_file() or is_written_through(output):
        return
    try:
        content = output.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {output}, which would be replaced: {error.strerror}", REMEDY) from error
    if not is_ours(content):
        raise InputError(f"{output} was not written by `proxlearn {command}`", "move this file, or give -o FILE")


def same_file(status: os.stat_result, source: Path | int) -> bool:
    """Return whether ``source`` is a regular file and is the file that ``status`` describes."""
    try:
        other = os.stat(source)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(other.st_mode) and os.path.samestat(status, other)


@contextlib.contextmanager
def open_output(output: Path) -> Iterator[BinaryIO]:
    """Open the output for writing; a regular file gets its final name only once it is complete."""
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
        raise kind(f"cannot write to {output}: {error.strerror or error}", REMEDY) from error


def write_output(output: Path, content: bytes) -> None:
    """Write ``content`` to the output."""
    with open_output(output) as file:
        file.write(content)


def is_written_through(output: Path) -> bool:
    """Return whether the output is written directly because it is a device, a pipe or an open descriptor."""
    status = _status(output)
    return _descriptor(output) is not None or (status is not None and not stat.S_ISREG(status.st_mode))


@contextlib.contextmanager
def _replacing(target: Path, old: os.stat_result | None) -> Iterator[BinaryIO]:
    temporary = temporary_name(target)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | PLAIN, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            if old is not None and hasattr(os, "fchown"):
                # The new file keeps the owner and the permissions of the old one. Only root can set another owner.
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
    """Return the status of the file ``output``, with links followed, or None if it does not exist."""
    number = _descriptor(output)
    try:
        return os.stat(output if number is None else number)
    except FileNotFoundError:
        if not output.is_symlink():
            return None
        raise InputError(f"cannot write to {output}: it is a broken link", REMEDY) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the name is invalid"
        raise InputError(f"cannot write to {output}: {reason}", REMEDY) from error


def _descriptor(output: Path) -> int | None:
    """Return the open descriptor to which a name such as /dev/stdout refers, or None for any other name.

    Opening such a name again would write from the beginning of the file. Links are followed one by one until one of
    them names an open descriptor. A regular file to which standard output or error is redirected (`>> log.csv`) counts
    as that descriptor under any name, because replacing the file would lose its content.
    """
    if "\0" in str(output):
        return None
    path = os.path.abspath(output)
    for _ in range(MOST_LINKS):
        # abspath keeps a leading //, which means the same as /. Links in the folder are resolved, but not those of
        # /proc and /dev/fd, which would resolve to the name of the process or of the file behind the descriptor.
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
    return _standard_stream(output)


def _named_descriptor(path: str) -> int | None:
    match = DESCRIPTOR.fullmatch(path)
    if match is not None:
        return STANDARD[match[1]] if match[1] else int(match[2] or match[3])
    task = OWN_TASK.fullmatch(path)
    return int(task[2]) if task is not None and int(task[1]) == os.getpid() else None


def _standard_stream(output: Path) -> int | None:
    """Return the descriptor of standard output or error if it is redirected to this regular file, else None."""
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if same_file(os.stat(output), number):
                return number
    return None


def _is_run_file(path: Path) -> bool:
    """Return whether a file at this path would be, or would be taken for, a file of a run or a sweep."""
    folder = path.parent
    if folder.name in ("checkpoints", "jobs", EVENTS_FOLDER) and _is_run_or_sweep(folder.parent):
        return True
    return path.name in NAMES and _is_run_or_sweep(folder)


def _is_run_or_sweep(folder: Path) -> bool:
    return is_run(folder) or SweepFolder(folder).plan.is_file()
