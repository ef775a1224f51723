"""The compiled elementary functions, compared with those of the library."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from proxlearn.core.fused.vector_math import FAST, exp, tanh


@njit(fastmath=FAST)
def apply_exp(x, out):  # type: ignore[no-untyped-def]
    for i in range(len(x)):
        out[i] = exp(x[i])


@njit(fastmath=FAST)
def apply_tanh(x, out):  # type: ignore[no-untyped-def]
    for i in range(len(x)):
        out[i] = tanh(x[i])


dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@dtypes
def test_exp_is_as_accurate_as_a_rounded_argument(dtype: type) -> None:
    x = np.linspace(-80, 80, 100_001).astype(dtype)
    out = np.empty_like(x)
    apply_exp(x, out)
    units = np.abs(out / np.exp(x.astype(np.longdouble)) - 1) / np.finfo(dtype).eps
    assert np.all(units <= np.abs(x) + 2)


@dtypes
def test_exp_stays_finite_and_positive_beyond_its_range(dtype: type) -> None:
    x = np.array([-1e30, -1e4, 1e4, 1e30], dtype)
    out = np.empty_like(x)
    apply_exp(x, out)
    assert np.all(np.isfinite(out))
    assert np.all(out > 0)
    assert np.all(out[:2] < 1e-37)


@dtypes
def test_tanh_is_accurate_and_saturates_exactly(dtype: type) -> None:
    x = np.linspace(-30, 30, 100_001).astype(dtype)
    out = np.empty_like(x)
    apply_tanh(x, out)
    assert np.max(np.abs(out - np.tanh(x.astype(np.longdouble)))) <= 2 * np.finfo(dtype).eps
    assert np.all(np.abs(out) <= 1)
    far = np.array([-1e30, -50, 50, 1e30], dtype)
    out = np.empty_like(far)
    apply_tanh(far, out)
    assert out.tolist() == [-1, -1, 1, 1]


@dtypes
def test_nan_is_not_hidden(dtype: type) -> None:
    x = np.array([np.nan], dtype)
    for function in (apply_exp, apply_tanh):
        out = np.zeros_like(x)
        function(x, out)
        # The clamp may pass either bound, but never a plausible number in between.
        assert np.isnan(out[0]) or out[0] in (-1, 1) or out[0] < 1e-37 or out[0] > 1e37
