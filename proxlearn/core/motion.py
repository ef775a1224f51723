"""The motion of the particles: one Euler-Maruyama step of the noisy gradient flow."""

from __future__ import annotations

from torch import Tensor

from proxlearn.core.hyper import Hyper

__all__ = ["euler_maruyama"]


def euler_maruyama(theta: Tensor, gradient: Tensor, hyper: Hyper, noise: Tensor) -> Tensor:
    """Return theta - h gradient + noise_scale sqrt(2 h / beta) noise; ``noise`` is standard normal.

    ``gradient`` and ``noise`` have the shape of theta.
    """
    return theta - hyper.h * gradient + hyper.diffusion * noise
