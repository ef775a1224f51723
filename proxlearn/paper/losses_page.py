"""Write the page that compares the quadratic loss with the logistic loss or cross-entropy, with recipe=tuned.

The settings are selected on the training part, separately for each loss; both losses use the same seed and rows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from statistics import mean

import torch

from proxlearn.compare.statistics import paired, summarise
from proxlearn.config.schema import TrainConfig
from proxlearn.core.losses import RECOMMENDED_LOSSES, with_link
from proxlearn.core.tasks import scores
from proxlearn.paper.repeated_fits import HALF, FitMeasurement, FitResult, majority_accuracy
from proxlearn.paper.result_table import cell_text, markdown_table
from proxlearn.run.experiment import build_experiment
from proxlearn.training.fit import fit
from proxlearn.training.successive_halving import THOROUGH_RUNGS, select
from proxlearn.views.tables import enumeration

FIGURES = {"log_loss": "log-loss", "accuracy": "accuracy", "calibration_error": "calibration error"}
SPLITS = 5


def measure_losses(config: TrainConfig) -> FitResult:
    """Return the test metrics of the weighted estimate for the quadratic loss and the recommended loss of the task."""
    task = build_experiment(replace(config, loss="quadratic")).prepared.table.task
    result: FitResult = {}
    for kind, loss in (("quadratic", "quadratic"), ("likelihood", RECOMMENDED_LOSSES[task])):
        experiment = build_experiment(replace(config, loss=loss))
        problem, test = experiment.source, experiment.prepared.test
        start = time.monotonic()
        selection = select(problem, experiment.settings, seed=config.seed, threads=1, rungs=THOROUGH_RUNGS)
        settings = selection.settings
        cloud = fit(problem, settings, seed=config.seed, threads=1).cloud.to("cpu", torch.float64)
        # The likelihood losses are measured without a link, with the probabilities that they define.
        link = with_link(problem.loss, selection.link_slope) if kind == "quadratic" else problem.loss
        figures = scores(problem.neuron, cloud, test, link)
        result[kind] = {
            "loss": loss,
            **{name: figures[f"{name}_weighted"] for name in FIGURES},
            **{name: getattr(settings, name) for name in ("h", "beta", "epsilon", "init_scale", "steps")},
            "seconds": time.monotonic() - start,
        }
        result["majority"] = majority_accuracy(experiment.prepared)
    return result


def page_body(results: Mapping[str, list[FitResult]]) -> str:
    tables, clear = {}, []
    for name, title in FIGURES.items():
        rows = [["dataset", "fits", "quadratic", "likelihood loss", "difference"]]
        for dataset, fits in results.items():
            ours, theirs = ({i: result[kind][name] for i, result in enumerate(fits)} for kind in KINDS[::-1])
            interval = paired(ours, theirs, 0.0 if dataset == "shd" else 1.0)
            values = [cell_text(summarise([result[kind][name] for result in fits]), 4) for kind in KINDS]
            label = f"{dataset} ({fits[0]['likelihood']['loss']})"
            rows.append([label, str(len(fits)), *values, "" if interval is None else interval.text(4)])
            if interval is not None and interval.excludes_zero:
                clear.append(f"a {'higher' if interval.mean > 0 else 'lower'} {title} on {dataset}")
        tables[name] = markdown_table(rows)
    means = [[mean(result[kind]["log_loss"] for result in fits) for kind in KINDS] for fits in results.values()]
    lower = sum(likelihood < quadratic for quadratic, likelihood in means)
    conclusion = (
        f"The likelihood losses have the lower test log-loss on {lower} of {len(results)} datasets. "
        f"Clear differences from the quadratic loss: {enumeration(clear) or 'none'}."
    )
    return BODY.format(conclusion=conclusion, splits=SPLITS, **tables)


KINDS = ("quadratic", "likelihood")
BODY = """\
{conclusion}

## Test log-loss (lower is better)

{log_loss}
## Test accuracy (higher is better)

{accuracy}
## Calibration error (lower is better)

{calibration_error}
- Settings: recipe=tuned, N = 500, weights=proximal. Results of the weighted estimate on the test part, for {splits}
  random halves per dataset; shd has the paper's split with {splits} seeds. Each loss has its own settings, selected on
  the training part.
- The likelihood loss is the logistic loss for two classes and cross-entropy for more classes.
- Differences are the likelihood loss minus the quadratic loss on paired splits. ± is the half-width of Student's 95 %
  interval, which is too narrow because random splits of one dataset overlap; the half-width in brackets is Nadeau and
  Bengio's corrected one. * marks a difference whose corrected interval does not contain 0.
- The probabilities of the quadratic loss come from a logistic curve or softmax of the outputs times a slope, which is
  fitted to the quarter that the selection holds out. No probability is below 1e-6.
- Settings, data checksums and versions of all fits: losses/results.jsonl (`make losses`).
"""

LOSSES = FitMeasurement(
    "losses",
    "Which loss for classes?",
    SPLITS,
    {**dict.fromkeys(("wdbc", "diabetes", "wine", "digits"), HALF), "shd": ()},
    measure_losses,
    4,
    page_body,
)
