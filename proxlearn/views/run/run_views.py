"""Write all tables and plots of a run folder, and compose the summaries that `train` and `fit` print."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pandas as pd

from proxlearn.core.hyper import kappa_sentence
from proxlearn.core.tasks import ESTIMATES
from proxlearn.files.atomic import write_atomically
from proxlearn.files.safe_read import display_path
from proxlearn.printable_text import counted
from proxlearn.views.run import run_plots
from proxlearn.views.run.run_data import RunData, read_run_data
from proxlearn.views.style import house_style
from proxlearn.views.tables import markdown, plain_number

ESTIMATE_NOTE = """\
`weighted`: the mean of the neurons with the weights rho / sum rho. `unweighted`: their plain mean. If the rho_i are
density values at points drawn from that density, the plain mean already estimates the integral, and the weighted mean
estimates the integral against rho^2.
"""
RISK_PAPER_NOTE = """\
`risk_paper`: the quantity in the paper's curves, a norm divided by the number of rows; not comparable with `risk`.
"""
ROW_NOTES = {
    "unweighted_saturated": """\
`unweighted_saturated`: a point counts as correct only if logistic(f) is within 1e-3 of its label, as in the paper's
"unweighted" columns for WDBC.
""",
    "particle": """\
`particle`: every particle predicts by itself, and the accuracy is averaged over particles, as in the paper's accuracy
for SHD.
""",
    "majority_class": """\
`majority_class`: a reference that predicts the most frequent class of the training part for every row, and the
frequencies of the classes in the training part as probabilities.
""",
    "mean": """\
