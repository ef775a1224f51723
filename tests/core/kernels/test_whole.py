"""Both kernels hold the same Gamma, and the log kernel never leaves the floating-point range.

The log kernel as a formula of pykeops, on its CPU back end: the same kernel, and tiles if pykeops fails.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn import init
from proxlearn.core import proximal
from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.energy import Energy
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused.log_kernel import FusedLogKernel
from proxlearn.core.hyper import Hyper
from proxlearn.core.kernels import choice, keops
from proxlearn.core.kernels.choice import make_kernel, offdiagonal_share
from proxlearn.core.kernels.keops import KeOpsLogKernel
from proxlearn.core.kernels.kernel import DenseKernel, LogKernel, squared_distances
from proxlearn.core.kernels.tiled import TiledAbsorbedKernel
from proxlearn.core.samples import Samples
from proxlearn.core.step import step
from proxlearn.training.engine import make_step
from tests.conftest import paper_cloud, randomness


@given(st.integers(0, 10**6), st.integers(1, 12), st.floats(0.05, 20))
@settings(max_examples=60, deadline=None)
def test_log_and_dense_kernels_are_the_same_operator(seed: int, N: int, epsilon: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    old = torch.randn(N, 3, generator=generator, dtype=torch.float64)
    new = old + 0.2 * torch.randn(N, 3, generator=generator, dtype=torch.float64)
    a, b = torch.randn(2, N, generator=generator, dtype=torch.float64)
    C = squared_distances(new, old)
    dense, log = DenseKernel(C, epsilon), LogKernel(C, epsilon)
    torch.testing.assert_close(dense.log_apply(a), log.log_apply(a) + log.row_shift)
    torch.testing.assert_close(dense.log_apply_transpose(a), log.log_apply_transpose(a + log.row_shift))
    torch.testing.assert_close(dense.log_transport(a, b), log.log_transport(a, b))


@given(st.integers(0, 10**6), st.integers(2, 12), st.floats(0.05, 20))
@settings(max_examples=40, deadline=None)
def test_the_offdiagonal_share_is_the_couplings(seed: int, N: int, epsilon: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    old, new = torch.randn(2, N, 3, generator=generator, dtype=torch.float64)
    log_z = torch.randn(N, generator=generator, dtype=torch.float64)
    shares = torch.softmax(log_z - squared_distances(new, old) / (2 * epsilon), dim=1)
    expected = (shares.sum(1) - shares.diagonal()).max()
    torch.testing.assert_close(offdiagonal_share(new, old, log_z, epsilon), expected, rtol=1e-9, atol=1e-14)


def test_distances_are_exact_in_float32_for_a_spread_cloud(generator: torch.Generator) -> None:
    """The error of the matrix-product shortcut would be .25 for values near 1.3."""
    old = 500 * torch.randn(100, 32, generator=generator, dtype=torch.float64)
    new = old + 0.2 * torch.randn(100, 32, generator=generator, dtype=torch.float64)
    actual = squared_distances(new.float(), old.float())
    exact = squared_distances(new.float().double(), old.float().double())
    torch.testing.assert_close(actual.double(), exact, rtol=1e-5, atol=0)


@pytest.mark.parametrize("feature_scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("exponent", range(-8, 9, 2))
@pytest.mark.parametrize("tolerance", ["paper", "log"])
def test_log_kernel_keeps_the_mass_in_float32_at_any_epsilon(
    wdbc: Risk, generator: torch.Generator, feature_scale: float, exponent: int, tolerance: str
) -> None:
    samples = Samples(wdbc.samples.X * feature_scale, wdbc.samples.y, wdbc.samples.labels)
    problem = Risk.from_samples(wdbc.neuron, samples).to("cpu", torch.float32)
    cloud = paper_cloud(wdbc, 40, generator).to("cpu", torch.float32)
    mass = float(cloud.rho.double().sum())
    hyper = Hyper(beta=0.05, h=1e-3, epsilon=10.0**exponent, delta=1e-3, L=300, kernel="log", tolerance=tolerance)  # type: ignore[arg-type]
    for _ in range(4):
        cloud, _ = step(problem, cloud, hyper, *randomness(cloud, generator))
        assert bool(torch.isfinite(cloud.theta).all())
        assert bool(torch.isfinite(cloud.log_rho).all())
        assert float(cloud.rho.double().sum()) == pytest.approx(mass, rel=1e-5)


def test_log_kernel_stands_coincident_particles_and_huge_potentials(wdbc: Risk, generator: torch.Generator) -> None:
    """With beta = 1e4, xi overflows even in float64, and duplicated particles make another point the nearest one."""
    cloud = paper_cloud(wdbc, 20, generator)
    cloud = PointCloud(cloud.theta[torch.arange(20) // 2], cloud.log_rho).to("cpu", torch.float32)
    problem = wdbc.to("cpu", torch.float32)
    mass = float(cloud.rho.double().sum())
    for epsilon in (1e-6, 1e-2, 10.0):
        hyper = Hyper(beta=1e4, h=0.1, epsilon=epsilon, delta=1e-3, L=300, tolerance="log")
        after, _ = step(problem, cloud, hyper, *randomness(cloud, generator))
        assert bool(torch.isfinite(after.log_rho).all())
        assert float(after.rho.double().sum()) == pytest.approx(mass, rel=1e-5)


# The compiled log kernel is the reference's.
@given(
    seed=st.integers(0, 10**6),
    N=st.integers(1, 70),
    epsilon=st.sampled_from([1e-6, 1e-2, 10.0]),
    size=st.sampled_from([1.0, 100.0, 2e4]),
    blocks=st.sampled_from([1, 3]),
)
@settings(max_examples=80, deadline=None)
def test_every_operation_equals_the_reference(seed: int, N: int, epsilon: float, size: float, blocks: int) -> None:
    """Potentials may have any size; those of diverging runs span tens of thousands."""
    generator = torch.Generator().manual_seed(seed)
    rows, steps = (torch.randn(N, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    columns = rows + 0.1 * steps
    log_rho, log_z, log_q, log_xi = (size * torch.randn(N, generator=generator, dtype=torch.float64) for _ in range(4))
    expected = LogKernel(squared_distances(rows, columns), epsilon)
    actual = FusedLogKernel(rows.numpy(), columns.numpy(), epsilon, np.empty((N, N)), blocks)

    def same(x: torch.Tensor, y: torch.Tensor) -> None:
        # Logarithms: an error in the last place of the largest number that went into them.
        largest = max(float(part.abs().max()) for part in (expected.log_Gamma, expected.row_shift))
        atol = 1e-15 * (5 * size + largest + 10)
        torch.testing.assert_close(x, y, rtol=0, atol=atol)

    same(actual.row_shift, expected.row_shift)
    same(actual.log_apply(log_z), expected.log_apply(log_z))
    same(actual.log_apply_transpose(log_q), expected.log_apply_transpose(log_q))
    same(actual.log_transport(log_rho, log_z), expected.log_transport(log_rho, log_z))
    solved = proximal.solve(actual, log_rho, log_xi, 3.0, log_z, 0.0, 10, "log")
    assert abs(float(torch.logsumexp(solved.log_rho, 0) - torch.logsumexp(log_rho, 0))) <= 1e-13 * (size * 5 + 10)


@pytest.fixture
def formulas_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "WHOLE_N", 0)
    monkeypatch.setattr(keops, "DEVICES", ("cpu",))
    monkeypatch.setattr(keops, "FAILURE", keops.Failure())
    monkeypatch.setattr("proxlearn.training.engine.KEOPS_FAILURE", keops.FAILURE)


@pytest.mark.skipif(find_spec("pykeops") is None, reason="pykeops is not installed (pip install 'proxlearn[keops]')")
@pytest.mark.usefixtures("formulas_on_the_cpu")
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_the_formula_is_the_log_kernel(
    dtype: torch.dtype, tolerance: float, generator: torch.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    old, moves = torch.randn(2, 200, 3, generator=generator, dtype=torch.float64)
    rows, columns = (old + 0.1 * moves).to(dtype), old.to(dtype)
    log_rho = -27 * torch.rand(200, generator=generator, dtype=torch.float64)
    log_xi, log_z = torch.randn(2, 200, generator=generator, dtype=torch.float64)
    for epsilon in (0.05, 2.0):
        formula = make_kernel("log", rows, columns, epsilon)
        assert isinstance(formula, KeOpsLogKernel), keops.FAILURE.reason
        log = LogKernel(squared_distances(rows, columns), epsilon)

        def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
            torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)

        # The two kernels differ in their row shifts, which the potentials absorb.
        same(formula.log_apply(log_z) + formula.row_shift, log.log_apply(log_z) + log.row_shift)
        same(formula.log_apply_transpose(log_z + formula.row_shift), log.log_apply_transpose(log_z + log.row_shift))
        moved = formula.log_transport(log_rho, log_z)
        same(moved, log.log_transport(log_rho, log_z))
        assert float(moved.exp().sum()) == pytest.approx(float(log_rho.exp().sum()), rel=1e-12)
        actual, expected = (
            proximal.solve(kernel, log_rho, log_xi, 3.0, log_z, 1e-4, 50, "log") for kernel in (formula, log)
        )
        same(actual.log_rho, expected.log_rho)
        same(actual.log_q, expected.log_q)
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("formulas_on_the_cpu")
def test_a_failure_is_reported_once_and_the_tiles_take_over(
    monkeypatch: pytest.MonkeyPatch, generator: torch.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise RuntimeError("the compiler does not work\nand says why")

    monkeypatch.setattr(keops, "_load", fail)
    well = Energy(V=lambda theta: theta.square().sum(), p=2)
    cloud = init(well, N=30)
    step = make_step("eager", well, Hyper(beta=10.0, h=0.01, epsilon=0.1), 30, 1)
    for _ in range(3):
        cloud, _ = step(cloud, *randomness(cloud, generator))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("pykeops cannot be used (the compiler does not work), so torch computes the kernel in tiles")
    assert isinstance(make_kernel("auto", cloud.theta, cloud.theta, 1.0), TiledAbsorbedKernel)


@pytest.mark.usefixtures("formulas_on_the_cpu")
def test_a_package_that_is_not_installed_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pykeops", None)
    theta = torch.zeros(4, 2)
    assert isinstance(make_kernel("auto", theta, theta, 1.0), TiledAbsorbedKernel)
    assert keops.FAILURE.take() is None
