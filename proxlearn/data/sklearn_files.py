"""Read data files of the installed scikit-learn without importing it, because the import is slow."""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path

import numpy as np

from proxlearn.errors import InputError


def read_rows(name: str) -> np.ndarray:
    """Return the numbers in the CSV file ``name`` of scikit-learn, without its header line, if any."""
    spec = importlib.util.find_spec("sklearn")
    folders = spec.submodule_search_locations if spec is not None else None
    path = Path(next(iter(folders)), "datasets", "data", name) if folders else None
    if path is None or not path.is_file():
        raise InputError(f"the file {name} of the installed scikit-learn is missing", "reinstall scikit-learn")
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = content.decode("ascii").splitlines()
    has_header = any(c.isalpha() and c != "e" for c in lines[0])
    return np.loadtxt(lines[1:] if has_header else lines, delimiter=",", ndmin=2)
