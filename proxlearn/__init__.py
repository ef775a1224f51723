"""Proximal mean field learning: a two-layer network as a weighted cloud of particles.

Use the mathematics directly, without a run folder::

    import proxlearn as pl

    risk = pl.Risk(X, y, neuron=pl.neurons.Tanh(), loss=pl.losses.quadratic)
    cloud = pl.init(risk, N=1000, seed=0)
    for cloud, info in pl.iterate(risk, cloud, pl.Hyper(beta=0.05, h=1e-3, epsilon=1.0), steps=1000):
        ...

Train with checkpoints and metrics, as on the command line::

    run = pl.train("dataset=wdbc", "beta=0.05", "steps=2000")
    run = pl.load_run("outputs/wdbc/NAME")

``ProxLearnClassifier`` and ``ProxLearnRegressor`` are scikit-learn estimators.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proxlearn import losses, neurons
    from proxlearn.core.cloud import PointCloud
    from proxlearn.core.functionals.energy import Energy
    from proxlearn.core.functionals.functional import Functional
    from proxlearn.core.functionals.risk import Risk
    from proxlearn.core.hyper import Hyper
    from proxlearn.core.step import Info
    from proxlearn.errors import InputError, ProxlearnError, RunError
    from proxlearn.estimator import ProxLearnClassifier, ProxLearnRegressor
    from proxlearn.flow import init, iterate, step
    from proxlearn.run.observers import StepEvent
    from proxlearn.runs import Run, load_run, train

__all__ = [
    "Energy",
    "Functional",
    "Hyper",
    "Info",
    "InputError",
    "PointCloud",
    "ProxLearnClassifier",
    "ProxLearnRegressor",
    "ProxlearnError",
    "Risk",
    "Run",
    "RunError",
    "StepEvent",
    "__version__",
    "init",
    "iterate",
    "load_run",
    "losses",
    "neurons",
    "step",
    "train",
]
__version__ = "0.2.0"

_MODULES = {
    "proxlearn.core.cloud": ("PointCloud",),
    "proxlearn.core.functionals.energy": ("Energy",),
    "proxlearn.core.functionals.functional": ("Functional",),
    "proxlearn.core.functionals.risk": ("Risk",),
    "proxlearn.core.hyper": ("Hyper",),
    "proxlearn.core.step": ("Info",),
    "proxlearn.errors": ("InputError", "ProxlearnError", "RunError"),
    "proxlearn.estimator": ("ProxLearnClassifier", "ProxLearnRegressor"),
    "proxlearn.flow": ("init", "iterate", "step"),
    "proxlearn.run.observers": ("StepEvent",),
    "proxlearn.runs": ("Run", "load_run", "train"),
}
"""The public names by module; a module is imported on first use, because torch and scikit-learn take long to import."""
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in ("losses", "neurons"):
        return importlib.import_module(f"proxlearn.{name}")
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
