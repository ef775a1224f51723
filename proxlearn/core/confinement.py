"""The confinement R(theta) = (lambda / 2) |theta|^2, with one lambda for all coordinates or one per block of theta.

The confinement prevents the noise from spreading the particles without limit; mean-field Langevin theory
requires a confinement for a stationary state to exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from proxlearn.errors import InputError, did_you_mean

__all__ = ["confinement_strengths"]

Confinement = float | Mapping[str, float]
"""The confinement strength lambda: one number for all coordinates, or one per block (0 for blocks that
are not named)."""


def confinement_strengths(confinement: Confinement, blocks: Mapping[str, int]) -> Tensor | None:
    """Return the strength lambda of every coordinate, shape (p,) in float64, or None if all strengths are 0."""
    if isinstance(confinement, Mapping):
        for name in confinement:
            if name not in blocks:
                raise InputError(
                    f"confinement contains `{name}`, which is not a block of theta", did_you_mean(name, blocks)
                )
        by_block = {name: _strength(confinement.get(name, 0.0)) for name in blocks}
    else:
        by_block = dict.fromkeys(blocks, _strength(confinement))
    for name, strength in by_block.items():
        if not 0 <= strength < float("inf"):
            raise InputError(f"the confinement of `{name}` cannot be {strength:g}", "choose a finite number >= 0")
    if not any(by_block.values()):
        return None
    return torch.cat([torch.full((blocks[name],), by_block[name], dtype=torch.float64) for name in blocks])


def _strength(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        problem = f"confinement is {value!r:.100}, not a number"
        raise InputError(problem, "give one number >= 0, or a mapping from blocks to numbers, such as {'w': 0.1}")
    return float(value)
