"""Every method of the comparison by name. A new one: a module with a ``fit`` (see method.py), and a line here.

A change of what a method computes raises its ``revision`` here.
"""

from __future__ import annotations

import importlib
from typing import Any

from proxlearn.baselines.method import Fit, Method, Preset, SettingsOf
from proxlearn.errors import InputError, did_you_mean

OURS = "proxlearn"
"""The row that all others are compared with."""

_ALL = (
    Method(OURS, "ProxLearn (proximal weights)", "network", "proxlearn.baselines.networks:proximal"),
    Method("uniform", "noisy gradient descent (uniform weights)", "network", "proxlearn.baselines.networks:uniform"),
    Method("fisher_rao", "Fisher-Rao weights", "network", "proxlearn.baselines.networks:fisher_rao"),
    Method("adam", "Adam", "network", "proxlearn.baselines.adam:fit"),
    Method("jko_icnn", "JKO-ICNN", "sampler", "proxlearn.baselines.jko_icnn:fit"),
    Method("swgf", "SWGF + RealNVP", "sampler", "proxlearn.baselines.swgf:fit"),
    Method("svgd", "SVGD", "sampler", "proxlearn.baselines.svgd:fit"),
    Method("langevin", "unadjusted Langevin", "sampler", "proxlearn.baselines.langevin:fit"),
    Method("majority", "majority class", "reference", "proxlearn.baselines.references:majority"),
    Method("logistic", "logistic regression", "reference", "proxlearn.baselines.references:logistic"),
    Method("svm", "RBF-SVM", "reference", "proxlearn.baselines.references:svm"),
    Method("boosting", "gradient boosting", "reference", "proxlearn.baselines.references:boosting"),
    Method("bayes", "Bayes rule", "reference", "proxlearn.baselines.references:bayes", "none", ("twonorm",)),
)
METHODS: dict[str, Method] = {method.name: method for method in _ALL}
"""In the order of the tables."""


def method(name: str) -> Method:
    if name not in METHODS:
        raise InputError(f"no method `{name}`", did_you_mean(name, METHODS))
    return METHODS[name]


def fit_of(method: Method) -> Fit:
    """The method's function; its module may import heavy packages."""
    module, _, function = method.module.partition(":")
    found: Fit = getattr(importlib.import_module(module), function)
    return found


def settings_of(method: Method, preset: Preset, dataset: str) -> dict[str, Any]:
    """What the method is set to for a preset and a dataset; empty where nothing can be set."""
    module, _, function = method.module.partition(":")
    settings: SettingsOf | None = getattr(importlib.import_module(module), "settings", None)
    return {} if settings is None else dict(settings(function, preset, dataset))
