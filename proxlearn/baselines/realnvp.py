"""RealNVP, the normalising flow of SWGF: affine couplings with closed-form inverse and Jacobian determinant."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, linear

HIDDEN_LAYERS = 3
SLOPE = 0.2
"""Slope of the LeakyReLU below zero."""
BLOCKS = 2

Layer = tuple[Tensor, Tensor]
"""Weights (outputs x inputs) and biases of a layer."""


class RealNvp:
    """A flow whose blocks map x2 to x2 exp(s(x1)) + t(x1) and then reverse the order of the coordinates.

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
    """Return layers with uniformly drawn parameters of variance 1 / (3 inputs); the last layer is zero."""
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
