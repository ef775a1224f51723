"""The log kernel as a formula of pykeops, on its CPU back end: the same kernel, and tiles if pykeops fails."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest
import torch

from proxlearn import init
from proxlearn.core import proximal
from proxlearn.core.functionals.energy import Energy
from proxlearn.core.hyper import Hyper
from proxlearn.core.kernels import choice, keops
from proxlearn.core.kernels.choice import make_kernel
from proxlearn.core.kernels.keops import KeOpsLogKernel
from proxlearn.core.kernels.kernel import LogKernel, squared_distances
from proxlearn.core.kernels.tiled import TiledAbsorbedKernel
from proxlearn.training.engine import make_step
from tests.conftest import randomness


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
    assert line.endswith("in tiles: the compiler does not work")
    assert isinstance(make_kernel("auto", cloud.theta, cloud.theta, 1.0), TiledAbsorbedKernel)


@pytest.mark.usefixtures("formulas_on_the_cpu")
def test_a_package_that_is_not_installed_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pykeops", None)
    theta = torch.zeros(4, 2)
    assert isinstance(make_kernel("auto", theta, theta, 1.0), TiledAbsorbedKernel)
    assert keops.FAILURE.take() is None
