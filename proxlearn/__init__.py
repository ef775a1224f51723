"""Proximal mean field learning: a two-layer network as a weighted cloud of particles."""

__version__ = "0.1.0"
