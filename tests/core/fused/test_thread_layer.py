"""Threads of the passes in forked processes, and if OpenMP cannot be loaded."""

from __future__ import annotations

import os
import subprocess
import sys

import torch

from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused.fused_step import FusedStep
from tests.conftest import paper_cloud, randomness
from tests.core.fused.test_fused_step import WDBC

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
