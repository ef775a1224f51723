"""Write the page on the effect of the proximal weights; the page compares three weight updates on every dataset.

For each split, the hyperparameters are selected on the training part with weights=proximal. Three fits use these
hyperparameters, the same initial cloud and the same noise, and differ only in the weight update. Fisher-Rao weights may
be unstable at a step size at which the other two updates are stable, so a fourth fit has hyperparameters that were
selected with weights=fisher_rao.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from statistics import mean

import torch

from proxlearn.compare.statistics import Interval, paired
from proxlearn.config.schema import TrainConfig
from proxlearn.core.metrics import effective_sample_size
from proxlearn.core.options import Weights
from proxlearn.core.tasks import scores
from proxlearn.paper.repeated_fits import HALF, FitMeasurement, FitResult, majority_accuracy
from proxlearn.paper.result_table import markdown_table
from proxlearn.run.experiment import Experiment, build_experiment
from proxlearn.training.fit import fit
from proxlearn.training.settings import Settings
from proxlearn.training.successive_halving import THOROUGH_RUNGS, select
from proxlearn.views.tables import enumeration

UPDATES: tuple[Weights, ...] = ("proximal", "uniform", "fisher_rao")
SELECTED = "fisher_rao, own selection"
"""Name of the fits whose hyperparameters were selected with weights=fisher_rao."""
OTHERS = ("uniform", SELECTED)
"""The fits with which the proximal weights are compared in the first two tables. In the third table, the
proximal weights are compared with fisher_rao at the same hyperparameters."""
DIVERGED_RISK = 10.0
"""Test risk above which a fit counts as diverged; the risk of always predicting 0 is about 1."""


def measure_updates(config: TrainConfig) -> FitResult:
    """Return the test metrics of the weighted estimate per weight update, and the accuracy of the majority class."""
    experiment = build_experiment(config)
    result: FitResult = {"majority": majority_accuracy(experiment.prepared)}
    start = time.monotonic()
    shared = select(experiment.source, experiment.settings, seed=config.seed, threads=1, rungs=THOROUGH_RUNGS).settings
    for weights in UPDATES:
        result[weights] = _fit_and_score(experiment, replace(shared, weights=weights), start)
        start = time.monotonic()
    return result


def measure_own_selection(config: TrainConfig) -> FitResult:
    """Return the test metrics of the weighted estimate with hyperparameters selected for the config's weight update."""
    experiment = build_experiment(config)
    start = time.monotonic()
    selected = select(
        experiment.source, experiment.settings, seed=config.seed, threads=1, rungs=THOROUGH_RUNGS
    ).settings
    return {f"{config.weights}, own selection": _fit_and_score(experiment, selected, start)}


def _fit_and_score(experiment: Experiment, settings: Settings, start: float) -> FitResult:
    """Fit the training part, and return the test metrics and the settings; the seconds are counted from ``start``."""
    problem, test = experiment.source, experiment.prepared.test
    cloud = fit(problem, settings, seed=experiment.config.seed, threads=1).cloud.to("cpu", torch.float64)
    figures = scores(problem.neuron, cloud, test, problem.loss)
    return {
        "risk": figures["risk_weighted"],
        "accuracy": figures.get("accuracy_weighted"),
        "ess": float(effective_sample_size(cloud.log_rho)),
        "seconds": time.monotonic() - start,
        **{name: getattr(settings, name) for name in ("h", "beta", "epsilon", "init_scale", "steps")},
    }


def split_ratio(dataset: str) -> float:
    """Return the ratio of test to training rows in the random splits of a dataset; 0 if there is only one split."""
    overrides = (override.partition("=") for override in WEIGHTS.overrides[dataset])
    fractions = [float(value) for key, _, value in overrides if key == "dataset.train_fraction"]
    return (1 - fractions[0]) / fractions[0] if fractions else 0.0


def difference(dataset: str, fits: list[FitResult], figure: str, other: str) -> Interval | None:
    """Return the mean difference of a metric between the proximal and another update, with its confidence intervals.

    The result is None if no split has a fit with the other update, if the metric is absent, or if a fit has diverged
    and the metric is the risk.
    """
    both = [result for result in fits if other in result]
    if not both or both[0]["proximal"][figure] is None or (figure == "risk" and diverged(both, other)):
        return None
    first, second = (dict(enumerate(result[name][figure] for result in both)) for name in ("proximal", other))
    return paired(first, second, split_ratio(dataset))


def diverged(fits: list[FitResult], name: str) -> int:
    return sum(not result[name]["risk"] <= DIVERGED_RISK for result in fits if name in result)


def difference_text(dataset: str, fits: list[FitResult], figure: str, other: str) -> str:
    measured = sum(other in result for result in fits)
    partial = f" ({measured} of {len(fits)} splits)" if 0 < measured < len(fits) else ""
    if figure == "risk" and (count := diverged(fits, other)):
        return f"diverged ({count} of {measured})"
    interval = difference(dataset, fits, figure, other)
    return "" if interval is None else interval.text(shown_digits(interval)) + partial


def shown_digits(interval: Interval) -> int:
    """Return the number of decimal places: 4, or more if Student's half-width would be shown as 0."""
    return 4 if not 0 < interval.student < 5e-5 else math.ceil(-math.log10(interval.student))


