"""The convex network: closed forms and the backward pass agree with autodiff, and it is convex for any parameters."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from proxlearn.baselines.icnn import RIDGE, ConvexNet

shapes = st.tuples(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 8), st.integers(1, 3))


def net_and_points(seed: int, D: int, width: int, rank: int, spread: float = 1.0) -> tuple[ConvexNet, Tensor]:
    """Return weights far from the initial ones, for which most of the Hessian would be the identity."""
    generator = torch.Generator().manual_seed(seed)
    net = ConvexNet(D, width, rank, generator, torch.float64)
    net.flat.normal_(std=spread, generator=generator)
    net.clamp_()
    return net, torch.randn(6, D, generator=generator, dtype=torch.float64)


def literal(flat: Tensor, x: Tensor, D: int, width: int, rank: int) -> Tensor:
    """Return f at one point, computed from the definition."""
    sizes = (2 * width * rank * D, 2 * (D + 1) * width, width * width, width, 1)
    A, linear, W, w, lamda = flat.split(sizes)
    A, linear, W = A.view(2, width, rank, D), linear.view(2, D + 1, width), W.view(width, width)
    q0, q1 = ((A[i] @ x).square().sum(1) + x @ linear[i, :-1] + linear[i, -1] for i in range(2))
    return w @ torch.logaddexp(q0 @ W + q1, flat.new_zeros(())) + (lamda[0] + RIDGE) * (x @ x) / 2


literal_map = torch.func.vmap(torch.func.grad(literal, 1), (None, 0, None, None, None))
literal_hessian = torch.func.vmap(torch.func.jacrev(torch.func.grad(literal, 1), 1), (None, 0, None, None, None))


@given(shapes)
@settings(max_examples=50, deadline=None)
def test_map_and_hessian_are_what_autodiff_finds(shape: tuple[int, int, int, int]) -> None:
    net, x = net_and_points(*shape)
    response = net.pack().respond(x)
    torch.testing.assert_close(response.mapped, literal_map(net.flat, x, *shape[1:]), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(response.hessian(), literal_hessian(net.flat, x, *shape[1:]), rtol=1e-9, atol=1e-9)


@given(shapes)
@settings(max_examples=30, deadline=None)
def test_backward_pass_is_what_autodiff_finds(shape: tuple[int, int, int, int]) -> None:
    net, x = net_and_points(*shape)
    generator = torch.Generator().manual_seed(1)
    g = torch.randn(x.shape, generator=generator, dtype=torch.float64)
    P = torch.randn(*x.shape, x.shape[1], generator=generator, dtype=torch.float64)
    P = P + P.mT

    def total(flat: Tensor) -> Tensor:
        return (g * literal_map(flat, x, *shape[1:])).sum() + (P * literal_hessian(flat, x, *shape[1:])).sum()

    expected = torch.func.grad(total)(net.flat)
    packed = net.pack()
    packed.respond(x).pull_back(g, P)
    torch.testing.assert_close(packed.gradient(), expected, rtol=1e-8, atol=1e-8)
    # Without a Hessian, whose kernels are skipped.
    packed = net.pack()
    packed.respond(x).pull_back(g)
    map_gradient = torch.func.grad(lambda flat: (g * literal_map(flat, x, *shape[1:])).sum())(net.flat)
    torch.testing.assert_close(packed.gradient(), map_gradient, rtol=1e-8, atol=1e-8)
    # In chunks, in another order: the same sum.
    packed = net.pack()
    for part in (slice(4, 6), slice(0, 4)):
        packed.respond(x[part]).pull_back(g[part], P[part])
    torch.testing.assert_close(packed.gradient(), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("D", "width", "count"), [(1, 3, 1), (3, 5, 17), (5, 300, 37)])
def test_way_back_from_log_det_is_what_autodiff_finds(D: int, width: int, count: int) -> None:
    """There are more particles and more units than are processed at a time."""
    generator = torch.Generator().manual_seed(2)
    net = ConvexNet(D, width, 2, generator, torch.float64)
    net.flat.normal_(std=0.3, generator=generator)
    net.clamp_()
    net.lamda.fill_(0.5)
    x, g = torch.randn(2, count, D, generator=generator, dtype=torch.float64)

    def total(flat: Tensor) -> Tensor:
        log_det = torch.linalg.slogdet(literal_hessian(flat, x, D, width, 2)).logabsdet
        return (g * literal_map(flat, x, D, width, 2)).sum() - 0.7 * log_det.sum()

    packed = net.pack()
    packed.respond(x).pull_back(g, log_det=-0.7)
    torch.testing.assert_close(packed.gradient(), torch.func.grad(total)(net.flat), rtol=1e-8, atol=1e-8)


@given(shapes, st.floats(0.1, 3))
@settings(max_examples=50, deadline=None)
def test_clamped_network_is_convex(shape: tuple[int, int, int, int], spread: float) -> None:
    net, x = net_and_points(*shape, spread=spread)
    assert net.W.min() >= 0 < net.w.min()
    hessian = net.pack().respond(x).hessian()
    torch.testing.assert_close(hessian, hessian.mT)
    values = torch.linalg.eigvalsh(hessian)
    # The ridge, less what eigenvalues of this size are rounded by.
    assert bool((values[:, 0] > 0.99 * RIDGE - 1e-12 * values[:, -1]).all())


@given(shapes)
@settings(max_examples=30, deadline=None)
def test_permuted_particles_are_mapped_to_permuted_ones(shape: tuple[int, int, int, int]) -> None:
    net, x = net_and_points(*shape)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    mapped, log_det = net.push(x)
    permuted = net.push(x[order])
    torch.testing.assert_close(permuted[0], mapped[order])
    torch.testing.assert_close(permuted[1], log_det[order])


@given(shapes)
@settings(max_examples=20, deadline=None)
def test_log_det_is_that_of_the_maps_jacobian(shape: tuple[int, int, int, int]) -> None:
    net, x = net_and_points(*shape)
    net.lamda.fill_(0.5)
    expected = torch.linalg.slogdet(literal_hessian(net.flat, x, *shape[1:])).logabsdet
    torch.testing.assert_close(net.push(x)[1], expected, rtol=1e-7, atol=1e-7)


def test_first_map_is_nearly_the_identity() -> None:
    generator = torch.Generator().manual_seed(0)
    net = ConvexNet(9, 128, 5, generator, torch.float32)
    x = torch.randn(100, 9, generator=generator)
    mapped, log_det = net.push(x)
    assert float((mapped - x).norm(dim=1).max()) < 0.1
    assert float(log_det.abs().max()) < 0.3
