"""The interface of the compared methods: a method is fitted to scaled rows and then predicts probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Preset = Literal["light", "paper"]
Block = Literal["network", "sampler", "reference"]
Predictor = Callable[[np.ndarray], np.ndarray]
"""Function that maps rows (n x d, scaled like the training rows) to the probabilities of the class +1 (n)."""


@dataclass(frozen=True)
class Request:
    """The arguments of a fit other than the training rows."""

    dataset: str
    seed: int
    preset: Preset = "light"
    threads: int = 1
    temperature: float = 1.0
    """Weight of the entropy relative to the mean potential, for a posterior sampler."""
    trial: bool = False
    """Whether the fit takes only one step of each kind, so that all code is compiled before a fit is timed."""
    progress: Callable[[str], None] = lambda text: None


@dataclass(frozen=True)
class FittedMethod:
    """The result of a fit: a predictor, and notes about the fit."""

    probability: Predictor
    notes: dict[str, Any] = field(default_factory=dict)
    """Numbers that are stored with the scores, such as the number of steps or the effective sample size."""


FitFunction = Callable[[np.ndarray, np.ndarray, Request], FittedMethod]
"""Function that fits a method to rows X (n x d) and labels y in {-1, +1}; equal arguments give equal results."""
SettingsFunction = Callable[[str, Preset, str], Mapping[str, Any]]
"""Function that maps a fit function's name, a preset and a dataset to all settings of the fit, as plain values.

The module of a method defines it as ``settings``, unless the method has no settings."""


@dataclass(frozen=True)
class Method:
    """A compared method, which is one row of each table."""

    name: str
    title: str
    block: Block
    module: str
    """The fit function as ``module:function``; it is imported when it is first used."""
    scaling: str | None = None
    """Scaling of the features, if the method requires a specific one; None for the scaling of the protocol."""
    only: tuple[str, ...] = ()
    """Names of the datasets to which the method applies; if empty, it applies to every dataset with two classes."""
    revision: int = 1
    """Revision of the results, increased whenever a code change alters them; stored results are then computed again."""
