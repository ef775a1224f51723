"""The flow is invertible, its determinant is that of its Jacobian, and it is initially the identity."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from proxlearn.baselines.realnvp import RealNvp

shapes = st.tuples(st.integers(0, 10**6), st.integers(2, 7), st.integers(1, 9))


def flow_and_points(seed: int, D: int, width: int) -> tuple[RealNvp, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    nvp = RealNvp(D, width, generator, torch.float64)
    with torch.no_grad():
        for parameter in nvp.parameters:
            parameter.normal_(std=0.7 * parameter.shape[-1] ** -0.5, generator=generator)
    return nvp, torch.randn(6, D, generator=generator, dtype=torch.float64)


@given(shapes)
@settings(max_examples=40, deadline=None)
@torch.no_grad()
def test_inverse_leads_back(shape: tuple[int, int, int]) -> None:
    nvp, z = flow_and_points(*shape)
    x, _ = nvp(z)
    torch.testing.assert_close(nvp.inverse(x), z, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(nvp(nvp.inverse(z))[0], z, rtol=1e-8, atol=1e-8)


@given(shapes)
@settings(max_examples=25, deadline=None)
def test_log_det_is_that_of_the_jacobian(shape: tuple[int, int, int]) -> None:
    nvp, z = flow_and_points(*shape)
    jacobian = torch.stack([torch.autograd.functional.jacobian(lambda one: nvp(one[None])[0][0], point) for point in z])
    torch.testing.assert_close(nvp(z)[1].detach(), torch.linalg.slogdet(jacobian).logabsdet, rtol=1e-8, atol=1e-8)


@given(shapes)
@settings(max_examples=25, deadline=None)
@torch.no_grad()
def test_rows_do_not_know_each_other(shape: tuple[int, int, int]) -> None:
    nvp, z = flow_and_points(*shape)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    for original, permuted in zip(nvp(z), nvp(z[order]), strict=True):
        torch.testing.assert_close(permuted, original[order])


@given(shapes)
@settings(max_examples=25, deadline=None)
@torch.no_grad()
def test_first_flow_is_the_identity(shape: tuple[int, int, int]) -> None:
    _, z = flow_and_points(*shape)
    x, log_det = RealNvp(*shape[1:], torch.Generator().manual_seed(shape[0]), torch.float64)(z)
    assert torch.equal(x, z)
    assert not log_det.any()


def test_every_parameter_matters() -> None:
    nvp, z = flow_and_points(0, 5, 6)
    x, log_det = nvp(z)
    torch.autograd.backward((x.square().sum() + log_det.square().sum(),))
    assert all(parameter.grad is not None and bool(parameter.grad.any()) for parameter in nvp.parameters)
