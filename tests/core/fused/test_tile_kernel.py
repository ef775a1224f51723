"""The streamed kernel, compared with all pairs in float64, with its stored entries, and with its guarantees."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numba
import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from proxlearn.core import proximal
from proxlearn.core.fused import tile_kernel
from proxlearn.core.fused.fixed_point import FixedPoint, solve
from proxlearn.core.fused.tile_kernel import MOST_SUMS, TileKernel, tile_blocks, tile_memory
from proxlearn.core.fused.tile_order import GROUP, LEAF, tile_order
from proxlearn.core.kernels.kernel import LogKernel, squared_distances

pytestmark = pytest.mark.usefixtures("one_thread")
EVERYTHING = 10**9
ROUNDS = 20
KAPPA = 3.0
LOG_RHO = {np.dtype(np.float32): 2e-5, np.dtype(np.float64): 1e-11}
dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Run on one thread, because the sweeps are short and waiting threads would take most of the time."""
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    yield
    numba.set_num_threads(before)


@dataclass(frozen=True)
class Problem:
    """Two clouds, the weights and the potentials of one proximal step."""

    rows: np.ndarray
    columns: np.ndarray
    epsilon: float
    log_rho: np.ndarray
    log_xi: np.ndarray
    log_z0: np.ndarray

    def kernel(self, cutoff: float = np.inf, budget_bytes: int = 0) -> TileKernel:
        memory = tile_memory(len(self.rows), self.rows.dtype, budget_bytes)
        return TileKernel(self.rows, self.columns, self.epsilon, cutoff, memory)

    def solution(self, kernel: TileKernel) -> FixedPoint:
        solution = solve(kernel, self.log_rho, self.log_xi, KAPPA, self.log_z0, 0.0, ROUNDS, "log")
        assert solution is not None
        return solution

    def reference(self) -> np.ndarray:
        """Return log rho from the log-domain kernel with every pair, in float64."""
        C = squared_distances(*(torch.from_numpy(x.astype(np.float64)) for x in (self.rows, self.columns)))
        potentials = (torch.from_numpy(x) for x in (self.log_rho, self.log_xi))
        log_rho, log_xi = potentials
        kernel, log_z0 = LogKernel(C, self.epsilon), torch.from_numpy(self.log_z0)
        return proximal.solve(kernel, log_rho, log_xi, KAPPA, log_z0, 0.0, ROUNDS, "log").log_rho.numpy()

    def distances(self) -> np.ndarray:
        rows, columns = self.rows.astype(np.float64), self.columns.astype(np.float64)
        return np.sqrt(((rows[:, None] - columns[None]) ** 2).sum(-1))


