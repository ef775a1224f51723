"""The risk curves of the paper's Figures 2 and 3, and the distance of a run from them.

published_curves.csv holds points of the curves that the authors published as pictures: figure ("fig2a" and "fig2b" are
the left and the right panel of Figure 2), estimate, recursion k, and the middle and both ends of the line's thickness
at k. The values are accurate to about 1 %.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
import pandas as pd

from proxlearn.paper.archive import ArchivedRun


@dataclass(frozen=True)
class PublishedPanel:
    """A panel with published curves: its content, and the first recursion at which a run is compared with it."""

    figure: str
    title: str
    part: str
    """The part of the data on which the published curve was computed, which may differ from the one that the paper
    states.
    """
    metric: str
    first_step: int
    allowance: float
    """Largest distance, as a difference of logarithms, that counts as agreement."""

    def column(self, estimate: str) -> str:
        return f"{self.part}_{self.metric}_{estimate}"


PANELS = (
    PublishedPanel("fig2a", "Figure 2, left", "train", "risk_paper", 200_000, 0.05),
    # The quantity and the runs are those of Table 3, so its allowance is used.
    PublishedPanel("fig2b", "Figure 2, right", "test", "risk_paper", 200_000, 0.15),
    PublishedPanel("fig3", "Figure 3", "test", "risk", 1, 0.03),
)


@dataclass(frozen=True)
class CurveDistance:
    """The largest distance of a run from a published curve, as a difference of logarithms (ours minus theirs)."""

    largest: float
    step: int
    outside: float
    """The largest distance from the nearer end of the line's thickness, without a sign; 0 if the run is inside."""
    points: int
    """Number of published points that were compared."""


def find_panel(figure: str) -> PublishedPanel:
    return next(panel for panel in PANELS if panel.figure == figure)


@cache
def _points() -> pd.DataFrame:
    text = resources.files("proxlearn.paper").joinpath("published_curves.csv").read_text(encoding="utf-8")
    return pd.read_csv(io.StringIO(text))


def published_curve(figure: str, estimate: str) -> pd.DataFrame:
    """Return the points of a published curve, with the columns k, risk, low and high."""
    points = _points()
    chosen = points[(points["figure"] == figure) & (points["estimate"] == estimate)]
    return chosen[["k", "risk", "low", "high"]].sort_values("k").reset_index(drop=True)


def curve_distance(run: ArchivedRun, panel: PublishedPanel, estimate: str) -> CurveDistance | None:
    """Return the distance of a run from a published curve, or None if they have no recursions in common.

    Between logged recursions, the logarithm of the run's risk is interpolated linearly in log k.
    """
    logged = run.metrics[run.metrics["step"] > 0]
    curve = published_curve(panel.figure, estimate)
    curve = curve[(curve["k"] >= panel.first_step) & (curve["k"] <= logged["step"].max())]
    if curve.empty:
        return None
    ours = np.interp(np.log(curve["k"]), np.log(logged["step"]), np.log(logged[panel.column(estimate)]))
    middle, low, high = (ours - np.log(curve[name].to_numpy()) for name in ("risk", "low", "high"))
    place = int(np.abs(middle).argmax())
    outside = np.maximum(np.maximum(high, -low), 0)
    return CurveDistance(float(middle[place]), int(curve["k"].iloc[place]), float(outside.max()), len(curve))
