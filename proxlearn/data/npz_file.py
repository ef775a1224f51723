"""numpy's .npz files: an array ``X`` (rows x features), and the target's array; nothing pickled is ever opened.

A file may claim any shape: an array is read only if its bytes are there and fit into memory.
"""

from __future__ import annotations

import io
import math
import os
import struct
import zipfile
import zlib
from lzma import LZMAError
from pathlib import Path

import numpy as np

from proxlearn.errors import InputError, did_you_mean

HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
READ_ERRORS = (
    *(ValueError, OSError, EOFError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError),
    *(SyntaxError, struct.error, zlib.error, LZMAError, zipfile.BadZipFile),
    # zipfile's own words for an encrypted file, and for a compression that it does not know.
    *(RuntimeError, NotImplementedError),
)


def read_table(path: Path, content: bytes, target: str | None) -> tuple[np.ndarray, np.ndarray, list[str], str]:
    """Features, the target's values, the features' names (array ``columns``, if there is one) and the target's."""
    target = target or "y"
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            arrays = {name: _read_array(archive, name) for name in ("X", "columns", target) if name in names}
    except READ_ERRORS as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"{path} cannot be read: {why:.100}", "save plain arrays: numpy.savez(path, X=X, y=y)"
        ) from error
    for name in ("X", target):
        if name not in arrays:
            raise InputError(f"{path} has no array `{name}`", did_you_mean(name, names))
    X, values = arrays["X"], arrays[target]
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise InputError(
            f"{path}: X must be a matrix of numbers, got {X.dtype} {X.shape}", "save it as rows x features"
        )
    if values.shape != (len(X),) or values.dtype.kind not in "biufU":
        raise InputError(
            f"{path}: `{target}` must hold {len(X)} numbers or texts, got {values.dtype} {values.shape}",
            "give one value a row of X",
        )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row = int((~np.isfinite(values)).argmax()) + 1
        raise InputError(f"{path}: `{target}` lacks a finite value in row {row}", "correct it, or delete the row")
    columns = [str(name) for name in np.atleast_1d(arrays.get("columns", [f"x{i}" for i in range(X.shape[1])]))]
    if len(columns) != X.shape[1]:
        raise InputError(f"{path}: {len(columns)} `columns` for {X.shape[1]} features", "name each column of X")
    return np.ascontiguousarray(X, dtype=np.float64), values, columns, target


def _read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """One array, whose header must describe the bytes that follow it."""
    about = archive.getinfo(f"{name}.npy")
    with archive.open(about) as file:
        version = np.lib.format.read_magic(file)
        if version not in HEADER_READERS:
            raise ValueError(f"array `{name}` has a format of version {version}")
        shape, by_column, dtype = HEADER_READERS[version](file)
        if dtype.hasobject:
            raise ValueError(f"array `{name}` holds Python objects")
        size = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or file.tell() + size != about.file_size:
            raise ValueError(f"array `{name}` claims the shape {shape}, for which its bytes are too few or too many")
        # As float64 it is here once more.
        if 2 * size > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
            raise ValueError(f"array `{name}` has {size} bytes, more than fit into this machine's memory")
        content = file.read(size)
        # The checksum is compared at the end of the file, which is looked for only here.
        if len(content) != size or file.read(1):
            raise ValueError(f"array `{name}` is cut off")
    found: np.ndarray = np.frombuffer(content, dtype).reshape(shape, order="F" if by_column else "C")
    return found
