"""The registry of the compared methods by name.

To add a method, write a module with a fit function (see method.py) and add a line here. If the results of a method
change, increase its ``revision``.
"""

from __future__ import annotations

import importlib
from typing import Any

from proxlearn.baselines.method import FitFunction, Method, Preset, SettingsFunction
from proxlearn.errors import InputError, did_you_mean

OURS = "proxlearn"
"""Name of the method with which all others are compared."""

_ALL = (
    Method(OURS, "ProxLearn (proximal weights)", "network", "proxlearn.baselines.recursion:proximal", revision=4),
    Method(
        "uniform",
        "noisy gradient descent (uniform weights)",
        "network",
        "proxlearn.baselines.recursion:uniform",
        revision=4,
    ),
    Method("fisher_rao", "Fisher-Rao weights", "network", "proxlearn.baselines.recursion:fisher_rao", revision=4),
    Method("adam", "Adam", "network", "proxlearn.baselines.adam:fit", revision=2),
    Method("jko_icnn", "JKO-ICNN", "sampler", "proxlearn.baselines.jko_icnn:fit"),
    Method("swgf", "SWGF + RealNVP", "sampler", "proxlearn.baselines.swgf:fit"),
    Method("svgd", "SVGD", "sampler", "proxlearn.baselines.svgd:fit"),
    Method("langevin", "unadjusted Langevin", "sampler", "proxlearn.baselines.langevin:fit"),
    Method("majority", "majority class", "reference", "proxlearn.baselines.reference_classifiers:majority"),
    Method("logistic", "logistic regression", "reference", "proxlearn.baselines.reference_classifiers:logistic"),
    Method("svm", "RBF-SVM", "reference", "proxlearn.baselines.reference_classifiers:svm"),
    Method("boosting", "gradient boosting", "reference", "proxlearn.baselines.reference_classifiers:boosting"),
    Method("bayes", "Bayes rule", "reference", "proxlearn.baselines.reference_classifiers:bayes", "none", ("twonorm",)),
)
METHODS: dict[str, Method] = {find_method.name: find_method for find_method in _ALL}
"""Methods by name, in the order of the tables."""


def find_method(name: str) -> Method:
    """Return the method called ``name``; raise InputError if there is none."""
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
