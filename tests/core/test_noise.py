"""The random numbers of a step: known values of the generator, their distributions, and the same numbers everywhere."""

from __future__ import annotations

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from proxlearn.core import noise
from proxlearn.core.cloud import PointCloud
from proxlearn.core.fused import noise_pass
from proxlearn.training.stepper import draw_noise

words = st.integers(0, 2**32 - 1)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def numpy_of(dtype: torch.dtype) -> type:
    return np.float32 if dtype == torch.float32 else np.float64


def test_philox_gives_its_published_answer() -> None:
    """The first vector of the generator's reference implementation has a key and a counter of zeros."""
    assert [int(word[0]) for word in noise.philox((0, 0), 1, 0, "cpu")] == [
        0x6627E8D5,
        0xE169C58D,
        0xBC57AC4C,
        0x9B00DBD8,
    ]


@given(key=st.tuples(words, words), count=st.integers(1, 3000), dtype=st.sampled_from([torch.float32, torch.float64]))
@settings(max_examples=40, deadline=None)
def test_the_compiled_numbers_are_those_of_torch_to_rounding(
    key: tuple[int, int], count: int, dtype: torch.dtype
) -> None:
    normal, uniform = np.empty(count, numpy_of(dtype)), np.empty(count, numpy_of(dtype))
    noise_pass.fill_normal(key, normal)
    noise_pass.fill_uniform(key, uniform)
    eps = torch.finfo(dtype).eps
    np.testing.assert_allclose(normal, noise.normal(key, (count,), dtype, "cpu"), rtol=0, atol=16 * eps)
    assert np.array_equal(uniform, noise.uniform(key, count, dtype, "cpu"))
    assert 0 < uniform.min() <= uniform.max() <= 1


@dtypes
def test_normal_numbers_have_the_normal_law(dtype: torch.dtype) -> None:
    """Moments are within five standard errors, the distribution function is close, and pairs are uncorrelated."""
    x = np.empty(400_000, numpy_of(dtype))
    noise_pass.fill_normal((20231, 4), x)
    x = x.astype(np.float64)
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((x**power).mean() - mean) < 5 * np.sqrt(variance / len(x))
    assert stats.kstest(x, "norm").pvalue > 1e-3
    for lag in (1, 2, 3, 4):
        assert abs((x[lag:] * x[:-lag]).mean()) < 5 / np.sqrt(len(x))
        # The two numbers of a pair share a radius: their squares must not be correlated either.
        assert abs(((x[lag:] ** 2 - 1) * (x[:-lag] ** 2 - 1)).mean()) < 5 * 2 / np.sqrt(len(x))


@dtypes
def test_numbers_do_not_depend_on_the_number_of_threads_and_a_part_is_a_part(dtype: torch.dtype) -> None:
    threads = numba.get_num_threads()
    whole = np.empty(100_003, numpy_of(dtype))
    noise_pass.fill_normal((1, 2), whole)
    try:
        numba.set_num_threads(1)
        for count in (100_003, 20_000, 50):
            part = np.empty(count, numpy_of(dtype))
            noise_pass.fill_normal((1, 2), part)
            assert np.array_equal(part, whole[:count])
    finally:
        numba.set_num_threads(threads)


def test_every_step_has_its_own_numbers_and_z0_is_not_part_of_the_noise() -> None:
    cloud, generator = PointCloud.from_arrays(np.zeros((300, 4))), torch.Generator().manual_seed(0)
    (first, z0), (second, other_z0) = draw_noise(cloud, generator), draw_noise(cloud, generator)
    assert not torch.equal(first, second)
    assert not torch.equal(z0, other_z0)
    again, _ = draw_noise(cloud, torch.Generator().manual_seed(0))
    assert torch.equal(first, again)
    assert abs(float(torch.corrcoef(torch.stack((first[:, 0], z0)))[0, 1])) < 0.3
