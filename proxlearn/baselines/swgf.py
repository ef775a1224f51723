"""SWGF (Bonet et al. 2022): the sliced-Wasserstein gradient flow with normalising flows (RealNVP).

Step k starts from the normalising flow of step k - 1. It uses a new Adam optimiser to minimise, over normalising flows
x = g(z) with z ~ N(0, I),

    SW2^2(x, x_prev) + 2 h (mean V(x) + T mean[log N(z) - log det])

SW2^2 is the mean, over random directions, of the squared differences between sorted projections. Its gradient needs no
automatic differentiation: along each direction, a particle is attracted by the particle of x_prev with the same rank.

The published notebook sums V over its 1024 particles, but averages the entropy. This is equivalent to averaging V and
using 1024 times the published h at the temperature 1/1024. The presets here use this larger h; the temperature of a
request is 1 by default.

Differences from the published code: the first flow is exactly the identity; x_prev is drawn from a pool that is
computed once per step instead of at every iteration; and the gradient of V uses all rows. The preset ``light`` uses one
h for all datasets and decreases the learning rate within each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, linear

from proxlearn.baselines.logistic_target import Potential
from proxlearn.baselines.registry import FittedMethod, Request
from proxlearn.baselines.sampler import (
    NUM_SAMPLES,
    Ledger,
    SampleResult,
    append_ledger_row,
    fit_sampler,
    log_normal_density,
    make_settings_function,
    request_settings,
)
from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.fused.vector_math import sortable_int

HIDDEN_LAYERS = 3
SLOPE = 0.2
"""Slope of the LeakyReLU below zero."""
BLOCKS = 2

Layer = tuple[Tensor, Tensor]
"""Weights (outputs x inputs) and biases of a layer."""


class RealNvp:
    """A normalising flow; each block maps x2 to x2 exp(s(x1)) + t(x1), then reverses the coordinates.

    x1 and x2 are the two halves of the coordinates. The last layers of s and t are initialised with zeros, so that the
    initial flow is the identity (after two reversals) and its density is exactly N(0, I).
    """

    def __init__(self, dim: int, width: int, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> None:
        self.dim, self.kept = dim, dim // 2
        sizes = [self.kept, *[width] * HIDDEN_LAYERS, dim - self.kept]
        self.blocks = [[_init_layers(sizes, generator, dtype) for _ in "st"] for _ in range(BLOCKS)]

    @property
    def parameters(self) -> list[Tensor]:
        """All trainable tensors."""
        return [tensor for block in self.blocks for net in block for layer in net for tensor in layer]

    def __call__(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return x = g(z) and log |det dg/dz| for each row of z."""
        x, log_det = z, z.new_zeros(len(z))
        for s_net, t_net in self.blocks:
            x1, x2 = x[:, : self.kept], x[:, self.kept :]
            s = _apply_layers(s_net, x1)
            x = torch.cat((x1, x2 * s.exp() + _apply_layers(t_net, x1)), dim=1).flip(1)
            log_det = log_det + s.sum(1)
        return x, log_det

    def inverse(self, x: Tensor) -> Tensor:
        """Return the z for which g(z) = x."""
        for s_net, t_net in reversed(self.blocks):
            flipped = x.flip(1)
            x1, x2 = flipped[:, : self.kept], flipped[:, self.kept :]
            x = torch.cat((x1, (x2 - _apply_layers(t_net, x1)) * torch.exp(-_apply_layers(s_net, x1))), dim=1)
        return x


def _init_layers(sizes: Sequence[int], generator: torch.Generator, dtype: torch.dtype) -> list[Layer]:
    """Return layers with uniformly drawn parameters of variance 1/(3n) for n inputs; the last layer is zero."""
    layers: list[Layer] = []
    for inputs, outputs in pairwise(sizes):
        bound = inputs**-0.5 if len(layers) < HIDDEN_LAYERS else 0.0
        weights = torch.empty(outputs, inputs, dtype=dtype).uniform_(-bound, bound, generator=generator)
        biases = torch.empty(outputs, dtype=dtype).uniform_(-bound, bound, generator=generator)
        layers.append((weights.requires_grad_(), biases.requires_grad_()))
    return layers


def _apply_layers(layers: Sequence[Layer], x: Tensor) -> Tensor:
    for weights, biases in layers[:-1]:
        x = leaky_relu(linear(x, weights, biases), SLOPE, inplace=True)
    return linear(x, *layers[-1])


RADIX = 256


@compile_pass()
def subtract_equal_ranks(x, y):  # type: ignore[no-untyped-def]
    """Subtract from each number in x, in place, the number of equal rank in the same row of y.

    The rows of y must be in ascending order. The ranks in x are computed by a stable radix sort, which begins with the
    least significant digit and is several times faster than a comparison sort.
    """
    rows, columns = x.shape
    bits = 8 * x.itemsize
    places = bits // 8
    top = np.uint64(1) << np.uint64(bits - 1)
    keys, sorted_keys = np.empty(columns, np.uint64), np.empty(columns, np.uint64)
    order, sorted_order = np.empty(columns, np.int64), np.empty(columns, np.int64)
    counts = np.empty((places, RADIX), np.int64)
    for row in range(rows):
        counts[:] = 0
        for b in range(columns):
            # The keys are unsigned integers in the same order as the floating-point numbers.
            key = (np.uint64(np.int64(sortable_int(x[row, b]))) ^ top) & ((top - np.uint64(1)) | top)
            keys[b], order[b] = key, b
            for place in range(places):
                counts[place, (key >> np.uint64(8 * place)) & np.uint64(RADIX - 1)] += 1
        for place in range(places):
            start = 0
            for digit in range(RADIX):
                count = counts[place, digit]
                counts[place, digit] = start
                start += count
            for b in range(columns):
                digit = (keys[b] >> np.uint64(8 * place)) & np.uint64(RADIX - 1)
                position = counts[place, digit]
                counts[place, digit] = position + 1
                sorted_keys[position], sorted_order[position] = keys[b], order[b]
            keys, sorted_keys = sorted_keys, keys
            order, sorted_order = sorted_order, order
        for rank in range(columns):
            x[row, order[rank]] -= y[row, rank]


