"""What every method of the comparison offers: fit on scaled rows, then answer with probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Preset = Literal["light", "paper"]
Block = Literal["network", "sampler", "reference"]
Predictor = Callable[[np.ndarray], np.ndarray]
"""Rows, n x d, scaled as those of the fit -> probability of the class +1, n."""


@dataclass(frozen=True)
class Request:
    """How a method is asked to fit, besides its rows."""

    dataset: str
    seed: int
    preset: Preset = "light"
    threads: int = 1
    temperature: float = 1.0
    """Of a posterior sampler: the weight of the entropy beside the mean potential."""
    trial: bool = False
    """One step of everything: to have it compiled before a clock runs."""
    progress: Callable[[str], None] = lambda text: None


@dataclass(frozen=True)
class FittedMethod:
    """A method's answer: how to predict, and what it has to say of its own course."""

    probability: Predictor
    notes: dict[str, Any] = field(default_factory=dict)
    """Figures worth keeping beside the scores: steps, a ledger of the functional, effective sample size."""


Fit = Callable[[np.ndarray, np.ndarray, Request], FittedMethod]
"""(X, n x d; y, n, in {-1, +1}; request) -> fitted. The same inputs give the same answer."""
SettingsOf = Callable[[str, Preset, str], Mapping[str, Any]]
"""(name of the fit's function, preset, dataset) -> every number and option that the fit is made with, as plain values.

A method's module has one called ``settings``, unless its methods have nothing to set."""


@dataclass(frozen=True)
class Method:
    """One row of a table."""

    name: str
    title: str
    block: Block
    module: str
    """Where its ``fit`` is, as ``module:function``; imported when it is first used."""
    scaling: str | None = None
    """Of the features, where the method is a statement on features of that scale; None: the protocol's."""
    only: tuple[str, ...] = ()
    """The datasets that it can be asked about; none: all of two classes."""
    revision: int = 1
    """Raised whenever a change of the code changes the method's results; its stored cells are then computed again."""
