"""The second compiling process fills the cache, is not started needlessly, and is not required."""

from collections.abc import Iterator

import numba
import numpy as np
import pytest

from proxlearn.core.fused import compile_ahead, fixed_point
from proxlearn.core.fused.compile_ahead import compile_fixed_point

SINGLE = np.dtype(np.float32)


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    compile_ahead._decided.clear()
    yield
    compile_ahead.stop()
    compile_ahead._decided.clear()


def is_stored() -> bool:
    types = tuple(numba.typeof(value) for value in compile_ahead._arguments(SINGLE))
    stored: bool = fixed_point.DENSE._cache.is_stored(types, fixed_point.DENSE.targetctx)
    return stored


def test_no_process_starts_for_code_in_the_cache() -> None:
    compile_fixed_point(SINGLE)
    compile_ahead.start(SINGLE)
    assert is_stored()
    assert not compile_ahead._running


def test_a_process_that_dies_is_not_waited_for(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compile_ahead.start(SINGLE)
    (process,) = compile_ahead._running
    process.kill()
    compile_ahead.wait()
    assert not compile_ahead._running
    assert not is_stored()


@pytest.mark.slow
def test_the_process_leaves_the_code_in_the_cache(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert not is_stored()
    compile_ahead.start(SINGLE)
    compile_ahead.wait()
    assert is_stored()
