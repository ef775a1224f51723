"""Write the health page: the effect of the proximal step on weights and results in the paper's experiments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from proxlearn.compare.statistics import MeanSd, summarise
from proxlearn.data.registry import dataset_info
from proxlearn.files.atomic import write_atomically
from proxlearn.paper.archive import Archive, ArchivedRun
from proxlearn.paper.health_measures import (
    change,
    contraction,
    falls_and_rises,
    final_result,
    first_and_last,
    free_energy_changes,
    free_energy_rises,
    free_energy_verdicts,
    has_classes,
    identity_start,
    is_changed,
    kappa,
    mass_drift,
    moved_share,
    objective_changes,
    proximal_rows,
    range_text,
)
from proxlearn.paper.result_table import cell_text, length_text, markdown_table, sources_note, write_sources
from proxlearn.paper.table4 import majority
from proxlearn.views.tables import enumeration

LEAST_POINTS, LEAST_SHARE = 0.5, 0.01
"""Smallest relevant differences: half a percentage point of accuracy (one test row of WDBC corresponds to 0.6 points),
and 1 % of a risk."""


@dataclass(frozen=True)
class HealthGroup:
    """A group of runs, and the plan entries of the corresponding runs without the proximal step (``controls``)."""

    name: str
    entries: tuple[str, ...]
    controls: tuple[str, ...] = ()
    where: Callable[[ArchivedRun], bool] = lambda run: True


def _dataset(name: str) -> Callable[[ArchivedRun], bool]:
    return lambda run: bool(run["dataset"]["name"] == name)


GROUPS = (
    HealthGroup("WDBC, Table 1, float32", ("table1", "table1-seeds")),
    HealthGroup("WDBC, Table 1, float64", ("table1-float64",)),
    HealthGroup("WDBC, Table 2", ("table2", "table2-seeds", "table2-more")),
    HealthGroup("WDBC, Table 2, β=0.05", ("table2", "table2-seeds"), ("table2-uniform",), lambda r: r["beta"] == 0.05),
    HealthGroup("WDBC, Table 3, ε=0.1", ("table3", "table3-seeds"), where=lambda run: run["epsilon"] == 0.1),
    HealthGroup("WDBC, Table 3, ε=10", ("table3", "table3-seeds"), where=lambda run: run["epsilon"] == 10),
    HealthGroup("banana, Table 4", ("table4",), ("table4-uniform",), _dataset("banana")),
    HealthGroup("diabetes, Table 4", ("table4",), ("diabetes-uniform",), _dataset("diabetes")),
    HealthGroup("twonorm, Table 4", ("table4",), ("table4-uniform",), _dataset("twonorm")),
    HealthGroup("SHD, the long run", ("fig3",)),
    HealthGroup("SHD, the short runs", ("fig3-start",)),
    HealthGroup("sine, weights 1/N", ("table5",), ("table5-uniform",), lambda run: run["N"] == 1000),
    HealthGroup("sine, weights 1/12", ("table5-pdf",), where=lambda run: run["N"] == 1000),
)


@dataclass(frozen=True)
class WeightsEffect:
    """The effect of the weights on the results of a group."""

    weighted: list[float]
    unweighted: list[float]
    apart: list[float]
    """Weighted result minus unweighted result, for each run."""
    gained: list[float]
    """Result with the proximal step minus result without it, for each pair of runs with the same seed and length."""
    controls: list[ArchivedRun]
    """The runs without the proximal step that are part of a pair."""
    least: float
    """The smallest relevant difference."""

    @property
    def estimates_differ(self) -> str:
        return is_changed(self.apart, self.least)

    @property
    def step_matters(self) -> str:
        return is_changed(self.gained, self.least)


def health(archive: Archive) -> list[Path]:
    """Write health.md and the file with its sources; return their paths."""
    groups = {group: archive.runs(*group.entries, where=group.where) for group in GROUPS}
    effects = {group: measure_effect(archive, group, runs) for group, runs in groups.items()}
    runs = [run for group in GROUPS for run in (*groups[group], *effects[group].controls)]
    runs += archive.runs(*FREE_ENERGY)
    path = archive.root / "health.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    page = PAGE.format(
        conclusion=conclusion(groups, effects),
        weights=markdown_table([WEIGHTS_HEAD, *(weights_row(*item) for item in groups.items())]),
        solver=markdown_table([SOLVER_HEAD, *(solver_row(*item) for item in groups.items())]),
        free_energy=free_energy_text(archive.runs(*FREE_ENERGY)),
        objectives=markdown_table([OBJECTIVES_HEAD, *(objectives_row(*item) for item in groups.items())]),
        results=markdown_table([RESULTS_HEAD, *(results_row(g, groups[g], effects[g]) for g in GROUPS)]),
        estimates=markdown_table([ESTIMATES_HEAD, *(estimates_row(*item) for item in effects.items())]),
        step=markdown_table([STEP_HEAD, *(step_row(*item) for item in effects.items() if item[1].gained)]),
        sources=sources_note("health"),
    )
    write_atomically(path, page.encode())
    return [path, write_sources(archive.root, "health", {run.name: run for run in runs}.values())]


def conclusion(groups: dict[HealthGroup, list[ArchivedRun]], effects: dict[HealthGroup, WeightsEffect]) -> str:
    """Return a one-line summary of the page."""
    present = {group: runs for group, runs in groups.items() if runs}
    frozen = sum(all(math.isfinite(identity_start(run)) for run in runs) for runs in present.values())
    enough_runs, enough_pairs = " experiments with enough runs for a verdict", " experiments with enough pairs of runs"
    differing = _split({group.name: effect.estimates_differ for group, effect in effects.items()}, enough_runs)
    changing = _split({group.name: effect.step_matters for group, effect in effects.items()}, enough_pairs)
    return (
        f"The proximal step stops changing the weights in {frozen} of {len(present)} experiments. The weighted and "
        f"unweighted estimates differ in {differing}. Runs with and without the proximal step differ in {changing}."
    )


def _split(answers: dict[str, str], noun: str = "") -> str:
    """Return text with the number and the names of the groups whose answer is yes, ignoring groups without a verdict.

    ``answers`` maps names of groups to answers, and ``noun`` follows the numbers.
    """
    decided = [name for name, answer in answers.items() if answer.startswith(("yes", "no "))]
    positive = [name for name in decided if answers[name].startswith("yes")]
    return f"{len(positive)} of {len(decided)}{noun}" + (f" ({'; '.join(positive)})" if positive else "")


def measure_effect(archive: Archive, group: HealthGroup, runs: Sequence[ArchivedRun]) -> WeightsEffect:
    weighted, unweighted = ([final_result(run, estimate) for run in runs] for estimate in ("weighted", "unweighted"))
    controls = {run["seed"]: run for run in archive.runs(*group.controls, where=group.where)}
    pairs = [(run, controls[run["seed"]]) for run in runs if run["seed"] in controls]
    pairs = [(run, control) for run, control in pairs if run.last_step == control.last_step]
    return WeightsEffect(
        weighted,
        unweighted,
        [first - second for first, second in zip(weighted, unweighted, strict=True)],
        [final_result(run, "weighted") - final_result(control, "weighted") for run, control in pairs],
        [control for _, control in pairs],
        LEAST_POINTS if has_classes(runs) else LEAST_SHARE * summarise(weighted).mean,
    )


WEIGHTS_HEAD = ["experiment", "runs", "length", "identity from k", "changed (%)", "ESS (%)", "mass drift"]


def weights_row(group: HealthGroup, runs: Sequence[ArchivedRun]) -> list[str]:
    return [
        group.name,
        str(len(runs)),
        length_text(runs),
        range_text(sorted(identity_start(run) for run in runs)),
        cell_text(summarise(100 * moved_share(run) for run in runs), 3),
        cell_text(summarise(100 * run.final("ess") / run["N"] for run in runs), 1),
        f"{max(mass_drift(run) for run in runs):.1e}" if runs else "",
    ]


SOLVER_HEAD = ["experiment", "rounds", "converged", "beyond L", "kappa", "contraction × (1 + kappa)"]


def solver_row(group: HealthGroup, runs: Sequence[ArchivedRun]) -> list[str]:
    logged = pd.concat([proximal_rows(run) for run in runs]) if runs else pd.DataFrame()
    solved = logged[logged["sinkhorn_rounds"] > 0] if runs else logged
    contractions = [value for value in map(contraction, runs) if not math.isnan(value)]
    return [
        group.name,
        range_text([float(rounds) for rounds in sorted(solved["sinkhorn_rounds"])] if len(solved) else []),
        f"{int(solved['converged'].astype(bool).sum())} of {len(solved)}" if len(solved) else "",
        cell_text(summarise(run.status["unmet"] for run in runs), 0),
        range_text(sorted({kappa(run) for run in runs})),
        cell_text(summarise(contractions), 3),
    ]


OBJECTIVES_HEAD = ["experiment", "prox_objective fell / rose (%)", "discrete_free_energy fell / rose (%)"]


def objectives_row(group: HealthGroup, runs: Sequence[ArchivedRun]) -> list[str]:
    changes = ([objective_changes(run) for run in runs], [free_energy_changes(run) for run in runs])
    return [group.name, *(falls_and_rises(signs) for signs in changes)]


FREE_ENERGY = ("free-energy-wdbc", "free-energy", "free-energy-sine")
"""Plan entries of the runs whose free energy was measured."""
TRACKING = 0.5
"""The entropy from the weights is shown only if the correlation of the weights with the density exceeds this value."""


def free_energy_text(runs: Sequence[ArchivedRun]) -> str:
    """Return a conclusion on the free energy in one run per experiment, followed by two tables."""
    if not runs:
        return "No run is in the archive."
    fallen = [run for run in runs if change(run, "free_energy") < 0]
    risen = [run for run in runs if run not in fallen]
    shares = [-100 * change(run, "entropy") / run["beta"] / change(run, "free_energy") for run in fallen]
    answer = f"From the first to the last cloud, F_β fell on {_datasets(fallen) or 'no dataset'}" + (
        f"; {min(shares):.0f} to {max(shares):.0f} % of the decrease comes from the entropy of the particles, which "
        "nothing confines."
        if fallen
        else "."
    )
    for run in runs:
        steps = free_energy_rises(run)
        if run in risen or steps:
            times = (
                f" (by more than two standard errors at {len(steps)} of the clouds, from k = {steps[0]} on)"
                if steps
                else ""
            )
            answer += f" On {run['dataset']['name']}, it rose{'' if run in risen else ' in between'}{times}."
    falls = [["experiment", "clouds, last k", "fell / rose / neither", "F_β", "risk", "entropy (nats)"]]
    tracks = [["experiment", "p", "kappa", "correlation, last cloud", "entropy", "entropy from the weights"]]
    for run in runs:
        assert run.free_energy is not None
        name, last = str(run["dataset"]["name"]), run.free_energy.iloc[-1]
        spans = (
            "{:.{digits}f} to {:.{digits}f}".format(*first_and_last(run, quantity), digits=digits)
            for quantity, digits in (("free_energy", 1), ("risk", 2), ("entropy", 1))
        )
        counts = " / ".join(str(count) for count in free_energy_verdicts(run))
        falls.append([name, f"{len(run.free_energy)}, {int(last['step'])}", counts, *spans])
        p = (dataset_info(name).features or 0) + len(("a", "b"))
        correlation = last["weights_correlation"]
        from_weights = f"{last['entropy_from_weights']:.2f}" if correlation > TRACKING else ""
        figures = ("" if math.isnan(correlation) else f"{correlation:.2f}", f"{last['entropy']:.2f}", from_weights)
        tracks.append([name, str(p), f"{kappa(run):g}", *figures])
    return f"{answer}\n\n{markdown_table(falls)}\n{markdown_table(tracks)}"


def _datasets(runs: Sequence[ArchivedRun]) -> str:
    return enumeration([str(run["dataset"]["name"]) for run in runs])


RESULTS_HEAD = ["experiment", "metric", "majority class", "weighted", "unweighted"]


def results_row(group: HealthGroup, runs: Sequence[ArchivedRun], effect: WeightsEffect) -> list[str]:
    return [
        group.name,
        "accuracy (%)" if has_classes(runs) else "risk (1e-2)",
        cell_text(MeanSd(100 * majority(runs).mean), 2),
        cell_text(summarise(effect.weighted), 2),
        cell_text(summarise(effect.unweighted), 2),
    ]


ESTIMATES_HEAD = ["experiment", "weighted − unweighted", "differ?"]
STEP_HEAD = ["experiment", "with − without the step", "differ?"]


def estimates_row(group: HealthGroup, effect: WeightsEffect) -> list[str]:
    return [group.name, cell_text(summarise(effect.apart), 3), effect.estimates_differ]


def step_row(group: HealthGroup, effect: WeightsEffect) -> list[str]:
    return [group.name, cell_text(summarise(effect.gained), 3), effect.step_matters]


PAGE = """\
# The effect of the proximal step in each experiment

