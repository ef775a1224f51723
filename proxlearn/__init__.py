"""Proximal mean field learning: a two-layer network as a weighted cloud of particles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proxlearn.estimator import ProxLearnClassifier, ProxLearnRegressor

__all__ = ["ProxLearnClassifier", "ProxLearnRegressor", "__version__"]
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    # torch and scikit-learn take seconds to import, so they are imported only when an estimator is used.
    if name in ("ProxLearnClassifier", "ProxLearnRegressor"):
        from proxlearn import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
