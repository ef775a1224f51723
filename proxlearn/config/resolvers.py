"""Resolvers of the interpolations ``${proxlearn....:}`` that the recipes use."""

from __future__ import annotations

from omegaconf import OmegaConf


def register_resolvers() -> None:
    """Register the resolvers; must be called before a recipe is resolved."""
    OmegaConf.register_new_resolver("proxlearn.reading", resolve_reading, replace=True)


def resolve_reading(loss: str | None) -> str:
    """Return the default of drift and prox_potential: the paper's reading exists for the quadratic loss only."""
    return "paper" if loss == "quadratic" else "first_variation"