{conclusion}

docs/reproduction.md draws the conclusions from these numbers.

## The effect of the proximal step on the weights

{weights}
- *Length*: the number of recursions of each run. The runs on the sine have N=1000.
- *Identity from k*: the first logged recursion from which no particle sends more than a rounding unit of its mass to
  others. From there on, the kernel is the identity, and the weights do not change.
- *Changed*: the number of recursions in which weights changed. Each logged recursion represents all recursions since
  the previous logged one.
- *ESS*: the effective sample size at the end, in per cent of N.
- *Mass drift*: the largest relative change of the total mass.

## The fixed point

{solver}
- *Rounds* and *converged* refer to the logged recursions whose kernel is not the identity. *Converged* requires an
  error of log rho below delta, which is stricter than the paper's criterion. *Beyond L*: the number of recursions,
  logged or not, that did not meet the paper's criterion within L rounds.
- *Contraction*: the largest measured ratio of the change of log z in the second round to that in the first. In theory,
  it is at most 1/(1 + kappa), so the column is at most 1.

## Decreases and increases of the objectives

{objectives}
- *prox_objective* is the objective that a proximal step minimises. Its value after the step is compared with its value
  if every particle keeps its mass, at the logged recursions in which the weights changed.
- *discrete_free_energy* is compared between consecutive logged recursions.
- Only changes beyond rounding (1e-6 of the value in float32, 1e-12 in float64) count as a fall or a rise. The last
  number is the number of comparisons.