def page_body(results: Mapping[str, list[FitResult]]) -> str:
    complete = {dataset: fits for dataset, fits in results.items() if len(fits) > 1}
    tables = {figure: markdown_table(difference_rows(complete, figure)) for figure in ("risk", "accuracy")}
    shared = [["dataset", "risk: proximal − fisher_rao", "accuracy: proximal − fisher_rao"]]
    for dataset, fits in complete.items():
        cells = (difference_text(dataset, fits, figure, "fisher_rao") for figure in ("risk", "accuracy"))
        shared.append([dataset, *cells])
    sizes = ("proximal", SELECTED, "fisher_rao")
    references = [["dataset", "majority class", *(f"ESS / N: {name}" for name in sizes)]]
    for dataset, fits in complete.items():
        majority = [result["majority"] for result in fits if result["majority"] is not None]
        sample_sizes = ([result[name]["ess"] / 500 for result in fits if name in result] for name in sizes)
        shares = (f"{mean(values):.2f}" if values else "" for values in sample_sizes)
        references.append([dataset, f"{mean(majority):.4f}" if majority else "", *shares])
    return BODY.format(
        conclusion=conclusion(complete),
        shared=markdown_table(shared),
        references=markdown_table(references),
        ratio=f"{math.sqrt(1 + 20 * split_ratio('wdbc')):.1f}",
        **tables,
    )


def difference_rows(results: Mapping[str, list[FitResult]], figure: str) -> list[list[str]]:
    rows = [["dataset", "splits", "proximal", *(f"− {other}" for other in OTHERS)]]
    for dataset, fits in results.items():
        if fits[0]["proximal"][figure] is not None:
            own = f"{mean(result['proximal'][figure] for result in fits):.4f}"
            others = [difference_text(dataset, fits, figure, other) for other in OTHERS]
            rows.append([dataset, str(len(fits)), own, *others])
    return rows


def conclusion(results: Mapping[str, list[FitResult]]) -> str:
    """Return one line that lists the differences whose corrected intervals exclude 0."""
    uniform, own = (clear_differences(results, other) for other in OTHERS)
    first = (
        f"Over {len(results)} datasets, proximal weights have {uniform} than weights=uniform"
        if uniform
        else "There is no clear difference between proximal weights and weights=uniform on any of the "
        f"{len(results)} datasets"
    )
    second = f"have {own}" if own else "show no clear difference on any dataset"
    return (
        f"{first}{divergence_note(results, 'uniform')}. Compared with fisher_rao (own selection), proximal weights "
        f"{second}{divergence_note(results, SELECTED)}."
    )


def clear_differences(results: Mapping[str, list[FitResult]], other: str) -> str:
    """Return an enumeration of the clear differences between the proximal and another update, or an empty string."""
    return enumeration(
        [
            f"a clearly {'higher' if interval.mean > 0 else 'lower'} {figure} on {dataset}"
            for dataset, fits in results.items()
            for figure in ("accuracy", "risk")
            if (interval := difference(dataset, fits, figure, other)) is not None and interval.excludes_zero
        ]
    )


def divergence_note(results: Mapping[str, list[FitResult]], other: str) -> str:
    """Return a remark that names the datasets on which fits diverged, or an empty string."""
    lost = [name for name, fits in results.items() if diverged(fits, other)]
    return f" (some {other.partition(',')[0]} fits diverged on {enumeration(lost)})" if lost else ""


BODY = """\
{conclusion}

## Test risk (lower is better)

{risk}
## Test accuracy (higher is better)

{accuracy}
## Fisher-Rao weights with the hyperparameters of the proximal weights

{shared}
## Majority class and effective sample size

{references}
- Settings: recipe=tuned loss=quadratic, N = 500. Results of the weighted estimate on the test part. The splits are
  paired: proximal, uniform and the fisher_rao of the third table use the same rows, initial cloud, noise and
  hyperparameters, which are selected with weights=proximal. "Own selection" is fisher_rao with hyperparameters selected
  with weights=fisher_rao, by the same rules on the same rows.
- Differences are proximal minus the other update. ± is the half-width of Student's 95 % interval over the splits, which
  is too narrow because random splits of one dataset overlap. The half-width in brackets is Nadeau and Bengio's
  corrected one ({ratio} times as wide for halves), which decides the verdicts here and in compare.md. * marks a clear
  difference: its corrected interval does not contain 0.
- The fits were made with revision 1 of the recursion (version 0.1), those of "own selection" with revision 2, whose
  noise and last bits differ but whose results have the same distribution.
- Diverged: number of fits with a test risk above 10; always predicting 0 has a risk of about 1.
- Majority class: the accuracy of always predicting the more frequent class of the training part.
- sine has one split and 20 seeds, whose results are independent, so both intervals are the same.
- Settings, data checksums and versions of all fits: weights/results.jsonl (`make weights`).
"""

WEIGHTS = FitMeasurement(
    "weights",
    "Do the proximal weights help?",
    20,
    {
        **dict.fromkeys(("wdbc", "diabetes", "banana", "twonorm", "digits"), HALF),
        "shd": ("dataset.split=shuffled", "dataset.train_fraction=0.6277"),
        "sine": (),
    },
    measure_updates,
    1,
    page_body,
    # These overrides restore the selection and the schedules of revision 1.
    common=(
        "loss=quadratic",
        "confinement=0",
        "h_schedule=constant",
        "horizon=1000",
        "batch_size=null",
        "selection_rows=null",
    ),
)
OWN_SELECTION = replace(WEIGHTS, fit=measure_own_selection, revision=2, common=(*WEIGHTS.common, "weights=fisher_rao"))
WEIGHTS = replace(WEIGHTS, further=(OWN_SELECTION,))
