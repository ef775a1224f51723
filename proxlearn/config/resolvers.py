"""The resolver of the interpolation ``${proxlearn.reading:...}``, which the recipes use."""

from __future__ import annotations

from omegaconf import OmegaConf


def register_resolvers() -> None:
    """Register the resolver; this function must be called before a recipe is resolved."""
    OmegaConf.register_new_resolver("proxlearn.reading", resolve_reading, replace=True)


def resolve_reading(loss: str | None) -> str:
    """Return the default of drift and prox_potential; the paper's reading exists only for the quadratic loss."""
    return "paper" if loss == "quadratic" else "first_variation"
