"""The compiled log kernel is the reference's."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn.core import proximal
from proxlearn.core.fused.log_kernel import FusedLogKernel
from proxlearn.core.kernel import LogKernel, squared_distances


@given(
    seed=st.integers(0, 10**6),
    N=st.integers(1, 70),
    epsilon=st.sampled_from([1e-6, 1e-2, 10.0]),
    size=st.sampled_from([1.0, 100.0, 2e4]),
    blocks=st.sampled_from([1, 3]),
)
@settings(max_examples=80, deadline=None)
def test_every_operation_equals_the_reference(seed: int, N: int, epsilon: float, size: float, blocks: int) -> None:
    """Potentials of any size: those of diverging runs span tens of thousands."""
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
