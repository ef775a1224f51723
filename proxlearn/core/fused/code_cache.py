"""A cache of compiled passes on disk, private to the user and valid for one version of the source files.

Numba's own cache is not used. It falls back to the package's folder, where code compiled from older sources remains;
its key covers the file of a function but not the files of the functions that it calls; and a damaged file makes it fail
at every start.

A file is a pickle, which can run code when it is read. Therefore, the cache reads only from a folder that belongs to
this user and that no other user can write to, and only regular files of this user with a valid checksum. The checksum
detects damage before anything is unpickled; it is no protection against other programs of the same user.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import importlib
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
from filelock import FileLock, Timeout
from numba.core import event
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps

from proxlearn.core.compile_time import COMPILE_TIME
from proxlearn.portability import NO_WAIT, PLAIN, user_id

MAGIC = b"proxlearn compiled pass 1\n"
DIGEST_BYTES = 32
NOT_FROM_C: dict[str, Any] = {"no_cfunc_wrapper": True}
NOT_FROM_PYTHON: dict[str, Any] = {"no_cpython_wrapper": True}
"""Options without which Numba also compiles an entry point for callers in C and in Python."""
EXPLICIT: dict[str, Any] = {"fastmath": False, "error_model": "python", "forceinline": False}
"""Defaults of the options that a function would otherwise take from its first caller.

The code and the rounding of a function that several passes call would then depend on which pass is compiled first.
"""


def compile_pass(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator ``numba.njit`` with the given options, using the cache of this module."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(nogil=_threads_may_share_passes(), **NOT_FROM_C, **EXPLICIT | options)(function)
        # With NUMBA_DISABLE_JIT, the dispatcher is the Python function itself.
        if isinstance(dispatcher, Dispatcher):
            dispatcher._cache = PassCache(function)  # type: ignore[attr-defined]
            PASSES.add(dispatcher)
        return dispatcher

    return decorate


@functools.cache
def _threads_may_share_passes() -> bool:
    """Return whether several Python threads may call passes at the same time.

    If so, passes release the GIL, because a pass can take minutes, during which the thread that handles signals and the
    threads of loggers must run. If neither OpenMP nor TBB is available, Numba uses its workqueue layer, which does not
    support concurrent calls.
    """
    for pool in ("omppool", "tbbpool"):
        with contextlib.suppress(ImportError):
            importlib.import_module(f"numba.np.ufunc.{pool}")
            return True
    return False


def compile_helper(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator for functions that are called only by compiled passes; Python cannot call them.

    Such a function compiles faster, because Numba compiles no entry point for Python. The function is not stored in the
    cache, because the passes that call it contain its code.
    """
    decorate: Callable[[Callable[..., Any]], Any] = numba.njit(**NOT_FROM_C, **NOT_FROM_PYTHON, **EXPLICIT | options)
    return decorate


class PassCache(_Cache):
    """The cache of one function, with one file per compiled signature."""

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
        """Remove the stored code of this function from the cache."""
        for folder in folders():
            for path in folder.glob(f"{self._name}-*"):
                _discard(path)

    def is_stored(self, sig: Any, target_context: Any) -> bool:
        """Return whether a file with the code for a signature exists."""
        name = self._file_name(sig, target_context.codegen())
        return any((folder / name).is_file() for folder in folders())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code for a signature, or None if no code is stored; Numba then compiles the function.

        If another process is compiling the same pass, this function waits for it.
        """
        if not self._enabled:
            return None
        target_context.refresh()
        name = self._file_name(sig, target_context.codegen())
        code = self._load(name, sig, target_context)
        if code is None and _lock(name):
            # Another process may have stored the code in the meantime.
            code = self._load(name, sig, target_context)
            if code is not None:
                _unlock(name)
        return code

    def _load(self, name: str, sig: Any, target_context: Any) -> Any:
        start = time.monotonic()
        for folder in folders():
            content = _read_private(folder / name)
            if content is None:
                continue
            # A file with a valid checksum can be unusable, for example if another build of the same Numba version wrote
            # it.
            with contextlib.suppress(Exception):
                stored_sig, state = pickle.loads(_checked(name, content))
                if stored_sig == sig:
                    code = CompileResult._rebuild(target_context, *state)  # type: ignore[no-untyped-call]
                    COMPILE_TIME.load_seconds += time.monotonic() - start
                    return code
            _discard(folder / name)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store compiled code in the first writable folder; if no folder is writable, only this process can use it."""
        if not self._enabled or data.library.has_dynamic_globals or any(not loop.can_cache for loop in data.lifted):
            return
        name = self._file_name(sig, data.codegen)
        try:
            self._save(name, sig, data)
        finally:
            _unlock(name)

    def _save(self, name: str, sig: Any, data: Any) -> None:
        payload = dumps((sig, data._reduce()))  # type: ignore[no-untyped-call]
        content = MAGIC + _digest(name, payload) + payload
        COMPILE_TIME.cache_error = OSError(errno.ENOENT, "no cache folder is available")
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
        """Return a file name that depends on everything that affects the code and is not covered by ``sources_key``."""
        source = Path(inspect.getfile(self._function)).read_bytes()
        parts = (hashlib.sha256(source).hexdigest(), self._function.__code__.co_firstlineno, repr(sig))
        key = hashlib.sha256(repr((*parts, codegen.magic_tuple())).encode()).hexdigest()[:32]
        return f"{self._name}-{key}"


