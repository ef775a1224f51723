"""Tiled kernels equal the whole kernel up to rounding, lose no mass, and wait for the device at most once per round."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from proxlearn.core import proximal
from proxlearn.core.kernels import choice
from proxlearn.core.kernels.choice import make_kernel, offdiagonal_share
from proxlearn.core.kernels.kernel import DenseKernel, Kernel, LogKernel, squared_distances
from proxlearn.core.kernels.tiled import RANGE, TiledAbsorbedKernel, TiledLogKernel, Tiling, make_tiling

CLOUDS: dict[str, Callable[[Tensor], Tensor]] = {
    "clustered": lambda normal: 0.05 * normal + 3 * torch.sign(normal[:, :1]),
    "spread": lambda normal: 30 * normal,
    "duplicated": lambda normal: normal[torch.arange(len(normal)) // 3],
}
UNIT = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}


class Case:
    """Two clouds, weights over twelve orders of magnitude, and a potential, all from one seed."""

    def __init__(self, seed: int, N: int, kind: str, dtype: torch.dtype, epsilon: float = 0.5) -> None:
        generator = torch.Generator().manual_seed(seed)
        normal, moves = torch.randn(2, N, 3, generator=generator, dtype=torch.float64)
        old = CLOUDS[kind](normal)
        self.rows, self.columns = (old + 0.1 * moves).to(dtype), old.to(dtype)
        self.epsilon = epsilon
        self.log_rho = -math.log(1e12) * torch.rand(N, generator=generator, dtype=torch.float64)
        self.log_xi, self.log_z = torch.randn(2, N, generator=generator, dtype=torch.float64)

    def tiled(self, kind: type[TiledLogKernel], size: int, keep: bool) -> TiledLogKernel:
        return kind(self.rows, self.columns, self.epsilon, Tiling(len(self.rows), size, keep))

    def whole(self, dtype: torch.dtype) -> LogKernel:
        return LogKernel(squared_distances(self.rows.to(dtype), self.columns.to(dtype)), self.epsilon)

    def solve(self, kernel: Kernel, delta: float = 1e-9, kappa: float = 1.0) -> proximal.ProximalSolution:
        return proximal.solve(kernel, self.log_rho, self.log_xi, kappa, self.log_z, delta, 40, "log")


cases = given(
    seed=st.integers(0, 10**6),
    N=st.integers(1, 40),
    kind=st.sampled_from(sorted(CLOUDS)),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    size=st.sampled_from([1, 2, 7, 40]),
    keep=st.booleans(),
)


def rounding(case: Case, dtype: torch.dtype) -> float:
    """Return the error of a logarithm: some units in the last place of the largest number involved."""
    exact = case.whole(torch.float64)
    nearby = exact.log_Gamma[exact.log_Gamma > -200]
    return 32 * UNIT[dtype] * (10 + float(nearby.abs().max()) + float(exact.row_shift.abs().max()))


@cases
@settings(max_examples=60, deadline=None)
def test_every_operation_of_the_tiled_log_kernel_is_that_of_the_whole_one(
    seed: int, N: int, kind: str, dtype: torch.dtype, size: int, keep: bool
) -> None:
    case = Case(seed, N, kind, dtype)
    tiled, whole = case.tiled(TiledLogKernel, size, keep), case.whole(dtype)
    for potential in (case.log_z, case.log_z.to(dtype)):
        atol = 8 * UNIT[dtype] * 400
        torch.testing.assert_close(tiled.log_apply(potential), whole.log_apply(potential), rtol=0, atol=atol)
        torch.testing.assert_close(
            tiled.log_apply_transpose(potential), whole.log_apply_transpose(potential), rtol=4 * UNIT[dtype], atol=atol
        )
        log_rho = case.log_rho.to(potential.dtype)
        moved, expected = (kernel.log_transport(log_rho, potential) for kernel in (tiled, whole))
        assert moved.dtype == log_rho.dtype
        torch.testing.assert_close(moved, expected, rtol=4 * UNIT[dtype], atol=atol)
    torch.testing.assert_close(tiled.row_shift, whole.row_shift, rtol=0, atol=0)


@cases
@settings(max_examples=60, deadline=None)
def test_the_mass_is_conserved_to_float64_in_both_precisions(
    seed: int, N: int, kind: str, dtype: torch.dtype, size: int, keep: bool
) -> None:
    case = Case(seed, N, kind, dtype)
    mass = float(case.log_rho.exp().sum())
    C = squared_distances(case.rows, case.columns)
    kernels = [case.tiled(TiledLogKernel, size, keep), case.tiled(TiledAbsorbedKernel, size, keep), case.whole(dtype)]
    for kernel in [*kernels, *([DenseKernel(C, case.epsilon)] if kind == "clustered" else [])]:
        assert float(kernel.log_transport(case.log_rho, case.log_z).exp().sum()) == pytest.approx(mass, rel=1e-13)
        assert float(case.solve(kernel).log_rho.exp().sum()) == pytest.approx(mass, rel=1e-12)


@cases
@settings(max_examples=60, deadline=None)
def test_the_solution_does_not_depend_on_how_the_kernel_is_held(
    seed: int, N: int, kind: str, dtype: torch.dtype, size: int, keep: bool
) -> None:
    case = Case(seed, N, kind, dtype)
    exact = case.solve(case.whole(torch.float64))
    delta = 1e-9 if dtype == torch.float64 else 1e-3
    for kernel in (TiledLogKernel, TiledAbsorbedKernel):
        actual = case.solve(case.tiled(kernel, size, keep), delta)
        error = float((actual.log_rho - exact.log_rho).abs().max())
        assert error <= delta + 1e-9 + rounding(case, dtype)


@cases
@settings(max_examples=40, deadline=None)
def test_kept_tiles_give_the_same_bits_as_rebuilt_ones(
    seed: int, N: int, kind: str, dtype: torch.dtype, size: int, keep: bool
) -> None:
    case = Case(seed, N, kind, dtype)
    for kernel in (TiledLogKernel, TiledAbsorbedKernel):
        kept, rebuilt = (case.solve(case.tiled(kernel, size, keep)) for keep in (True, False))
        assert torch.equal(kept.log_rho, rebuilt.log_rho)
        assert torch.equal(kept.log_z, rebuilt.log_z)


@cases
@settings(max_examples=60, deadline=None)
def test_the_transport_is_right_for_potentials_of_any_size(
    seed: int, N: int, kind: str, dtype: torch.dtype, size: int, keep: bool
) -> None:
    """Shares below the smallest float64 are still represented by logarithms, and no mass is lost."""
    case = Case(seed, N, kind, dtype)
    log_z = 2000 * case.log_z
    tiled, whole = case.tiled(TiledLogKernel, size, keep), case.whole(dtype)
    entries = whole.log_Gamma.double() + log_z
    exact = torch.logsumexp(torch.log_softmax(entries, dim=1) + case.log_rho[:, None], dim=0)
    for kernel in (tiled, whole):
        moved = kernel.log_transport(case.log_rho, log_z)
        largest = float(exact.abs().max())
        torch.testing.assert_close(moved, exact, rtol=0, atol=4 * UNIT[dtype] * (largest + 10))
        heavy = exact > -300
        torch.testing.assert_close(moved[heavy], exact[heavy], rtol=0, atol=1e-11)
        assert float(moved.exp().sum()) == pytest.approx(float(case.log_rho.exp().sum()), rel=1e-12)


def test_one_tile_has_the_bits_of_the_whole_kernel(generator: torch.Generator) -> None:
    case = Case(1, 30, "clustered", torch.float32)
    tiled, whole = case.tiled(TiledLogKernel, 30, False), case.whole(torch.float32)
    log_z = case.log_z.float()
    assert torch.equal(tiled.log_apply(log_z), whole.log_apply(log_z))
    assert torch.equal(tiled.log_apply_transpose(log_z), whole.log_apply_transpose(log_z))


class CallCounter(TorchDispatchMode):
    """A counter of the calls of an operation, which also records the largest number of elements of a result."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func.name()] = self.counts.get(func.name(), 0) + 1
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, Tensor):
                self.largest = max(self.largest, value.numel())
        return result


