"""Read .npz files with an array ``X`` (rows x features) and an array of targets, without unpickling.

The header of an array can declare any shape, so an array is read only if the file contains all of its bytes and they
fit in memory.
"""

from __future__ import annotations

import io
import math
import struct
import zipfile
import zlib
from lzma import LZMAError
from pathlib import Path

import numpy as np

from proxlearn.errors import InputError, did_you_mean
from proxlearn.portability import physical_memory

HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
READ_ERRORS = (
    *(ValueError, OSError, EOFError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError),
    *(SyntaxError, struct.error, zlib.error, LZMAError, zipfile.BadZipFile),
    # Raised by zipfile for an encrypted file and for an unknown compression.
    *(RuntimeError, NotImplementedError),
)


def read_table(path: Path, content: bytes, target: str | None) -> tuple[np.ndarray, np.ndarray, list[str], str]:
    """Return the features, the target values, the feature names and the target name.

    The feature names are read from the array ``columns``, if there is one.
    """
    target = target or "y"
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            arrays = {name: _read_array(archive, name) for name in ("X", "columns", target) if name in names}
    except READ_ERRORS as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"{path} cannot be read: {reason:.100}", "save plain arrays: numpy.savez(path, X=X, y=y)"
        ) from error
    for name in ("X", target):
        if name not in arrays:
            raise InputError(f"{path} has no array `{name}`", did_you_mean(name, names))
    X, values = arrays["X"], arrays[target]
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise InputError(
            f"{path}: X must be a matrix of numbers, got {X.dtype} {X.shape}",
            "save it as an array of shape (rows, features)",
        )
    if values.shape != (len(X),) or values.dtype.kind not in "biufU":
        raise InputError(
            f"{path}: `{target}` must hold {len(X)} numbers or strings, got {values.dtype} {values.shape}",
            "give one value per row of X",
        )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row = int((~np.isfinite(values)).argmax()) + 1
        raise InputError(f"{path}: `{target}` is not finite in row {row}", "correct the value, or delete its row")
    columns = [str(name) for name in np.atleast_1d(arrays.get("columns", [f"x{i}" for i in range(X.shape[1])]))]
    if len(columns) != X.shape[1]:
        raise InputError(
            f"{path}: the length of `columns` is {len(columns)}, but X has the shape {X.shape}",
            "give one name per column of X",
        )
    return np.ascontiguousarray(X, dtype=np.float64), values, columns, target


def _read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """Read one array; raise ValueError if its header does not match the bytes that follow it."""
    entry = archive.getinfo(f"{name}.npy")
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        if version not in HEADER_READERS:
            raise ValueError(f"array `{name}` has the unsupported format version {version}")
        shape, is_fortran, dtype = HEADER_READERS[version](file)
        if dtype.hasobject:
            raise ValueError(f"array `{name}` holds Python objects")
        size = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or file.tell() + size != entry.file_size:
            raise ValueError(f"array `{name}` declares the shape {shape}, which does not match its number of bytes")
        # The conversion to float64 makes a second copy.
        if 2 * size > physical_memory():
            raise ValueError(f"array `{name}` has {size} bytes, which exceeds the memory of this machine")
        content = file.read(size)
        # Reading beyond the last byte makes zipfile compare the checksum.
        if len(content) != size or file.read(1):
            raise ValueError(f"array `{name}` is truncated")
    array: np.ndarray = np.frombuffer(content, dtype).reshape(shape, order="F" if is_fortran else "C")
    return array
