"""A cloud that diverges keeps its mass in every step, until the run stops and names the step and the quantity."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from proxlearn.core.cloud import draw_cloud
from proxlearn.core.fused.log_kernel import FusedLogKernel
from proxlearn.core.hyper import Hyper
from proxlearn.core.neurons.tanh import TanhNeuron
from proxlearn.core.problem import Problem
from proxlearn.core.samples import Samples
from proxlearn.errors import RunError
from proxlearn.training.stepper import Stepper


@pytest.mark.parametrize("seed", [0, 1, 6, 7])
def test_an_exploding_run_keeps_its_mass_until_it_stops(seed: int) -> None:
    X = torch.from_numpy(np.random.default_rng(seed).normal(size=(60, 3)))
    y = (X[:, 0] + 0.5 * X[:, 1] > 0).double() * 2 - 1
    box = {"a": (0.9, 1.1), "b": (-0.1, 0.1), "w": (-1.0, 1.0)}
    cloud = draw_cloud({"a": 1, "b": 1, "w": 3}, box, 20, "uniform", torch.Generator().manual_seed(seed))
    cloud = cloud.to("cpu", torch.float32)
    hyper = Hyper(beta=1e4, h=3.0, epsilon=1.0, delta=1e-3, L=300)
    advance = Stepper(Problem(TanhNeuron(), Samples(X, y)), hyper, "fused", 1, torch.Generator().manual_seed(seed))

    def explode() -> None:
        nonlocal cloud
        for _ in range(60):
            cloud, _ = advance(cloud)
            assert float(cloud.rho.sum()) == pytest.approx(1, abs=1e-5)

    with pytest.raises(RunError, match=r"is not finite after step \d+; choose a smaller h"):
        explode()


def test_two_equal_entries_of_a_row_share_its_mass_beside_huge_logarithms() -> None:
    rows = np.zeros((3, 2))
    kernel = FusedLogKernel(rows, rows, 1.0, np.empty((3, 3)), 1)
    moved = kernel.log_transport(torch.zeros(3).double(), torch.full((3,), 1e25).double())
    torch.testing.assert_close(moved.exp(), torch.ones(3).double())
