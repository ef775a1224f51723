"""The interface and the registry of the compared methods.

To add a method, write a module with a fit function (see `FitFunction`) and add the method to ``_ALL``. If the results
of a method change, increase its ``revision``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from proxlearn.errors import InputError, did_you_mean

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
    """A compared method, which is shown as a row of the tables."""

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


OURS = "proxlearn"
"""Name of the method with which all others are compared."""

_ALL = (
    Method(
        OURS, "ProxLearn (proximal weights)", "network", "proxlearn.baselines.proxlearn_networks:proximal", revision=5
    ),
    Method(
        "uniform",
        "noisy gradient descent (uniform weights)",
        "network",
        "proxlearn.baselines.proxlearn_networks:uniform",
        revision=5,
    ),
    Method(
        "fisher_rao", "Fisher-Rao weights", "network", "proxlearn.baselines.proxlearn_networks:fisher_rao", revision=5
    ),
    Method("adam", "Adam", "network", "proxlearn.baselines.adam:fit", revision=2),
    Method("jko_icnn", "JKO-ICNN", "sampler", "proxlearn.baselines.jko_icnn:fit"),
    Method("swgf", "SWGF + RealNVP", "sampler", "proxlearn.baselines.swgf:fit"),
    Method("svgd", "SVGD", "sampler", "proxlearn.baselines.svgd:fit"),
    Method("langevin", "unadjusted Langevin", "sampler", "proxlearn.baselines.langevin_sampler:fit"),
    Method("majority", "majority class", "reference", "proxlearn.baselines.reference_classifiers:majority"),
    Method("logistic", "logistic regression", "reference", "proxlearn.baselines.reference_classifiers:logistic"),
    Method("svm", "RBF-SVM", "reference", "proxlearn.baselines.reference_classifiers:svm"),
    Method("boosting", "gradient boosting", "reference", "proxlearn.baselines.reference_classifiers:boosting"),
    Method("bayes", "Bayes rule", "reference", "proxlearn.baselines.reference_classifiers:bayes", "none", ("twonorm",)),
)
METHODS: dict[str, Method] = {method.name: method for method in _ALL}
"""Methods by name, in the order of the tables."""


def find_method(name: str) -> Method:
    """Return the method called ``name``; raise InputError if no method has this name."""
    if name not in METHODS:
        raise InputError(f"unknown method `{name}`", did_you_mean(name, METHODS))
    return METHODS[name]


def load_fit(method: Method) -> FitFunction:
    """Import and return the fit function of a method; the import may be slow."""
    module, _, function = method.module.partition(":")
    fit: FitFunction = getattr(importlib.import_module(module), function)
    return fit


def method_settings(method: Method, preset: Preset, dataset: str) -> dict[str, Any]:
    """Return the settings of a method for a preset and a dataset; empty if the method has no settings."""
    module, _, function = method.module.partition(":")
    settings: SettingsFunction | None = getattr(importlib.import_module(module), "settings", None)
    return {} if settings is None else dict(settings(function, preset, dataset))
