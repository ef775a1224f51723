"""Data files of the scikit-learn package, read without importing it: the import takes longer than a short run."""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path

import numpy as np

from proxlearn.errors import InputError


def read_rows(name: str) -> np.ndarray:
    """Return the numbers of one of the package's CSV files, without the header line that some of them have."""
    spec = importlib.util.find_spec("sklearn")
    folders = spec.submodule_search_locations if spec is not None else None
    path = Path(next(iter(folders)), "datasets", "data", name) if folders else None
    if path is None or not path.is_file():
        raise InputError(f"the installed scikit-learn lacks its file {name}", "install scikit-learn again")
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = content.decode("ascii").splitlines()
    has_header = any(c.isalpha() and c != "e" for c in lines[0])
    return np.loadtxt(lines[1:] if has_header else lines, delimiter=",", ndmin=2)
