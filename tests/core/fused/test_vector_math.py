"""The compiled elementary functions, compared with those of the library.

Threads of the passes in forked processes, and if OpenMP cannot be loaded.

Invariants: the bits for any number of threads, and the mass for any number of steps.

The second compiling process fills the cache, is not started needlessly, and is not required.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numba import njit

from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.energy import Energy
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused import compile_ahead
from proxlearn.core.fused.drift_base import product, row_products
from proxlearn.core.fused.fused_step import FusedStep
from proxlearn.core.fused.screening import ranges
from proxlearn.core.fused.vector_math import FAST, exp, tanh
from proxlearn.core.hyper import Hyper
from proxlearn.run.experiment import build_experiment, first_checkpoint
from proxlearn.training.iterate import iterate
from tests.conftest import config_of, paper_cloud, randomness
from tests.core.fused.test_fused_step import WDBC


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


ENVIRONMENT = os.environ | {"NUMBA_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
FIT = """
import multiprocessing, sys
import numpy as np
def fit(seed):
    X = np.random.default_rng(0).normal(size=(50, 2))
    quick = dict(N=8, steps=3, beta=1e5, h=0.5, epsilon=1.0, init_scale=1.0, threads=2)
    return ProxLearnRegressor(**quick, random_state=seed).fit(X, X[:, 0]).predict(X)
"""
FORKED = f"""
from proxlearn import ProxLearnRegressor
{FIT}
expected = fit(0)
def agrees(seed):
    return np.allclose(fit(seed), expected, rtol=1e-4)
def agrees_in_a_grandchild(seed):
    import joblib
    with joblib.parallel_config("multiprocessing"):
        return joblib.Parallel(2)(joblib.delayed(agrees)(seed) for _ in range(2))
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(agrees, [0, 0, 0]) == [True, True, True]
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
    assert pool.submit(agrees_in_a_grandchild, 0).result() == [True, True]
