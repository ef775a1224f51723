"""Write the page on the effect of the proximal weights, which compares three weight updates on every dataset.

For each split, the hyperparameters are selected once, on the training part with weights=proximal. The three fits share
these hyperparameters, the initial cloud and the noise, and differ only in the weight update.
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
from proxlearn.run.experiment import build_experiment
from proxlearn.training.fit import fit
from proxlearn.training.successive_halving import select

UPDATES: tuple[Weights, ...] = ("proximal", "uniform", "fisher_rao")
OTHERS = UPDATES[1:]
DIVERGED_RISK = 10.0
"""Test risk above which a fit has diverged; the risk of always predicting 0 is about 1."""


def measure_updates(config: TrainConfig) -> FitResult:
    """Return the test metrics of the weighted estimate per weight update, and the accuracy of the majority class."""
    experiment = build_experiment(config)
    problem, test, seed = experiment.source, experiment.prepared.test, config.seed
    result: FitResult = {"majority": majority_accuracy(experiment.prepared)}
    start = time.monotonic()
    shared = select(problem, experiment.settings, seed=seed, threads=1).settings
    for weights in UPDATES:
        settings = replace(shared, weights=weights)
        cloud = fit(problem, settings, seed=seed, threads=1).cloud.to("cpu", torch.float64)
        figures = scores(problem.neuron, cloud, test, problem.loss)
        result[weights] = {
            "risk": figures["risk_weighted"],
            "accuracy": figures.get("accuracy_weighted"),
            "ess": float(effective_sample_size(cloud.log_rho)),
            "seconds": time.monotonic() - start,
            **{name: getattr(settings, name) for name in ("h", "beta", "epsilon", "init_scale", "steps")},
        }
        start = time.monotonic()
    return result


def split_ratio(dataset: str) -> float:
    """Return the ratio of test to training rows in the random splits of a dataset; 0 if it has only one split."""
    overrides = (override.partition("=") for override in WEIGHTS.overrides[dataset])
    fractions = [float(value) for key, _, value in overrides if key == "dataset.train_fraction"]
    return (1 - fractions[0]) / fractions[0] if fractions else 0.0


def difference(dataset: str, fits: list[FitResult], figure: str, other: Weights) -> Interval | None:
    """Return the mean difference between the proximal and another update, with its confidence intervals.

    The result is None if the metric is absent, or if it is the risk and a fit has diverged.
    """
    if fits[0]["proximal"][figure] is None or (figure == "risk" and diverged(fits, other)):
        return None
    first, second = (dict(enumerate(result[weights][figure] for result in fits)) for weights in ("proximal", other))
    return paired(first, second, split_ratio(dataset))


def diverged(fits: list[FitResult], weights: Weights) -> int:
    return sum(not result[weights]["risk"] <= DIVERGED_RISK for result in fits)


def difference_text(dataset: str, fits: list[FitResult], figure: str, other: Weights) -> str:
    if figure == "risk" and (count := diverged(fits, other)):
        return f"diverged ({count} of {len(fits)})"
    interval = difference(dataset, fits, figure, other)
    return "" if interval is None else interval.text(shown_digits(interval))


def shown_digits(interval: Interval) -> int:
    """Return the number of decimal places: 4, or more if Student's half-width would be shown as 0."""
    return 4 if not 0 < interval.student < 5e-5 else math.ceil(-math.log10(interval.student))


def page_body(results: Mapping[str, list[FitResult]]) -> str:
    complete = {dataset: fits for dataset, fits in results.items() if len(fits) > 1}
    tables = {}
    for figure in ("risk", "accuracy"):
        rows = [["dataset", "splits", "proximal", *(f"− {other}" for other in OTHERS)]]
        for dataset, fits in complete.items():
            if fits[0]["proximal"][figure] is not None:
                own = f"{mean(result['proximal'][figure] for result in fits):.4f}"
                others = [difference_text(dataset, fits, figure, other) for other in OTHERS]
                rows.append([dataset, str(len(fits)), own, *others])
        tables[figure] = markdown_table(rows)
    references = [["dataset", "majority class", "ESS / N, proximal", "ESS / N, fisher_rao"]]
    for dataset, fits in complete.items():
        majority = [result["majority"] for result in fits if result["majority"] is not None]
        sizes = [f"{mean(result[name]['ess'] for result in fits) / 500:.2f}" for name in ("proximal", "fisher_rao")]
        references.append([dataset, f"{mean(majority):.4f}" if majority else "", *sizes])
    return BODY.format(conclusion=conclusion(complete), references=markdown_table(references), **tables)


def conclusion(results: Mapping[str, list[FitResult]]) -> str:
    """Return one line that lists the differences whose corrected intervals exclude 0."""
    sentences = []
    for other in OTHERS:
        clear = [
            f"{'better' if (interval.mean > 0) == (figure == 'accuracy') else 'worse'} {figure} on {dataset}"
            for dataset, fits in results.items()
            for figure in ("accuracy", "risk")
            if (interval := difference(dataset, fits, figure, other)) is not None and interval.excludes_zero
        ]
        answer = f"a clear difference: {', '.join(clear)}" if clear else "no clear difference on any dataset"
        sentences.append(f"compared with weights={other}, {answer}")
    text = "; ".join(sentences)
    return f"Proximal weights, over {len(results)} datasets: {text}."


BODY = """\
{conclusion}

## Test risk (lower is better)

{risk}
## Test accuracy (higher is better)

{accuracy}
## Majority class and effective sample size

{references}
- Settings: recipe=tuned loss=quadratic, N = 500. Results of the weighted estimate on the test part. The splits are
  paired: all three updates share the rows, the initial cloud, the noise and the hyperparameters, which are selected
  with weights=proximal.
- Differences are proximal minus the other update, with half-widths of 95 % intervals over the splits: ± Student's,
  which is too narrow because random splits of one dataset overlap, and in brackets Nadeau and Bengio's corrected one
  (4.6 times as wide for halves). * marks a clear difference, whose corrected interval does not contain 0.
- Measured with revision 1 of the recursion (version 0.1). Revision 2 has different noise and different last bits, but
  the same distribution.
- Diverged: fits with a test risk above 10; the risk of always predicting 0 is about 1.
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
    common=("loss=quadratic",),
)
