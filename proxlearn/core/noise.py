"""Random numbers of a step, drawn with a counter-based generator, and the noisy gradient step that uses them.

Philox4x32-10 (Salmon et al. 2011) turns a 64-bit key and a counter into four random words. Each step has one key, drawn
from the run's generator, and each group of numbers has its own counter. The numbers can therefore be drawn in parallel
for blocks of particles, the result depends neither on the number of threads nor on the device, and the state of the
run's generator is the complete random state of the run.

This module computes the numbers in plain torch, on any device; core/fused/random_numbers.py computes the same numbers
on the CPU up to rounding: the words are identical, but the logarithms, sines and cosines differ by rounding.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from proxlearn.core.hyper import Hyper

__all__ = ["euler_maruyama"]


def euler_maruyama(theta: Tensor, gradient: Tensor, hyper: Hyper, noise: Tensor) -> Tensor:
    """Return theta - h gradient + noise_scale sqrt(2 h / beta) noise; ``noise`` is standard normal.

    ``gradient`` and ``noise`` have the shape of theta.
    """
    return theta - hyper.h * gradient + hyper.diffusion * noise


MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
WORD = 0xFFFFFFFF
NORMAL, UNIFORM = 0, 1
"""Third word of the counter, which separates the normal numbers of a step from the uniform ones."""


def draw_key(generator: torch.Generator) -> tuple[int, int]:
    """Draw the key of one step, two 32-bit words, from the generator."""
    low, high = torch.randint(0, 2**32, (2,), generator=generator, device=generator.device).tolist()
    return low, high


def philox(key: tuple[int, int], groups: int, stream: int, device: torch.device | str) -> tuple[Tensor, ...]:
    """Return four random 32-bit words per counter, as four int64 tensors of length ``groups``."""
    index = torch.arange(groups, dtype=torch.int64, device=device)
    a, b = index & WORD, index >> 32
    c, d = torch.full_like(index, stream), torch.zeros_like(index)
    k0, k1 = key
    for _ in range(ROUNDS):
        high_a, low_a = _multiply(a, MULTIPLIERS[0])
        high_c, low_c = _multiply(c, MULTIPLIERS[1])
        a, b, c, d = high_c ^ b ^ k0, low_c, high_a ^ d ^ k1, low_a
        k0, k1 = (k0 + KEY_STEPS[0]) & WORD, (k1 + KEY_STEPS[1]) & WORD
    return a, b, c, d


def _multiply(x: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """Return the high and the low 32-bit word of x times ``factor`` without leaving the range of int64."""
    low = (x & 0xFFFF) * factor
    middle = (x >> 16) * factor + (low >> 16)
    return (middle >> 16) & WORD, ((middle & 0xFFFF) << 16) | (low & 0xFFFF)


def normal(key: tuple[int, int], shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """Return standard normal numbers (Box-Muller): four per counter in float32, two in float64."""
    count = math.prod(shape)
    words = philox(key, -(-count // (4 if dtype == torch.float32 else 2)), NORMAL, device)
    if dtype == torch.float32:
        pairs = [_box_muller(words[k], words[k + 1], 32, dtype) for k in (0, 2)]
        numbers = torch.stack([part for pair in pairs for part in pair], dim=1)
    else:
        # The radius uses 53 bits and the angle 52 bits, so that the conversion to float64 does not round them.
        radius, angle = (words[0] << 21) ^ (words[1] >> 11), (words[2] << 20) ^ (words[3] >> 12)
        numbers = torch.stack(_box_muller(radius, angle, None, dtype), dim=1)
    return numbers.reshape(-1)[:count].reshape(shape)


def _box_muller(radius: Tensor, angle: Tensor, bits: int | None, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    radius_bits, angle_bits = (bits, bits) if bits is not None else (53, 52)
    u = (radius.to(dtype) + 0.5) * 2.0**-radius_bits
    r = torch.sqrt(-2 * torch.log(u))
    # The two upper bits select the quadrant, and the others the position within it.
    quadrant = angle >> (angle_bits - 2)
    place = (angle & ((1 << (angle_bits - 2)) - 1)).to(dtype) * 2.0 ** -(angle_bits - 2) - 0.5
    sine, cosine = torch.sin(place * (math.pi / 2)), torch.cos(place * (math.pi / 2))
    odd, negative = (quadrant & 1) == 1, quadrant >= 2
    x, y = torch.where(odd, -sine, cosine), torch.where(odd, cosine, sine)
    sign = torch.where(negative, -r, r)
    return sign * x, sign * y


def uniform(key: tuple[int, int], count: int, dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """Return uniform random numbers on (0, 1] with 24 bits, so that float32 and float64 represent them exactly."""
    words = torch.stack(philox(key, -(-count // 4), UNIFORM, device), dim=1).reshape(-1)[:count]
    return ((words >> 8) + 1).to(dtype) * 2.0**-24