`mean`: a reference that predicts the mean of the training targets for every row.
""",
}
"""Notes, by estimate, on rows that only some tables have."""


def write_accuracy(run: RunData) -> list[Path]:
    """Write accuracy.md, which contains accuracy.csv as a Markdown table with notes; return the paths written."""
    if run.accuracy is None:
        return []
    path = run.path / "accuracy.md"
    recursions = "" if run.results_step is None else f": after {run.results_step} recursions"
    heading = f"# {run.title}{recursions}\n\n" + (f"{as_sentence(run.results_note)}\n\n" if run.results_note else "")
    notes = "".join(table_notes(run.accuracy))
    write_atomically(path, (heading + markdown(run.accuracy) + "\n" + notes).encode())
    return [path]


def table_notes(accuracy: pd.DataFrame) -> list[str]:
    """Return the notes that explain the rows of accuracy.csv."""
    rows = set(accuracy["estimate"])
    columns = [RISK_PAPER_NOTE] if "risk_paper" in accuracy else []
    return [ESTIMATE_NOTE, *columns, *(note for row, note in ROW_NOTES.items() if row in rows)]


def remarks(run: RunData) -> list[str]:
    """Return sentences on facts that the metrics alone do not show, such as steps that did not converge."""
    sentences = []
    # Tables of earlier versions have no row for the majority class.
    has_reference = run.accuracy is not None and "majority_class" in set(run.accuracy["estimate"])
    if not has_reference and run.confusion is not None and (majority := majority_share(run.confusion)) is not None:
        sentences.append(
            f"Always predicting the most frequent class of the training part gives a test accuracy of {majority:.4g}."
        )
    if run.config["dataset"]["scaling"] == "paper":
        separately = (
            ", separately for each part: the features of a test point depend on the other test points"
            if run.model["scaled_apart"]
            else ""
        )
        sentences.append(
            f"dataset.scaling=paper: the features are scaled as in the paper{separately}. "
            "The other scalings use the training part only."
        )
    factor = run.model["target_scaling"]["factor"][0] if not isinstance(run.model.get("target"), list) else 1.0
    # Earlier versions stored a factor of 0 for targets of 1e200.
    if factor not in (0.0, 1.0):
        sentences.append(
            f"The target was standardised, so risk and rmse are in units of its standard deviation, {1 / factor:.4g}."
        )
    quantile = run.config.get("epsilon_quantile")
    if quantile is not None:
        name = "median" if quantile == 0.5 else f"{quantile:g}-quantile of the"
        factor = f"{run.config['epsilon']:g}"
        distance = f"{name} squared distance of a particle to its nearest neighbour"
        sentences.append(f"ε={factor}×NN²: epsilon is {factor} times the {distance}.")
    step = weights_constant_from(run)
    if step is not None:
        # What kappa says about the effect of a step does not hold for a step without effect.
        sentences.append(f"From recursion {step} on, no logged proximal step changed the weights.")
    elif run.kappa is not None and not _is_kappa_selected(run):
        sentences.append(kappa_sentence(run.kappa, run.config["dataset"].get("noise_scale", 1.0)))
    if run.status["unmet"]:
        count, L = run.status["unmet"], run.config["L"]
        sentences.append(
            f"{count} of {run.status['step']} proximal steps did not reach their tolerance within L={L} rounds."
        )
    if run.status["switched_at"] is not None:
        before, after = run.config["device"]["dtype"], run.status["dtype"]
        sentences.append(
            f"Step {run.status['switched_at']} was not finite in {before}; from this step on, the run used {after}."
        )
    return sentences


def _is_kappa_selected(run: RunData) -> bool:
    """Return whether the selection chose beta, epsilon and h, the parameters in kappa = beta epsilon / h.

    The selection chooses them for the risk of the network, so the summary of such a run does not explain kappa.
    """
    selected = run.status.get("selected")
    return isinstance(selected, dict) and {"beta", "epsilon", "h"} <= set(selected)


def weights_constant_from(run: RunData) -> int | None:
    """Return the first logged step from which on all logged steps leave the weights unchanged up to rounding.

    Return None if there is no such step. It is not sufficient that the kernel is close to the identity: if a heavy
    particle transfers even a small fraction of its mass to a light particle, the weight of the light particle can
    change considerably.
    """
    if "weights_change" not in run.metrics:
        return None
    changes = run.metrics.dropna(subset=["weights_change"])
    changing_steps = changes[changes["weights_change"] > run.rounding_unit]["step"]
    constant = changes[changes["step"] > changing_steps.max()] if len(changing_steps) else changes
    return int(constant["step"].min()) if len(constant) else None


def majority_share(confusion: pd.DataFrame) -> float | None:
    """Return the share of the test rows that belong to the most frequent class of the training part.

    The result is None if a part has no rows.
    """
    rows = confusion[confusion["estimate"] == ESTIMATES[0]].groupby(["part", "actual"])["count"].sum()
    parts = set(rows.index.get_level_values("part"))
    if not {"train", "test"} <= parts or not rows["test"].sum():
        return None
    return float(rows["test"].get(rows["train"].idxmax(), 0) / rows["test"].sum())


def as_sentence(note: str) -> str:
    """Return a note with a capital first letter and a full stop."""
    return note[:1].upper() + note[1:] + "."


CLASS_ROWS = {
    "accuracy": "share of correct predictions",
    "log_loss": "log-loss (lower is better)",
    "calibration_error": "error of the stated probabilities",
}


def plain_summary(folder: Path) -> str:
    """Return the test results of the model and of a constant prediction, and the command that predicts new rows."""
    run = read_run_data(folder)
    model = run.model
    target = model.get("target")
    names = target if isinstance(target, list) else [target]
    listed = " and ".join(f"`{name}`" for name in names)
    kind = f"one of {len(model['classes'])} classes" if model["classes"] else "a number"
    lines = [f"\n{run.data_name}: {listed}, {kind if len(names) == 1 else 'numbers'}\n"]
    if run.accuracy is not None:
        lines.append(markdown(result_table(run)))
    if run.status["state"] != "finished":
        lines.append(f"The fit is not complete: it is at step {run.status['step']}. The same command continues it.")
    share = run.config["dataset"]["train_fraction"]
    lines.append(f"The model was fitted to {share:.0%} of the rows; the table shows its results on the other rows.\n")
    place = display_path(folder)
    lines.append(f"Predict new rows: proxlearn predict {shlex.quote(place)} --data new.csv -o out.csv")
    lines.append(f"Curves, tables and settings: {place}")
    return "\n".join(lines) + "\n"


def result_table(run: RunData) -> pd.DataFrame:
    """Return the scores of the model and of the constant prediction on the test rows."""
    assert run.accuracy is not None
    scores = run.accuracy[run.accuracy["part"] == "test"].set_index("estimate")
    model, classes = run.model, run.model["classes"]
    reference = "majority_class" if classes else "mean"
    heading = "always the most frequent class" if classes else "always the mean"
    estimates = [ESTIMATES[0], *([reference] if reference in scores.index else [])]
    rows = dict(CLASS_ROWS) if classes else _regression_rows(model)
    table: dict[str, list[Any]] = {f"on {_test_rows(run)} not used for the fit": list(rows.values())}
    for estimate, title in zip(estimates, ("model", heading), strict=False):
        values = [float(scores[key][estimate]) for key in rows]
        # The error is stored in units of the target's standard deviation.
        factor = model["target_scaling"]["factor"][0]
        table[title] = [
            plain_number(value / factor) if key == "rmse" else value for key, value in zip(rows, values, strict=True)
        ]
    return pd.DataFrame(table)


def _test_rows(run: RunData) -> str:
    """Return a phrase such as "48 rows that were", or "rows that were" if the number of test rows is unknown."""
    if run.confusion is None:
        return "rows that were"
    counts = run.confusion[(run.confusion["part"] == "test") & (run.confusion["estimate"] == ESTIMATES[0])]["count"]
    number = int(counts.sum())
    return f"{counted(number, 'row')} that {'was' if number == 1 else 'were'}"


def _regression_rows(model: dict[str, Any]) -> dict[str, str]:
    explained = {"r2": "explained share of the variance (R2)"}
    if isinstance(model["target"], list):
        # The error of several targets together has no unit; `proxlearn evaluate` reports the error of each.
        return explained
    return {"rmse": f"typical error (RMSE, in units of `{model['target']}`)", **explained}


def render_run(folder: Path) -> list[Path]:
    """Write all tables and plots for which the run folder has the necessary files; return their paths."""
    run = read_run_data(folder)
    paths = write_accuracy(run)
    with house_style():
        paths += run_plots.draw_risk(run) + run_plots.draw_health(run)
        if run.confusion is not None:
            paths += run_plots.draw_confusion(run)
        if has_learned_function(run):
            paths += run_plots.draw_function(run)
        if has_regions(run):
            paths += run_plots.draw_regions(run)
        if run.model["image"] and run.model["neuron"].startswith("softmax"):
            paths += run_plots.draw_images(run)
    return paths


def has_learned_function(run: RunData) -> bool:
    """Return whether f is a function of one feature with a single output, so that it can be drawn as a curve."""
    has_several_targets = isinstance(run.model.get("target"), list)
    return len(run.model["columns"]) == 1 and run.model["task"] != "multiclass" and not has_several_targets


def has_regions(run: RunData) -> bool:
    """Return whether the data have classes and two features, so that decision regions can be drawn."""
    return len(run.model["columns"]) == 2 and bool(run.model["classes"])


def summary(folder: Path) -> str:
    """Return the text that a run prints at its end: its results, remarks, and the path of the risk curve."""
    run = read_run_data(folder)
    status = run.status
    duration = f"{status['seconds']:.1f} s"
    if run.selection_seconds is not None:
        total = status["seconds"] + run.selection_seconds
        duration = f"{total:.1f} s, of which the selection took {run.selection_seconds:.1f} s"
    lines = [f"\n{run.title}: {status['state']} at step {status['step']} after {duration}\n"]
    if run.accuracy is not None:
        lines.append(markdown(run.accuracy))
        lines += [as_sentence(run.results_note)] if run.results_note else []
    lines += remarks(run)
    lines.append(f"\nRisk curve: {display_path(folder / 'risk.png')}; the other results are in the same folder.")
    return "\n".join(lines) + "\n"
