"""The summary that `proxlearn fit` prints: the result in plain words and in the units of the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from proxlearn.core.estimates import ESTIMATES
from proxlearn.files.user_paths import display_path
from proxlearn.views.markdown import markdown
from proxlearn.views.run.run_data import RunData, read_run_data

CLASS_ROWS = {
    "accuracy": "share of correct predictions",
    "log_loss": "log-loss (lower is better)",
    "calibration_error": "error of the stated probabilities",
}


def plain_summary(folder: Path) -> str:
    """Return the results on the test rows beside those of a constant prediction, and the command for new rows."""
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
    place = display_path(folder)
    lines.append(f"Predict new rows: proxlearn predict {place} --data new.csv -o out.csv")
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
    table: dict[str, list[Any]] = {"on rows that were not used for the fit": list(rows.values())}
    for estimate, title in zip(estimates, ("model", heading), strict=False):
        values = [float(scores[key][estimate]) for key in rows]
        # The error is stored in units of the target's standard deviation.
        factor = model["target_scaling"]["factor"][0]
        table[title] = [value / factor if key == "rmse" else value for key, value in zip(rows, values, strict=True)]
    return pd.DataFrame(table)


def _regression_rows(model: dict[str, Any]) -> dict[str, str]:
    explained = {"r2": "explained share of the variance (R2)"}
    if isinstance(model["target"], list):
        # The error of several targets together has no unit; `proxlearn evaluate` reports the error of each.
        return explained
    return {"rmse": f"typical error (in units of `{model['target']}`)", **explained}
