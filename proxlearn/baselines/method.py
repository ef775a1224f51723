"""The interface of a compared method: fit on scaled rows, then predict probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Preset = Literal["light", "paper"]
Block = Literal["network", "sampler", "reference"]
Predictor = Callable[[np.ndarray], np.ndarray]
"""Rows, n x d, scaled like those of the fit -> probability of the class +1, n."""


@dataclass(frozen=True)
class Request:
    """Arguments of a fit besides its rows."""

    dataset: str
    seed: int
    preset: Preset = "light"
    threads: int = 1
    temperature: float = 1.0
    """Weight of the entropy relative to the mean potential, for a posterior sampler."""
    trial: bool = False
    """Take one step of everything, so that all code is compiled before a fit is timed."""
    progress: Callable[[str], None] = lambda text: None


@dataclass(frozen=True)
class FittedMethod:
    """The result of a fit: a predictor, and notes on how the fit went."""

    probability: Predictor
    notes: dict[str, Any] = field(default_factory=dict)
    """Numbers stored with the scores: steps, a ledger of the functional, effective sample size."""


FitFunction = Callable[[np.ndarray, np.ndarray, Request], FittedMethod]
"""(X, n x d; y, n, in {-1, +1}; request) -> fitted method. The same inputs give the same result."""
SettingsFunction = Callable[[str, Preset, str], Mapping[str, Any]]
"""(name of the fit function, preset, dataset) -> every number and option of the fit, as plain values.

A method's module has one called ``settings``, unless its methods have no settings."""


@dataclass(frozen=True)
class Method:
    """A compared method, one row of the tables."""

    name: str
    title: str
    block: Block
    module: str
    """Its fit function as ``module:function``; imported when it is first used."""
    scaling: str | None = None
    """Feature scaling, where the method is defined for features of that scale; None: the scaling of the protocol."""
    only: tuple[str, ...] = ()
    """The datasets that the method applies to; empty: every dataset of two classes."""
    revision: int = 1
    """Raised whenever a change of the code changes the method's results; its stored cells are then computed again."""
