"""The health of the method in each experiment of the paper: what the proximal step did, and what that changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from proxlearn.files.atomic import write_atomically
from reproduce.comparison import majority
from reproduce.measured import MeanSd, summarise
from reproduce.source import Found, load, steps
from reproduce.table import Cell, Column, Row, Table, provenance

SAME = {"float32": 1e-6, "float64": 1e-12}
"""Relative change of an objective below which it is neither a fall nor a rise, but rounding."""

LEAST_POINTS, LEAST_SHARE = 0.5, 0.01
"""The least difference that counts: half a point of accuracy (one of WDBC's test rows is .6), a hundredth of a risk."""


@dataclass(frozen=True)
class Experiment:
    """Runs of one setting, and the same without the proximal step."""

    name: str
    entries: tuple[str, ...]
    controls: tuple[str, ...] = ()
    where: Callable[[Found], bool] = lambda found: True


def _dataset(name: str) -> Callable[[Found], bool]:
    return lambda found: bool(found["dataset"]["name"] == name)


EXPERIMENTS = (
    Experiment("WDBC, Table 1, float32", ("table1", "table1-seeds")),
    Experiment("WDBC, Table 1, float64", ("table1-float64",)),
    Experiment("WDBC, Table 2", ("table2", "table2-seeds", "table2-more")),
    Experiment("WDBC, Table 2, β=0.05", ("table2", "table2-seeds"), ("table2-uniform",), lambda f: f["beta"] == 0.05),
    Experiment("WDBC, Table 3, ε=0.1", ("table3", "table3-seeds"), where=lambda found: found["epsilon"] == 0.1),
    Experiment("WDBC, Table 3, ε=10", ("table3", "table3-seeds"), where=lambda found: found["epsilon"] == 10),
    Experiment("banana, Table 4", ("table4",), ("table4-uniform",), _dataset("banana")),
    Experiment("diabetes, Table 4", ("table4",), ("diabetes-uniform",), _dataset("diabetes")),
    Experiment("twonorm, Table 4", ("table4",), ("table4-uniform",), _dataset("twonorm")),
    Experiment("SHD, the long run", ("fig3",)),
    Experiment("SHD, the short runs", ("fig3-start",)),
    Experiment("sine, N=1000, weights 1/N", ("table5",), ("table5-uniform",), lambda found: found["N"] == 1000),
    Experiment("sine, N=1000, weights 1/12", ("table5-pdf",), where=lambda found: found["N"] == 1000),
)


def proximal(found: Found) -> pd.DataFrame:
    """The logged steps at which a proximal step was made."""
    return found.metrics.dropna(subset=["kernel_offdiag"])


def identity_from(found: Found) -> float:
    """First logged k from which on the kernel was the identity to rounding; infinite if it was not at the end."""
    unit = 2.0**-53 if found.run.status["dtype"] == "float64" else 2.0**-24
    logged = proximal(found)
    moving = logged.loc[logged["kernel_offdiag"] >= unit, "step"]
    later = logged.loc[logged["step"] > (moving.max() if len(moving) else 0), "step"]
    return float(later.min()) if len(later) else math.inf


def moved_share(found: Found) -> float:
    """Share of recursions in which a weight changed; each logged step speaks for those since the one before."""
    logged = proximal(found)
    spans = np.diff(logged["step"].to_numpy(), prepend=0)
    return float(spans[(logged["weights_change"] > 0).to_numpy()].sum() / max(spans.sum(), 1))


def changes(found: Found, before: pd.Series, after: pd.Series) -> np.ndarray:
    """Of each pair, whether a quantity fell (-1), rose (1), or neither by more than rounding (0)."""
    difference = after.to_numpy() - before.to_numpy()
    least = SAME[found.run.status["dtype"]] * before.abs().to_numpy()
    signs: np.ndarray = np.where(np.abs(difference) > least, np.sign(difference), 0)
    return signs


def free_energy(found: Found) -> np.ndarray:
    energy = found.metrics["discrete_free_energy"]
    return changes(found, energy[:-1], energy[1:])


def objective(found: Found) -> np.ndarray:
    """Where the weights changed at all: an identity leaves the objective as it is."""
    logged = proximal(found).query("weights_change > 0")
    return changes(found, logged["prox_objective_before"], logged["prox_objective_after"])


def fell_and_rose(signs: list[np.ndarray]) -> str:
    together = np.concatenate(signs) if signs else np.empty(0)
    if not len(together):
        return ""
    return f"{100 * np.mean(together < 0):.0f} / {100 * np.mean(together > 0):.0f} of {len(together)}"


def mass_drift(found: Found) -> float:
    mass = found.metrics["mass"]
    return float((mass / mass.iloc[0] - 1).abs().max())


def contraction(found: Found) -> float:
    """Largest measured contraction of a first round, times 1 + kappa: at most 1 in theory."""
    kappa = found["beta"] * found["epsilon"] / found["h"]
    return float(found.metrics["sinkhorn_contraction"].max() * (1 + kappa))


def result(found: Found, estimate: str) -> float:
    """Test accuracy in per cent, or the test risk times 100 where there are no classes."""
    name = "accuracy" if f"test_accuracy_{estimate}" in found.metrics else "risk"
    return 100 * found.final(f"test_{name}_{estimate}")


def changed(differences: list[float], least: float) -> str:
    """Whether a mean difference is beyond both what matters and twice its standard error; one run has none."""
    if len(differences) < 2:
        return "one run: no verdict" if differences else ""
    mean = summarise(differences)
    said = "yes" if abs(mean.mean) > max(least, 2 * mean.sd / math.sqrt(len(differences))) else "no"
    return f"{said} ({len(differences)} runs)"


def weights_table(root: Path) -> Table:
    rows = []
    for each in EXPERIMENTS:
        runs = load(root, *each.entries, where=each.where)
        since = sorted(identity_from(found) for found in runs)
        cells: list[Cell] = [
            each.name,
            len(runs),
            steps(runs),
            _range(since),
            summarise(100 * moved_share(found) for found in runs),
            summarise(100 * found.final("ess") / found["N"] for found in runs),
            f"{max(mass_drift(found) for found in runs):.1e}" if runs else "",
        ]
        rows.append(Row(cells, runs))
    return Table(
        "health",
        "",
        (
            Column("experiment"),
            Column("runs"),
            Column("recursions"),
            Column("kernel is the identity from k"),
            Column("recursions in which weights changed (%)", 3),
            Column("effective sample size at the end (% of N)", 1),
            Column("drift of the mass"),
        ),
        rows,
        (),
    )


def solver_table(root: Path) -> Table:
    rows = []
    for each in EXPERIMENTS:
        runs = load(root, *each.entries, where=each.where)
        logged = pd.concat([proximal(found) for found in runs]) if runs else pd.DataFrame()
        solved = logged[logged["sinkhorn_rounds"] > 0] if runs else logged
        kappas = sorted({found["beta"] * found["epsilon"] / found["h"] for found in runs})
        cells: list[Cell] = [
            each.name,
            _range([float(rounds) for rounds in sorted(solved["sinkhorn_rounds"])] if len(solved) else []),
            f"{int(solved['converged'].astype(bool).sum())} of {len(solved)}" if len(solved) else "",
            summarise(found.run.status["unmet"] for found in runs),
            _range(kappas),
            summarise(each for each in (contraction(found) for found in runs) if not math.isnan(each)),
            fell_and_rose([objective(found) for found in runs]),
            fell_and_rose([free_energy(found) for found in runs]),
        ]
        rows.append(Row(cells, runs))
    return Table(
        "health",
        "",
        (
            Column("experiment"),
            Column("rounds"),
            Column("converged"),
            Column("recursions beyond L", 0),
            Column("kappa"),
            Column("contraction × (1 + kappa)", 3),
            Column("prox_objective fell / rose (%)"),
            Column("discrete_free_energy fell / rose (%)"),
        ),
        rows,
        (),
    )


def effect_table(root: Path) -> Table:
    rows = []
    for each in EXPERIMENTS:
        runs = load(root, *each.entries, where=each.where)
        controls = {found["seed"]: found for found in load(root, *each.controls, where=each.where)}
        weighted, unweighted = ([result(found, name) for found in runs] for name in ("weighted", "unweighted"))
        apart = [a - b for a, b in zip(weighted, unweighted, strict=True)]
        pairs = [(found, controls[found["seed"]]) for found in runs if found["seed"] in controls]
        pairs = [(found, control) for found, control in pairs if found.made == control.made]
        gained = [result(found, "weighted") - result(control, "weighted") for found, control in pairs]
        classes = any("test_accuracy_weighted" in found.metrics for found in runs)
        least = LEAST_POINTS if classes else LEAST_SHARE * summarise(weighted).mean
        cells: list[Cell] = [
            each.name,
            "accuracy (%)" if classes else "risk (1e-2)",
            MeanSd(100 * majority(runs).mean),
            summarise(weighted),
            summarise(unweighted),
            summarise(apart),
            changed(apart, least),
            summarise(gained),
            changed(gained, least),
        ]
        rows.append(Row(cells, [*runs, *(control for _, control in pairs)]))
    return Table(
        "health",
        "",
        (
            Column("experiment"),
            Column("figure"),
            Column("majority class"),
            Column("weighted"),
            Column("unweighted"),
            Column("weighted − unweighted", 3),
            Column("do they differ?"),
            Column("proximal − uniform weights", 3),
            Column("does it change the result?"),
        ),
        rows,
        (),
    )


def health(root: Path) -> list[Path]:
    """health.md: three tables and how to read them."""
    tables = (weights_table(root), solver_table(root), effect_table(root))
    runs = {each.name: each for table in tables for each in table.runs}
    body = TEXT.format(*(table.body() for table in tables))
    made = "".join(f"    {line}\n" for line in provenance("health", list(runs.values())))
    path = root / "health.md"
    write_atomically(path, f"{body}\n## Made by\n\n{made}".encode())
    return [path]


def _range(values: list[float]) -> str:
    """From the least to the most; a number that is infinite never came."""
    words = ["never" if math.isinf(each) else f"{each:g}" for each in values]
    return "" if not words else words[0] if words[0] == words[-1] else f"{words[0]} to {words[-1]}"


TEXT = """\
# The health of the method, experiment by experiment

docs/reproduction.md says what follows from these numbers.

## What the proximal step did to the weights

{}
- *Kernel is the identity from k*: the first logged recursion from which on no particle sent more than a rounding unit
  of its mass to others; from there the weights stay as they are.
- *Recursions in which weights changed*: at logged recursions, each standing for those since the one before.
- *Drift of the mass*: the largest relative change of the total mass.

## The fixed point

{}
- *Rounds* and *converged* are of the logged recursions in which there was something to solve. *Converged* asks that
  the error of log rho be below delta, which is more than the paper's criterion. *Recursions beyond L*: those, logged or
  not, that did not meet the paper's criterion within L rounds.
- *Contraction*: the change of log z in the second round over that in the first, the largest one seen; theory says at
  most 1/(1 + kappa), so that the column is at most 1.
- *prox_objective* is what a proximal step minimises, compared with every particle keeping its mass, at logged
  recursions in which the weights changed. *discrete_free_energy*: from one logged recursion to the next. A fall or a
  rise is one beyond rounding: 1e-6 of the value in float32, 1e-12 in float64; of so many comparisons.

## Whether the weights change the result

{}
- *Weighted − unweighted*: the two estimates of the same cloud on the test part, in points of accuracy (for the sine:
  test risk in hundredths, where lower is better).
- *Proximal − uniform weights*: the same seed with and without the proximal step (`weights=uniform`), so that what the
  weights do to the particles' way is in it too. Empty where no such pair of equal length was run.
- *Yes*: the mean difference is beyond half a point (a hundredth of the risk) and beyond twice its standard error. One
  run has no standard error, and gets no verdict.
- *Majority class*: the test accuracy of always answering the training part's more frequent class.
"""