assert np.array_equal(fit(0), expected)
print("done")
"""
WITHOUT_OPENMP = f"""
import sys
sys.modules["numba.np.ufunc.omppool"] = None
from proxlearn import ProxLearnRegressor
{FIT}
fit(0)
import numba
print(numba.threading_layer())
"""


def run(code: str) -> str:
    """Run code in a separate process, because threads start once per process; a hang ends by a time-out."""
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_pool_of_forked_processes_can_fit_after_a_fit() -> None:
    """GNU OpenMP does not survive a fork; the children use one thread and end."""
    assert run(FORKED) == "done"


def test_another_layer_of_threads_serves_where_openmp_cannot_be_loaded() -> None:
    """This simulates macOS without libomp."""
    assert run(WITHOUT_OPENMP) in ("tbb", "workqueue")


def test_numba_s_threads_do_not_change_torch_s(wdbc: Risk, generator: torch.Generator) -> None:
    """Both share one OpenMP: torch must not use all cores in a run with one thread."""
    before = torch.get_num_threads()
    cloud = paper_cloud(wdbc, 30, generator)
    for threads in (1, 2):
        FusedStep(wdbc, WDBC, 30, threads=threads)(cloud, *randomness(cloud, generator))
        assert torch.get_num_threads() == before


PAPER = ("wdbc", "banana", "diabetes", "twonorm", "shd", "sine", "digits")
FILES = ("banana", "diabetes", "twonorm", "shd")


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Let torch's products use two threads, although the settings of the tests limit them to one."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def last_cloud(steps: Iterable[tuple[PointCloud, object]]) -> PointCloud:
    """Return the cloud after the last step without keeping the others."""
    ((cloud, _),) = deque(steps, maxlen=1)
    return cloud


def final_cloud(dataset: str, threads: int, steps: int, *words: str) -> PointCloud:
    experiment = build_experiment(config_of(f"dataset={dataset}", *words))
    moment = first_checkpoint(experiment)
    generator = torch.Generator()
    generator.set_state(moment.generator)
    torch.set_num_threads(threads)
    steps_taken = iterate(
        experiment.source,
        moment.cloud,
        experiment.hyper,
        generator=generator,
        until=steps,
        engine="fused",
        threads=threads,
    )
    return last_cloud(steps_taken)


def assert_same_bits(dataset: str, steps: int, *words: str) -> None:
    one, two = (final_cloud(dataset, threads, steps, *words) for threads in (1, 2))
    assert one.theta.numpy().tobytes() == two.theta.numpy().tobytes()
    assert one.log_rho.numpy().tobytes() == two.log_rho.numpy().tobytes()


@pytest.mark.usefixtures("two_threads")
@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 400),
    inner=st.integers(1, 4000),
    columns=st.integers(1, 40),
    is_float64=st.booleans(),
    is_transposed=st.booleans(),
)
@example(rows=300, inner=3700, columns=32, is_float64=False, is_transposed=False)
@example(rows=32, inner=3700, columns=300, is_float64=True, is_transposed=True)
@example(rows=7, inner=3300, columns=32, is_float64=False, is_transposed=True)
@example(rows=6, inner=766, columns=45, is_float64=True, is_transposed=False)
def test_a_product_has_the_same_bits_with_one_thread_and_two(
    rows: int, inner: int, columns: int, is_float64: bool, is_transposed: bool
) -> None:
    """The plain product of the examples depends on the number of threads, on an Intel or on an AMD processor."""
    generator, dtype = torch.Generator().manual_seed(rows + inner), torch.float64 if is_float64 else torch.float32
    A = torch.randn(rows, inner, generator=generator, dtype=dtype)
    if is_transposed:
        A = A.T.contiguous().T
    B = torch.randn(inner, columns, generator=generator, dtype=dtype)
    results, inner_products = [], []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(product(A, B))
        inner_products.append(row_products(A.numpy(), B[:, 0].contiguous().numpy()))
        assert torch.get_num_threads() == threads
    assert torch.equal(*results)
    assert np.array_equal(*inner_products)
    torch.testing.assert_close(results[0], A @ B, rtol=0, atol=1e-5 * inner**0.5)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dataset", PAPER)
def test_the_bits_do_not_depend_on_the_number_of_threads(
    dataset: str, dtype: str, request: pytest.FixtureRequest
) -> None:
    if dataset in FILES:
        request.getfixturevalue("paper_files")
    N = 50 if dataset in ("shd", "digits") else 300
    assert_same_bits(dataset, 12, f"N={N}", f"device.dtype={dtype}")


@pytest.mark.slow
@pytest.mark.usefixtures("two_threads", "paper_files")
@pytest.mark.parametrize("dataset", PAPER)
def test_300_steps_of_the_paper_s_size_have_the_same_bits_with_one_thread_and_two(dataset: str) -> None:
    assert_same_bits(dataset, 300)


@pytest.mark.usefixtures("two_threads")
def test_the_tiles_of_a_large_cloud_have_the_same_bits_with_one_thread_and_two() -> None:
    assert_same_bits("sine", 2, "N=9000", "L=2")


def mass_error(dtype: torch.dtype, steps: int) -> float:
    """Return the relative change of the mass over a run in which all particles exchange mass."""
    generator = np.random.default_rng(0)
    well = Energy(V=lambda theta: ((theta.square() - 1) ** 2).sum(), p=2)
    weights = np.exp(3 * generator.normal(size=40))
    start = PointCloud.from_arrays(generator.normal(size=(40, 2)), weights / weights.sum()).to("cpu", dtype)
    hyper = Hyper(beta=5.0, h=1e-2, epsilon=0.5, delta=1e-3, L=5, tolerance="log")
    cloud = last_cloud(iterate(well, start, hyper, generator=torch.Generator().manual_seed(0), until=steps, threads=1))
    assert not torch.equal(cloud.log_rho, start.log_rho)
    before, after = (float(moment.log_rho.exp().sum()) for moment in (start, cloud))
    return abs(after / before - 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_a_thousand_steps_conserve_the_mass(dtype: torch.dtype) -> None:
    assert mass_error(dtype, 1000) < 1e-11


@pytest.mark.slow
def test_a_hundred_thousand_steps_conserve_the_mass() -> None:
    assert mass_error(torch.float32, 100_000) < 1e-9


SINGLE = np.dtype(np.float32)


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    compile_ahead._decided.clear()
    yield
    compile_ahead.stop()
    compile_ahead._decided.clear()


def start(kind: str) -> None:
    compile_ahead.start(SINGLE, 100, 3 if kind == "short" else 4, saturates=False)


@pytest.mark.parametrize("kind", compile_ahead.FIXED_POINTS)
def test_no_process_starts_for_code_in_the_cache(kind: str) -> None:
    compile_ahead.compile_fixed_point(SINGLE, kind)
    start(kind)
    assert compile_ahead.is_stored(SINGLE, kind)
    assert not compile_ahead._running


def test_a_process_that_dies_is_not_waited_for(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    start("short")
    (process,) = compile_ahead._running
    process.kill()
    process.wait()
    # This function has been loaded, so another precision is compiled, for which no process holds a lock.
    assert not compile_ahead.is_stored(SINGLE, "short")
    began = time.monotonic()
    ranges(np.ones(3, np.float32), np.ones(3, np.float32), np.ones(3, np.float32), 1.0)
    assert time.monotonic() - began < 10


@pytest.mark.slow
@pytest.mark.parametrize("kind", compile_ahead.FIXED_POINTS)
def test_the_process_leaves_the_code_in_the_cache(kind: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert not compile_ahead.is_stored(SINGLE, kind)
    start(kind)
    assert compile_ahead._running[0].wait(60) == 0
    assert compile_ahead.is_stored(SINGLE, kind)


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["wdbc", "sine", "banana"])
def test_the_first_step_compiles_nothing_after_the_second_process(
    dataset: str, paper_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the second process compiles has the types that the step needs; otherwise it would help nobody."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    run = [sys.executable, "-m", "proxlearn", "train", f"dataset={dataset}", "steps=1", "threads=2"]
    subprocess.run([*run, f"hydra.run.dir={tmp_path / 'run'}"], check=True, cwd=tmp_path)
    names = [path.name.split("-")[0] for path in tmp_path.glob("proxlearn/compiled-*/*-*")]
    # This helper of the fixed point is called with numbers and with arrays.
    once = [name for name in names if not name.endswith("_scaled_distance")]
    assert len(once) == len(set(once)), "a function was compiled for two lists of types"