REPORT_EVERY = 50


@dataclass(frozen=True)
class SwgfSettings:
    """The settings of SWGF, apart from the temperature."""

    h: float
    steps: int
    lr: float
    iterations: int = 500
    width: int = 512
    batch: int = 1024
    directions: int = 1000
    pool: int = 65536
    lr_falls: bool = False
    """Whether the learning rate decreases linearly to zero within each step, so that training converges despite a large
    initial rate."""


LIGHT = SwgfSettings(
    h=0.1, steps=5, lr=5e-3, iterations=120, width=64, batch=256, directions=100, pool=8192, lr_falls=True
)
PAPER = {
    "banana": SwgfSettings(h=102.4, steps=5, lr=1e-4),
    "diabetes": SwgfSettings(h=5.12e-3, steps=10, lr=5e-4),
    "twonorm": SwgfSettings(h=1.024e-5, steps=20, lr=1e-4),
}
settings = make_settings_function(LIGHT, PAPER)


def fit(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    """Sample the posterior given the rows, and return a predictor that averages over the samples."""
    settings = request_settings(request, LIGHT, PAPER)
    return fit_sampler(
        X,
        y,
        request,
        lambda target, generator: flow(target, settings, request.temperature, generator, request.progress),
    )


def flow(
    target: Potential,
    settings: SwgfSettings,
    temperature: float,
    generator: torch.Generator,
    progress: Callable[[str], None] = lambda text: None,
) -> SampleResult:
    """Run all steps, starting from N(0, I); return samples of the final flow, and notes with the ledger."""
    nvp = RealNvp(target.dim, settings.width, generator)
    z = torch.randn(NUM_SAMPLES, target.dim, generator=generator)
    ledger: Ledger = []
    for k in range(settings.steps + 1):
        x, log_det = nvp(z)
        append_ledger_row(target, x, log_normal_density(z) - log_det, temperature, ledger)
        if k < settings.steps:

            def report(iteration: int, k: int = k) -> None:
                progress(f"SWGF step {k + 1}/{settings.steps}, iteration {iteration}/{settings.iterations}")

            step(target, nvp, settings, temperature, generator, report)
    return x, {"steps": settings.steps, "iterations": settings.steps * settings.iterations, "ledger": ledger}


def step(
    target: Potential,
    nvp: RealNvp,
    settings: SwgfSettings,
    temperature: float,
    generator: torch.Generator,
    report: Callable[[int], None] = lambda iteration: None,
) -> None:
    """Train the normalising flow ``nvp`` in place for one implicit step of size h."""

    def normal(count: int) -> Tensor:
        return torch.randn(count, target.dim, generator=generator)

    pool = torch.cat([nvp(normal(settings.batch))[0] for _ in range(-(-settings.pool // settings.batch))])
    adam = torch.optim.Adam(nvp.parameters, lr=settings.lr, fused=True)
    for iteration in range(settings.iterations):
        if iteration % REPORT_EVERY == 0:
            report(iteration)
        if settings.lr_falls:
            adam.param_groups[0]["lr"] = settings.lr * (1 - iteration / settings.iterations)
        with torch.enable_grad():
            x, log_det = nvp(normal(settings.batch))
        previous = pool[torch.randint(len(pool), (settings.batch,), generator=generator)]
        directions = torch.nn.functional.normalize(normal(settings.directions))
        at = x.detach()
        x_gradient = sliced_gradient(at, previous, directions) + 2 * settings.h / settings.batch * target.gradient(at)
        adam.zero_grad()
        log_det_gradient = torch.full_like(log_det, -2 * settings.h * temperature / settings.batch)
        torch.autograd.backward((x, log_det), (x_gradient, log_det_gradient))
        adam.step()


def sliced_distance(x: Tensor, y: Tensor, directions: Tensor) -> Tensor:
    """Return the squared sliced-Wasserstein distance of two clouds of equal size, for unit vectors ``directions``."""
    return ((directions @ x.T).sort(1)[0] - (directions @ y.T).sort(1)[0]).square().mean()


def sliced_gradient(x: Tensor, y: Tensor, directions: Tensor) -> Tensor:
    """Return the gradient of ``sliced_distance`` with respect to x as a B x D tensor."""
    # numpy sorts several times faster than torch on a CPU.
    projected, sorted_y = directions @ x.T, np.sort((directions @ y.T).numpy(), axis=1)
    subtract_equal_ranks(projected.numpy(), sorted_y)
    return projected.T @ directions * (2 / projected.numel())
