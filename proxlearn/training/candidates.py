"""Candidate settings of the selection, scaled according to the loss of a problem."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any

from proxlearn.core.functionals.risk import Risk
from proxlearn.core.losses import Loss, quadratic
from proxlearn.training.settings import Settings

CANDIDATES: tuple[dict[str, Any], ...] = tuple(
    {"init_scale": s, "h": h, "epsilon": 1.0, "beta": 1e4, "confinement": {"w": strength}}
    for s, h in ((1.0, 0.8), (1.0, 0.3), (1.0, 0.1))
    for strength in (8e-3, 8e-2, 4e-1)
)
"""The candidates for the quadratic loss, chosen for standardised features and targets of order 1."""


def candidates_of(problem: Risk, candidates: tuple[dict[str, Any], ...] = CANDIDATES) -> tuple[dict[str, Any], ...]:
    """Return the candidates for the problem's loss; if theta has no block ``w``, their confinement is 0."""
    scaled = scaled_candidates(problem.loss, candidates)
    if "w" in problem.blocks:
        return scaled
    return tuple({**values, "confinement": 0.0} for values in scaled)


def scaled_candidates(loss: Loss, candidates: tuple[dict[str, Any], ...] = CANDIDATES) -> tuple[dict[str, Any], ...]:
    """Return the candidates for a loss, with h, beta and confinement scaled by the smoothness of the loss.

    Dividing the loss and the confinement by c and multiplying h and beta by c does not change the trajectories.
    With this scaling, losses that differ only by a factor have equivalent candidates.
    """
    factor = quadratic.smoothness / loss.smoothness

    def scale(name: str, value: Any) -> Any:
        if name == "confinement":
            return {block: strength / factor for block, strength in value.items()}
        return factor * value if name in ("h", "beta") else value

    return tuple({name: scale(name, value) for name, value in values.items()} for values in candidates)


def kept_fields(base: Settings, fixed: Collection[str]) -> set[str]:
    """Return the names of the fields that selection does not change: ``fixed``, and non-default fields of ``base``."""
    defaults = Settings()
    return {field.name for field in fields(base) if getattr(base, field.name) != getattr(defaults, field.name)} | {
        *fixed
    }


def distinct_settings(base: Settings, candidates: tuple[dict[str, Any], ...], fixed: Collection[str]) -> list[Settings]:
    """Return ``base`` with the values of each candidate, except for the ``kept_fields``; duplicates are removed."""
    kept, distinct = kept_fields(base, fixed), []
    for values in candidates:
        settings = replace(base, **{name: value for name, value in values.items() if name not in kept})
        # Settings with a confinement per block are not hashable.
        if settings not in distinct:
            distinct.append(settings)
    return distinct