## Does the free energy fall?

{free_energy}
- According to the paper's abstract, the algorithm decreases F_β = F − H/β. F is the training risk of the unweighted
  mean of the neurons' outputs, and H is the entropy of the distribution of the particles, estimated from nearest
  neighbours (Kozachenko and Leonenko, third neighbour). The table shows one seed of each experiment, at five log-spaced
  k per decade. A fall or a rise is a change from the previous cloud by over two standard errors (jackknife, 20 groups).
- The estimate of H is biased in high dimension: on Gaussians with N = 1000 by less than 0.11 nats for p up to 10, and
  by +3.2 in 32 dimensions (tests/core/test_entropy.py). The entropy of wdbc grows by more than 50 times this bias.
- *wdbc*: the paper's initial weights have a total mass of 2.3e-5, so the particles are affected by the data but not by
  each other, and the mean of the neurons grows without bound. Its sign is still a good classifier, while the risk,
  which is its mean squared error, grows.
- β is the inverse temperature of the noise. With dataset.noise_scale = s it is β/s², because the noise of a step is
  s √(2h/β); the proximal step uses β. In these runs s = 1.
- SHD is left out, because the entropy in 2560 dimensions cannot be estimated from 100 particles (in 64 dimensions, the
  bias is 10 nats with N = 1000). In addition, its F_β has β/s² = 5000, while its proximal step uses β = 0.5.
- The second table describes the last cloud. *Correlation*: between log rho and the log-density estimated from nearest
  neighbours; it is empty if all weights are equal. *Entropy from the weights*: −log ∫p² − mean log(N w), which is the
  entropy if the weights are proportional to the density p, where ∫p² is estimated with a kernel of variance ε. It is
  shown if the correlation is above 0.5; otherwise, the weights carry no information about the density.

## Test results

{results}
- *Majority class*: the test accuracy of always predicting the more frequent class of the training part.

## The effect of the weights on the result

{estimates}
{step}
- *Weighted − unweighted*: the difference between the two estimates of the same cloud on the test part, in percentage
  points of accuracy (for the sine: hundredths of the test risk, where lower is better).
- *With − without the step*: the result with the proximal step minus that without it (`weights=uniform`), for the same
  seed. It includes the effect of the weights on the motion of the particles. An experiment is left out if there is no
  pair of runs of equal length.
- *Yes*: the mean difference exceeds half a percentage point (1 % of the risk) and twice its standard error. A single
  run has no standard error and therefore no verdict.
- {sources}
"""
