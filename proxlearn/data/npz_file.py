"""numpy's .npz files: an array ``X`` (rows x features), and the target's array; nothing pickled is ever opened."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np

from proxlearn.errors import InputError, did_you_mean


def read(path: Path, content: bytes, target: str | None) -> tuple[np.ndarray, np.ndarray, list[str], str]:
    """Features, the target's values, the features' names (array ``columns``, if there is one) and the target's."""
    target = target or "y"
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files if name in ("X", "columns", target)}
            names = list(archive.files)
    except (ValueError, OSError, zipfile.BadZipFile, EOFError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} cannot be read: {str(error).splitlines()[0]}", "save plain arrays: numpy.savez(path, X=X, y=y)"
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
    columns = [str(name) for name in arrays.get("columns", [f"x{i}" for i in range(X.shape[1])])]
    if len(columns) != X.shape[1]:
        raise InputError(f"{path}: {len(columns)} `columns` for {X.shape[1]} features", "name each column of X")
    return np.ascontiguousarray(X, dtype=np.float64), values, columns, target
