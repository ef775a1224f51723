"""Files that scikit-learn carries, read without importing it: the import takes longer than a short run."""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path

import numpy as np

from proxlearn.errors import InputError


def read_rows(name: str) -> np.ndarray:
    """The numbers of one of its CSV files, without the line of names that some begin with."""
    spec = importlib.util.find_spec("sklearn")
    folders = spec.submodule_search_locations if spec is not None else None
    path = Path(next(iter(folders)), "datasets", "data", name) if folders else None
    if path is None or not path.is_file():
        raise InputError(f"scikit-learn, which carries {name}, is not installed as it should be", "install it again")
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = text.decode("ascii").splitlines()
    return np.loadtxt(lines[1:] if any(c.isalpha() and c != "e" for c in lines[0]) else lines, delimiter=",", ndmin=2)
