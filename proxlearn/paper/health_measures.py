"""Measures of the effect of the proximal step in a run, for the health page."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from proxlearn.compare.statistics import summarise
from proxlearn.paper.archive import ArchivedRun

ROUNDING = {"float32": 1e-6, "float64": 1e-12}
"""Largest relative change of an objective that is attributed to rounding and is neither a fall nor a rise."""
UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}
"""Unit roundoff of each precision; a share of a particle's mass that is below this value is lost in rounding."""


def proximal_rows(run: ArchivedRun) -> pd.DataFrame:
    """Return the logged rows of the steps that included a proximal step."""
    return run.metrics.dropna(subset=["kernel_offdiag"])


def identity_start(run: ArchivedRun) -> float:
    """Return the first logged step from which on the kernel is the identity, up to rounding, at every logged step.

    The result is infinity if no proximal step was logged or if the kernel of the last one is not the identity.
    """
    logged = proximal_rows(run)
    moving = logged.loc[logged["kernel_offdiag"] >= UNIT[run.status["dtype"]], "step"]
    later = logged.loc[logged["step"] > (moving.max() if len(moving) else 0), "step"]
    return float(later.min()) if len(later) else math.inf


def moved_share(run: ArchivedRun) -> float:
    """Return the share of recursions in which a weight changed.

    Each logged step represents all steps since the previous logged step.
    """
    logged = proximal_rows(run)
    spans = np.diff(logged["step"].to_numpy(), prepend=0)
    return float(spans[(logged["weights_change"] > 0).to_numpy()].sum() / max(spans.sum(), 1))


def mass_drift(run: ArchivedRun) -> float:
    """Return the largest relative deviation of the total mass from its first logged value."""
    mass = run.metrics["mass"]
    return float((mass / mass.iloc[0] - 1).abs().max())


def kappa(run: ArchivedRun) -> float:
    return float(run["beta"] * run["epsilon"] / run["h"])


def contraction(run: ArchivedRun) -> float:
    """Return the largest measured contraction factor of the rounds, multiplied by 1 + kappa (at most 1 in theory)."""
    return float(run.metrics["sinkhorn_contraction"].max() * (1 + kappa(run)))


def free_energy_changes(run: ArchivedRun) -> np.ndarray:
    """Return the signs of the changes in the discrete free energy between consecutive logged steps."""
    energy = run.metrics["discrete_free_energy"]
    return _signs(run, energy[:-1], energy[1:])


def objective_changes(run: ArchivedRun) -> np.ndarray:
    """Return the sign of the change in the proximal objective for each logged step that changed a weight."""
    logged = proximal_rows(run).query("weights_change > 0")
    return _signs(run, logged["prox_objective_before"], logged["prox_objective_after"])


def _signs(run: ArchivedRun, before: pd.Series, after: pd.Series) -> np.ndarray:
    """Return, for each pair of values, -1 if the value fell, 1 if it rose, and 0 if the change is within rounding."""
    difference = after.to_numpy() - before.to_numpy()
    least = ROUNDING[run.status["dtype"]] * before.abs().to_numpy()
    signs: np.ndarray = np.where(np.abs(difference) > least, np.sign(difference), 0)
    return signs


def falls_and_rises(signs: Sequence[np.ndarray]) -> str:
    """Return text with the percentages of falls and rises and the number of comparisons; empty without comparisons."""
    joined = np.concatenate(signs) if signs else np.empty(0)
    if not len(joined):
        return ""
    return f"{100 * np.mean(joined < 0):.0f} / {100 * np.mean(joined > 0):.0f} of {len(joined)}"


def has_classes(runs: Sequence[ArchivedRun]) -> bool:
    return any("test_accuracy_weighted" in run.metrics for run in runs)


def final_result(run: ArchivedRun, estimate: str) -> float:
    """Return the final test accuracy of an estimate in per cent, or 100 times its test risk if there are no classes."""
    metric = "accuracy" if has_classes([run]) else "risk"
    return 100 * run.final(f"test_{metric}_{estimate}")


def is_changed(differences: Sequence[float], least: float) -> str:
    """Return text on whether the magnitude of the mean difference exceeds both ``least`` and twice its standard error.

    For a single run, there is no verdict, because the standard error is unknown. Without runs, the text is empty.
    """
    if len(differences) < 2:
        return "one run: no verdict" if differences else ""
    mean = summarise(differences)
    yes = abs(mean.mean) > max(least, 2 * mean.sd / math.sqrt(len(differences)))
    return f"{'yes' if yes else 'no'} ({len(differences)} runs)"


def range_text(values: Sequence[float]) -> str:
    """Return the range of sorted values as text, in which infinity is "never"; without values, the text is empty."""
    texts = ["never" if math.isinf(value) else f"{value:g}" for value in values]
    return "" if not texts else texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


def free_energy_verdicts(run: ArchivedRun) -> tuple[int, int, int]:
    """Return the numbers of falls, rises and insignificant changes of F_beta between consecutive clouds."""
    assert run.free_energy is not None
    changes = run.free_energy.dropna(subset=["change"])
    clear = changes["change"].abs() > 2 * changes["change_error"]
    falls, rises = (int((clear & (sign * changes["change"] > 0)).sum()) for sign in (-1, 1))
    return falls, rises, len(changes) - falls - rises


def free_energy_rises(run: ArchivedRun) -> list[int]:
    """Return the steps of the clouds whose F_beta is more than two standard errors above that of the previous cloud."""
    assert run.free_energy is not None
    rises = run.free_energy[run.free_energy["change"] > 2 * run.free_energy["change_error"]]
    return [int(step) for step in rises["step"]]


def first_and_last(run: ArchivedRun, column: str) -> tuple[float, float]:
    """Return the first and the last value in a column of the free-energy table."""
    assert run.free_energy is not None
    return float(run.free_energy[column].iloc[0]), float(run.free_energy[column].iloc[-1])


def change(run: ArchivedRun, column: str) -> float:
    """Return the change in a column of the free-energy table from the first to the last cloud."""
    first, last = first_and_last(run, column)
    return last - first
