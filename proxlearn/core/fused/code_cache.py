"""Compiled passes on disk: whole files of this user's own, valid for one state of the sources, or none at all.

Numba's own cache is not used. It falls back to the package's folder, where code of older sources survives; it knows the
file of a function and not those of the functions that it calls; and it fails for good on a file that is damaged.

A file is a pickle, which can run code when it is read. So only a folder that belongs to this user and that nobody else
can write is read, and in it only this user's own regular files, whose checksum holds. Damage is found by the checksum
before anything is unpickled; the checksum is no protection against the user's own account.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import inspect
import os
import pickle
import platform
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llvmlite
import numba
import platformdirs
from numba.core import event
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps

from proxlearn.core.compile_time import COMPILE_TIME
from proxlearn.portability import NO_WAIT, PLAIN, user_id

MAGIC = b"proxlearn compiled pass 1\n"
DIGEST_BYTES = 32


def compile_pass(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit`` with these options, and with the cache of this module."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**options)(function)
        # With NUMBA_DISABLE_JIT it is the Python function itself.
        if isinstance(dispatcher, Dispatcher):
            dispatcher._cache = PassCache(function)  # type: ignore[attr-defined]
            PASSES.add(dispatcher)
        return dispatcher

    return decorate


class PassCache(_Cache):
    """The compiled signatures of one function, a file for each."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._enabled = True

    @property
    def cache_path(self) -> str | None:
        folder = next(iter(folders()), None)
        return None if folder is None else str(folder)

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def flush(self) -> None:
        """Remove what is stored of this function."""
        for folder in folders():
            for path in folder.glob(f"{self._name}-*"):
                _discard(path)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The stored code for a signature, or None: then Numba compiles it."""
        if not self._enabled:
            return None
        target_context.refresh()
        start = time.monotonic()
        name = self._file_name(sig, target_context.codegen())
        for folder in folders():
            content = _read_private(folder / name)
            if content is None:
                continue
            # A file that passes its checksum can still be unusable, such as one of another Numba of the same version.
            with contextlib.suppress(Exception):
                stored_sig, state = pickle.loads(_checked(name, content))
                if stored_sig == sig:
                    code = CompileResult._rebuild(target_context, *state)  # type: ignore[no-untyped-call]
                    COMPILE_TIME.load_seconds += time.monotonic() - start
                    return code
            _discard(folder / name)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store it in the first folder that takes it; where none does, it lives in this process alone."""
        if not self._enabled or data.library.has_dynamic_globals or any(not each.can_cache for each in data.lifted):
            return
        name = self._file_name(sig, data.codegen)
        payload = dumps((sig, data._reduce()))  # type: ignore[no-untyped-call]
        content = MAGIC + _digest(name, payload) + payload
        COMPILE_TIME.cache_error = OSError(errno.ENOENT, "there is no folder for it")
        for folder in folders():
            try:
                _write_private(folder / name, content)
            except OSError as error:
                COMPILE_TIME.cache_error = error
            else:
                COMPILE_TIME.cache_error = None
                return

    @functools.cached_property
    def _name(self) -> str:
        return f"{self._function.__module__.rpartition('.')[2]}.{self._function.__qualname__}"

    def _file_name(self, sig: Any, codegen: Any) -> str:
        """Named after all that the code depends on besides the sources, which name the folder."""
        own = Path(inspect.getfile(self._function)).read_bytes()
        parts = (hashlib.sha256(own).hexdigest(), self._function.__code__.co_firstlineno, repr(sig))
        key = hashlib.sha256(repr((*parts, codegen.magic_tuple())).encode()).hexdigest()[:32]
        return f"{self._name}-{key}"


@functools.cache
def sources_key(folder: Path = Path(__file__).parent) -> str:
    """Of every pass, since each may contain the code of others, and of what compiles them."""
    sources = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    versions = f"{numba.__version__} {llvmlite.__version__} {platform.python_version()}"
    return hashlib.sha256(sources + versions.encode()).hexdigest()[:12]


def folders() -> Iterator[Path]:
    """The folders that are this user's own, best first: the user's cache, then one below the temporary folder."""
    for path in _candidates():
        with contextlib.suppress(OSError):
            _make_private(path)
            yield path


def _candidates() -> Iterator[Path]:
    cache = Path(platformdirs.user_cache_dir("proxlearn"))
    # Without a home folder it would be relative to wherever the command was given.
    if cache.is_absolute():
        yield cache / f"compiled-{sources_key()}"
    with contextlib.suppress(OSError):
        temporary = Path(tempfile.gettempdir())
        # The last resort of tempfile is the working folder, where files of ours would be in the user's way.
        if temporary != Path.cwd():
            yield temporary / f"proxlearn-{user_id()}-compiled-{sources_key()}"


def _make_private(path: Path) -> None:
    """Make ``path`` a folder that nobody else can write; OSError where that cannot be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    # Of the folder itself, not of what a link of somebody else's leads to.
    about = path.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != user_id():
        raise PermissionError(errno.EPERM, "it is not a folder of this user's", str(path))
    if about.st_mode & 0o077:
        path.chmod(0o700)


def _read_private(path: Path) -> bytes | None:
    """The content of a regular file of this user's own."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | PLAIN | NO_WAIT)
        try:
            about = os.fstat(handle)
            if stat.S_ISREG(about.st_mode) and about.st_uid == user_id():
                with os.fdopen(handle, "rb", closefd=False) as file:
                    return file.read()
        finally:
            os.close(handle)
    return None


def _write_private(path: Path, content: bytes) -> None:
    """Under a temporary name, then renamed. Not synced: a file that a crash damages fails its checksum."""
    temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        temporary.replace(path)
    except OSError:
        _discard(temporary)
        raise


def _discard(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _digest(name: str, payload: bytes) -> bytes:
    # With the name: two files whose names were swapped are damaged too.
    return hashlib.sha256(name.encode() + b"\0" + payload).digest()


def _checked(name: str, content: bytes) -> bytes:
    """The payload of a file; ValueError if it is damaged."""
    start = len(MAGIC) + DIGEST_BYTES
    payload = content[start:]
    if not content.startswith(MAGIC) or content[len(MAGIC) : start] != _digest(name, payload):
        raise ValueError("its checksum does not hold")
    return payload


class _Timer(event.Listener):
    """Numba's own reports of compilations, those of other packages' functions left out."""

    def on_start(self, event: Any) -> None:
        if event.data["dispatcher"] in PASSES:
            COMPILE_TIME.start()

    def on_end(self, event: Any) -> None:
        if event.data["dispatcher"] in PASSES:
            COMPILE_TIME.end()


PASSES: set[Any] = set()
event.register("numba:compile", _Timer())  # type: ignore[no-untyped-call]
