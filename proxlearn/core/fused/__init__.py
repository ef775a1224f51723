"""The recursion for the CPU, compiled once: the same mathematics as core/, with its loops fused.

torch offers the matrix products at full speed but makes a pass over memory for every elementary operation, and knows no
neighbour lists. Here Numba compiles the passes between the products (no C compiler is needed, and the result is
cached on disk). core/recursion.py stays the reference: every law is tested on both, and each against the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numba
import platformdirs

# Numba looks only at the file a function stands in; the passes also depend on functions.py, so all of them are the key.
_sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
_key = hashlib.sha256(_sources + numba.__version__.encode()).hexdigest()[:12]
CACHE = Path(platformdirs.user_cache_dir("proxlearn")) / f"compiled-{_key}"
numba.config.CACHE_DIR = str(CACHE)  # type: ignore[attr-defined]
# OpenMP is what torch uses: one pool of threads for both, instead of two that wait for each other.
numba.config.THREADING_LAYER = "omp"  # type: ignore[attr-defined]


def compiled_before() -> bool:
    """Whether an earlier process left its compiled passes in the cache."""
    return any(_compiled())


def passes_compiled() -> int:
    """How many of these passes are in the cache, by whatever process."""
    return sum(1 for _ in _compiled())


def _compiled() -> Iterator[Path]:
    # Those of other packages may be there too.
    return CACHE.glob(f"{Path(__file__).parent.name}_*/*.nbc")