WAITS = ("aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::equal", "aten::nonzero")


@pytest.mark.parametrize("tolerance", ["paper", "log"])
@pytest.mark.parametrize("which", ["auto", "log", "dense"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_round_waits_once_for_the_device_and_never_with_delta_0(
    monkeypatch: pytest.MonkeyPatch, tolerance: Any, which: Any, whole: bool
) -> None:
    monkeypatch.setattr(choice, "WHOLE_N", 2**12 if whole else 0)
    case = Case(3, 30, "clustered", torch.float64)
    for delta in (0.0, 1e-12):
        with CallCounter() as counter:
            kernel = make_kernel(which, case.rows, case.columns, case.epsilon)
            solution = proximal.solve(kernel, case.log_rho, case.log_xi, 1.0, case.log_z, delta, 25, tolerance)
        waits = sum(counter.counts.get(name, 0) for name in WAITS)
        assert waits == (solution.rounds if delta else 0)
        assert solution.rounds > 3


def test_the_absorbed_kernel_uses_products_near_the_fixed_point_and_the_log_domain_far_from_it() -> None:
    case = Case(5, 60, "clustered", torch.float32)
    with CallCounter() as counter:
        solution = case.solve(case.tiled(TiledAbsorbedKernel, 16, False), delta=1e-5)
    assert counter.counts["aten::mv"] > 0
    # The first round has no estimate to absorb, and its change is small: two operations of four tiles each in the log
    # domain, the products for the others, and one logsumexp per tile for the transport.
    assert counter.counts["aten::logsumexp"] == 4 * 2 + 4
    assert solution.converged
    case.log_xi = case.log_xi * 1e4
    with CallCounter() as counter:
        solution = case.solve(case.tiled(TiledAbsorbedKernel, 16, False), delta=1e-5)
    assert float(solution.changes[0]) > RANGE[torch.float32]
    assert counter.counts["aten::logsumexp"] > 4 * 3
    assert bool(torch.isfinite(solution.log_rho).all())


def test_potentials_that_jump_far_after_small_changes_stay_right() -> None:
    """The limit on the changes decides: products are used while it is small, the log domain if it is large or NaN."""
    case = Case(7, 25, "spread", torch.float64, epsilon=50.0)
    kernel, whole = case.tiled(TiledAbsorbedKernel, 4, True), case.whole(torch.float64)
    log_z = case.log_z
    for change in (math.inf, 0.5, 60.0, 60.0, 60.0, 500.0, 1e4, 1.0, math.nan, 100.0, 100.0):
        kernel.limit_change(change)
        move = torch.sin(torch.arange(25.0, dtype=torch.float64) + change)
        log_z = log_z + (move * change if math.isfinite(change) else 0)
        for operation in ("log_apply", "log_apply_transpose"):
            actual, expected = (getattr(held, operation)(log_z) for held in (kernel, whole))
            torch.testing.assert_close(actual, expected, rtol=1e-13, atol=1e-10)


def test_the_offdiagonal_share_of_a_large_cloud_is_a_share_of_sampled_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(11, 60, "clustered", torch.float64)
    every = offdiagonal_share(case.rows, case.columns, case.log_z, case.epsilon)
    shares = torch.softmax(case.log_z - squared_distances(case.rows, case.columns) / (2 * case.epsilon), dim=1)
    others = shares.sum(1) - shares.diagonal()
    monkeypatch.setattr(choice, "MOST_PAIRS", 60 * 20)
    with CallCounter() as counter:
        sampled = offdiagonal_share(case.rows, case.columns, case.log_z, case.epsilon)
    torch.testing.assert_close(sampled, others[::3].max(), rtol=1e-9, atol=0)
    assert 0 < float(sampled) <= float(every)
    assert counter.largest <= 60 * 20


@pytest.mark.parametrize("memory, keep, size", [("100GiB", True, 52), ("2GiB", False, 52), ("32MiB", False, 6)])
def test_the_free_memory_decides_what_is_kept_and_the_size_of_tiles_only_where_it_must(
    monkeypatch: pytest.MonkeyPatch, memory: str, keep: bool, size: int
) -> None:
    monkeypatch.setattr("proxlearn.memory.available_memory", lambda: 2**40)
    monkeypatch.setenv("PROXLEARN_MEMORY", memory)
    N = 20_000
    assert make_tiling(N, N, torch.device("cpu"), 4 * N**2) == Tiling(N, size, keep)