def make_problem(seed: int, N: int, p: int, kind: str, dtype: type, epsilon: float = 0.5) -> Problem:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(N, p))
    if kind == "spread":
        rows *= 20 * rng.exponential(size=p)
    if kind == "clustered":
        rows = 5 * rows[rng.integers(0, max(N // 40, 1), N)] + 0.1 * rng.normal(size=(N, p))
    if kind == "duplicated":
        rows = rows[rng.integers(0, max(N // 2, 1), N)]
    rows = rows.astype(dtype)
    columns = (rows + 0.2 * rng.normal(size=(N, p))).astype(dtype)
    # Twelve orders of magnitude.
    log_rho = rng.uniform(-12, 0, N) * np.log(10)
    return Problem(rows, columns, epsilon, log_rho, rng.normal(size=N), rng.normal(size=N))


problems = st.builds(
    make_problem,
    st.integers(0, 10**6),
    st.sampled_from([1, 2, 7, 9, 64, 65, 130, 200, 257, 400]),
    st.integers(1, 8),
    st.sampled_from(["dense", "spread", "clustered", "duplicated"]),
    st.sampled_from([np.float32, np.float64]),
)


class Sweeps:
    """A kernel with the vectors of a round."""

    def __init__(self, kernel: TileKernel, log_rho: np.ndarray) -> None:
        N = len(log_rho)
        self.kernel, self.rho = kernel, np.exp(log_rho - log_rho.max())
        self.gamma, self.log_scale = np.empty(N, kernel.dtype), np.empty(N)
        self.u, self.q, self.v = np.empty(N), np.empty(N), np.empty(N)

    def rebuild(self, log_z: np.ndarray) -> None:
        self.gamma[:] = log_z
        self.kernel.build(self.gamma, self.log_scale)

    def sweep(self, log_z: np.ndarray) -> None:
        self.kernel.sweep(np.exp(log_z - self.gamma), self.rho, self.u, self.q, self.v)


def sweep_results(tiles: TileKernel, problem: Problem) -> list[np.ndarray]:
    """Return all results of a build and its sweep, of a further sweep, and of the same after a second build."""
    results, kernel = [], Sweeps(tiles, problem.log_rho)
    for shift in (problem.log_z0, problem.log_xi):
        kernel.rebuild(shift)
        for log_z in (shift, shift + np.sin(np.arange(len(shift)))):
            kernel.sweep(log_z)
            results += [result.copy() for result in (kernel.u, kernel.q, kernel.v, kernel.log_scale)]
    return results


def assert_same_bits(actual: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for x, y in zip(actual, expected, strict=True):
        assert x.dtype == np.float64
        assert x.tobytes() == y.tobytes()


@given(problems, st.floats(0.1, 50))
@settings(max_examples=75, deadline=None)
def test_stored_and_streamed_entries_give_the_same_bits(problem: Problem, cutoff: float) -> None:
    streamed, stored = problem.kernel(cutoff), problem.kernel(cutoff, EVERYTHING)
    assert stored.is_stored
    assert not streamed.is_stored
    assert_same_bits(sweep_results(stored, problem), sweep_results(streamed, problem))


def test_the_entries_are_stored_if_and_only_if_they_fit() -> None:
    problem = make_problem(0, 100, 2, "dense", np.float32)
    size = 4 * problem.kernel().entries
    assert problem.kernel(budget_bytes=size).is_stored
    assert not problem.kernel(budget_bytes=size - 1).is_stored


@given(problems)
@settings(max_examples=150, deadline=None)
def test_the_weights_are_those_of_every_pair_in_float64(problem: Problem) -> None:
    log_rho = problem.solution(problem.kernel()).log_rho
    np.testing.assert_allclose(log_rho, problem.reference(), rtol=0, atol=LOG_RHO[problem.rows.dtype])


@given(problems, st.floats(0.5, 8))
@example(make_problem(3, 257, 2, "spread", np.float64), 3.0)
@settings(max_examples=150, deadline=None)
def test_what_is_skipped_changes_the_weights_by_no_more_than_the_bound(problem: Problem, cutoff: float) -> None:
    solution = problem.solution(problem.kernel(cutoff))
    log_eta = solution.log_eta(cutoff, problem.epsilon)
    assume(log_eta < 50)
    bound = np.log1p(np.exp(log_eta)) + LOG_RHO[problem.rows.dtype]
    assert np.abs(solution.log_rho - problem.reference()).max() <= bound


@given(problems, st.integers(0, 10**6))
@settings(max_examples=150, deadline=None)
def test_no_pair_within_the_cutoff_is_skipped(problem: Problem, seed: int) -> None:
    """With z^ = 1 for one column and 0 for all others, u is that column of K, with 0 for skipped tiles."""
    distances, rng = problem.distances(), np.random.default_rng(seed)
    N = len(distances)
    # Exactly the distance of a pair, so that rounding could lose it.
    cutoff = float(distances.flat[rng.integers(N * N)])
    kernel = Sweeps(problem.kernel(cutoff, EVERYTHING), problem.log_rho)
    kernel.rebuild(np.zeros(N))
    kernel.sweep(np.zeros(N))
    kept = np.empty((N, N), bool)
    for j in range(N):
        kernel.sweep(np.where(np.arange(N) == j, 0.0, -np.inf))
        kept[:, j] = kernel.u > 0
    assert np.all(kept[distances <= cutoff])
    assert np.all(kept.diagonal())


def test_tiles_beyond_the_cutoff_are_skipped() -> None:
    """Half of the tiles remain for two distant clusters of three leaves each, and a small share for a uniform cloud."""
    rng = np.random.default_rng(0)
    clusters = rng.normal(size=(6 * LEAF, 2)) + 100 * (np.arange(6 * LEAF) % 2)[:, None]
    assert TileKernel(clusters, clusters, 1.0, 20.0).entries == (6 * LEAF) ** 2 / 2
    sine = rng.uniform(-1, 1, (8000, 3)) * [1, 1, 1.5]
    assert TileKernel(sine, sine, 1e-3, 0.35).entries < 0.15 * 8000**2


@given(problems)
@settings(max_examples=150, deadline=None)
def test_a_round_conserves_mass_in_both_precisions(problem: Problem) -> None:
    kernel = Sweeps(problem.kernel(), problem.log_rho)
    kernel.rebuild(problem.log_z0)
    for log_z in (problem.log_z0, problem.log_z0 + problem.log_xi):
        kernel.sweep(log_z)
        mass = np.sum(np.exp(log_z - kernel.gamma) * kernel.v)
        assert mass == pytest.approx(kernel.rho.sum(), rel=1e-13)
    solution = problem.solution(problem.kernel())
    assert np.exp(solution.log_rho).sum() == pytest.approx(np.exp(problem.log_rho).sum(), rel=1e-12)


@dtypes
def test_the_bits_do_not_depend_on_the_number_of_threads(dtype: type) -> None:
    most = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    if most < 2:
        pytest.skip("needs two processors")
    problem, results = make_problem(0, 1500, 5, "clustered", dtype), []
    try:
        for threads in (1, 2):
            numba.set_num_threads(threads)
            results.append(sweep_results(problem.kernel(4.0), problem))
    finally:
        numba.set_num_threads(1)
    assert_same_bits(*results)


@given(problems, st.integers(0, 10**6))
@settings(max_examples=150, deadline=None)
def test_permuting_the_particles_permutes_the_result(problem: Problem, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(problem.rows))
    columns = (problem.rows, problem.columns, problem.log_rho, problem.log_xi, problem.log_z0)
    rows, columns, log_rho, log_xi, log_z0 = (x[order] for x in columns)
    permuted = Problem(rows, columns, problem.epsilon, log_rho, log_xi, log_z0)
    expected = problem.solution(problem.kernel()).log_rho[order]
    # A shift that differs changes no more than the rounding of K.
    np.testing.assert_allclose(permuted.solution(permuted.kernel()).log_rho, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("budget", [0, EVERYTHING])
def test_a_rebuild_and_the_next_sweep_are_one_pass(monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    problem, passes = make_problem(0, 50, 2, "dense", np.float64), []
    compiled = tile_kernel._sweep_tiles
    monkeypatch.setattr(tile_kernel, "_sweep_tiles", lambda *args: (passes.append(args[2]), compiled(*args)))
    kernel = Sweeps(problem.kernel(budget_bytes=budget), problem.log_rho)
    for _ in range(2):
        kernel.rebuild(problem.log_z0)
        kernel.sweep(problem.log_z0)
        kernel.sweep(problem.log_xi)
    # Whether a pass computes the entries: with stored entries the second sweep reads them.
    assert passes == [True, budget == 0] * 2


@given(st.integers(1, 10**8))
def test_the_number_of_blocks_is_a_power_of_two_with_a_group_per_block_and_bounded_sums(N: int) -> None:
    blocks = tile_blocks(N)
    assert blocks.bit_count() == 1
    assert blocks == 1 or (blocks <= N // GROUP and blocks * N <= MOST_SUMS)
    assert blocks == 32 or N < 32 * GROUP or 64 * N > MOST_SUMS


@given(problems)
@settings(max_examples=150, deadline=None)
def test_each_cut_of_the_order_separates_a_coordinate(problem: Problem) -> None:
    order = tile_order(problem.rows)
    assert sorted(order) == list(range(len(order)))
    ordered = problem.rows[order]
    half = -(-len(ordered) // LEAF) // 2 * LEAF
    if half > 0:
        axis = np.argmax(np.ptp(ordered, axis=0))
        assert ordered[:half, axis].max() <= ordered[half:, axis].min()


MEMORY = """
import resource, numpy as np
from proxlearn.core.fused.tile_kernel import TileKernel

def sweep(N):
    points = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)
    kernel = TileKernel(points, points, 1.0)
    kernel.build(np.zeros(N, np.float32), np.empty(N))
    kernel.sweep(np.ones(N), np.ones(N), np.empty(N), np.empty(N), np.empty(N))

sweep(100)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
sweep(20_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""

STEP = """
import re, torch
from pathlib import Path
from proxlearn import Risk, init
from proxlearn.core.fused import fixed_point
from proxlearn.core.fused.fused_step import FusedStep
from proxlearn.core.hyper import Hyper
risk = Risk(torch.randn(50, 2, generator=torch.Generator().manual_seed(0)), torch.arange(50) % 2)

def step(N):
    cloud, hyper = init(risk, N=N), Hyper(beta=1.0, h=1e-3, epsilon=1.0, L=1)
    PREPARE
    after, info = FusedStep(risk, hyper, N, 1)(cloud, torch.randn(cloud.theta.shape), torch.rand(N))
    assert info.weights_change() > 0

def peak():
    return 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])

step(100)
before = peak()
step(5000)
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of the memory is read from /proc")
@pytest.mark.parametrize("prepare", ["pass", "fixed_point.solve = lambda *_: None"], ids=["products", "log domain"])
def test_a_compiled_step_stays_within_the_memory_that_the_user_allows(prepare: str) -> None:
    """A matrix of 5000 particles takes up 100 MB in float32 and 200 MB in float64."""
    command = [sys.executable, "-c", STEP.replace("PREPARE", prepare)]
    environment = os.environ | {"PROXLEARN_MEMORY": "64MiB"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert 0 < int(run.stdout) < 64 * 2**20


def test_memory_grows_with_the_number_of_particles_and_not_with_its_square() -> None:
    pytest.importorskip("resource", reason="needs a POSIX system")
    run = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    unit = 1 if sys.platform == "darwin" else 1024
    # N x N entries would take 1600 MB; the sums of 32 blocks take 5 MB and the group of each thread .6 MB.
    assert int(run.stdout) * unit < 40e6