@functools.cache
def sources_key(core: Path = Path(__file__).parents[1]) -> str:
    """Return a digest of the compiler versions and of all sources whose code or constants a pass may contain.

    These are the files in core/fused, because a pass may inline functions of other files, and core/noise.py, whose
    constants are compiled into the passes that draw random numbers.
    """
    paths = [*sorted((core / "fused").glob("*.py")), core / "noise.py"]
    sources = b"".join(path.read_bytes() for path in paths)
    versions = f"{numba.__version__} {llvmlite.__version__} {platform.python_version()}"
    return hashlib.sha256(sources + versions.encode()).hexdigest()[:12]


def folders() -> Iterator[Path]:
    """Yield the private folders of this user: first one in the user's cache, then one in the temporary directory."""
    for path in _candidates():
        with contextlib.suppress(OSError):
            _make_private(path)
            yield path


def _candidates() -> Iterator[Path]:
    cache = Path(platformdirs.user_cache_dir("proxlearn"))
    # Without a home folder the path would be relative to the working directory.
    if cache.is_absolute():
        yield cache / f"compiled-{sources_key()}"
    with contextlib.suppress(OSError):
        temporary = Path(tempfile.gettempdir())
        # The last fallback of tempfile is the working directory, which must not hold the cache.
        if temporary != Path.cwd():
            yield temporary / f"proxlearn-{user_id()}-compiled-{sources_key()}"


PATIENCE = 60.0
"""Seconds after which a process compiles a pass although another process has not finished compiling it."""
_locks: dict[str, FileLock] = {}
"""The locks of the passes that this process is compiling."""


def _lock(name: str) -> bool:
    """Lock a pass that this process will compile; return whether it was locked.

    If another process is compiling the pass, wait for it, but not longer than PATIENCE. The lock only saves work: jobs
    of a sweep that start together need the same passes. While a process waits, it has locked only passes that call this
    one, so two processes cannot wait for each other.
    """
    if not COMPILE_TIME.is_compiling:
        # The compilation of these passes has failed.
        for stale in list(_locks):
            _unlock(stale)
    folder = next(iter(folders()), None)
    if folder is None or name in _locks:
        return False
    lock = FileLock(folder / f".{name}.lock", thread_local=False)
    with contextlib.suppress(OSError):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            COMPILE_TIME.start()
            try:
                lock.acquire(timeout=PATIENCE)
            finally:
                COMPILE_TIME.end()
        _locks[name] = lock
        return True
    return False


def _unlock(name: str) -> None:
    lock = _locks.pop(name, None)
    if lock is not None:
        # The file is removed while it is locked; a process that waits for it then compiles or finds the code.
        _discard(Path(lock.lock_file))
        lock.release()


def _make_private(path: Path) -> None:
    """Make ``path`` a folder that no other user can write to; raise OSError if that is not possible."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    # This is the status of the path itself, not of the target of a link that another user may have placed there.
    stats = path.lstat()
    if not stat.S_ISDIR(stats.st_mode) or stats.st_uid != user_id():
        raise PermissionError(errno.EPERM, "the cache folder does not belong to this user", str(path))
    if stats.st_mode & 0o077:
        path.chmod(0o700)


def _read_private(path: Path) -> bytes | None:
    """Return the content of a file if it is a regular file of this user, and None otherwise."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | PLAIN | NO_WAIT)
        try:
            stats = os.fstat(handle)
            if stat.S_ISREG(stats.st_mode) and stats.st_uid == user_id():
                with os.fdopen(handle, "rb", closefd=False) as file:
                    return file.read()
        finally:
            os.close(handle)
    return None


def _write_private(path: Path, content: bytes) -> None:
    """Write the file under a temporary name, then rename it.

    No sync is needed, because a file that a crash has damaged fails its checksum.
    """
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
    # The digest includes the name, so that swapped files count as damaged.
    return hashlib.sha256(name.encode() + b"\0" + payload).digest()


def _checked(name: str, content: bytes) -> bytes:
    """Return the payload of a file; raise ValueError if the file is damaged."""
    start = len(MAGIC) + DIGEST_BYTES
    payload = content[start:]
    if not content.startswith(MAGIC) or content[len(MAGIC) : start] != _digest(name, payload):
        raise ValueError("the checksum of the file is wrong")
    return payload


class _Timer(event.Listener):
    """A listener that times Numba's compilation of passes and ignores the functions of other packages."""

    def on_start(self, event: Any) -> None:
        if event.data["dispatcher"] in PASSES:
            COMPILE_TIME.start()

    def on_end(self, event: Any) -> None:
        if event.data["dispatcher"] in PASSES:
            COMPILE_TIME.end()


PASSES: set[Any] = set()
event.register("numba:compile", _Timer())  # type: ignore[no-untyped-call]
