"""Tables for people: accuracy.md, and the lines a run ends with."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from proxlearn.core.estimates import ESTIMATES
from proxlearn.files.atomic import write_atomically
from proxlearn.views.run.run_data import RunData


def markdown(table: pd.DataFrame) -> str:
    """A table in aligned Markdown; numbers to four digits, empty where there is none."""
    rows = (list(table.columns), *table.itertuples(index=False))
    cells = [[escaped(cell(value)) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.columns))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def write_accuracy(run: RunData) -> list[Path]:
    """accuracy.md: accuracy.csv as a person reads it."""
    if run.accuracy is None:
        return []
    path = run.path / "accuracy.md"
    after = "" if run.figures_step is None else f": after {run.figures_step} recursions"
    heading = f"# {run.title}{after}\n\n" + (f"{sentence(run.figures_note)}\n\n" if run.figures_note else "")
    notes = NOTE + "".join(note for row, note in MORE_NOTES.items() if row in set(run.accuracy["estimate"]))
    write_atomically(path, (heading + markdown(run.accuracy) + "\n" + notes).encode())
    return [path]


NOTE = """\
`weighted`: mean of the neurons under rho / sum rho. `unweighted`: their plain mean. If the rho_i are density values at
points drawn from that density, the plain mean already estimates the integral, and the weighted one the integral against
rho^2.
"""
MORE_NOTES = {
    "unweighted_saturated": """\
`unweighted_saturated`: a point counts only if logistic(f) is within 1e-3 of its label, which is what the paper's
"unweighted" columns for WDBC contain.
""",
    "particle": """\
`particle`: every particle votes by itself, and its vote is compared with the label: the paper's accuracy for SHD.
""",
}
"""What else a row of the table may be."""


def remarks(run: RunData) -> list[str]:
    """What a user should know about this run and would not see in its accuracy."""
    said = []
    if run.confusion is not None and (majority := majority_share(run.confusion)) is not None:
        said.append(f"Always answering the training part's more frequent class has a test accuracy of {majority:.4g}.")
    if run.config["dataset"]["scaling"] == "paper":
        apart = ", each part by its own figures: a test point's features depend on the other test points"
        said.append(
            "dataset.scaling=paper: the features were scaled as the paper did"
            f"{apart if run.model['scaled_apart'] else ''}. The other scalings look at the training part only."
        )
    factor = run.model["target_scaling"]["factor"][0]
    # Earlier versions stored a factor of 0 for targets of 1e200.
    if factor not in (0.0, 1.0):
        unit = 1 / factor
        said.append(f"The target was standardised: risk and rmse are in units of its standard deviation, {unit:.4g}.")
    since = weights_stay_from(run)
    if since is not None:
        said.append(f"At every logged recursion from {since} on, the proximal step left the weights as they were.")
    if run.status["unmet"]:
        count, L = run.status["unmet"], run.config["L"]
        said.append(f"{count} of {run.status['step']} proximal steps did not meet their tolerance within L={L} rounds.")
    if run.status["switched_at"] is not None:
        before, after = run.config["device"]["dtype"], run.status["dtype"]
        said.append(f"Not finite in {before} at step {run.status['switched_at']}: went on in {after}.")
    return said


def weights_stay_from(run: RunData) -> int | None:
    """The first logged step from which on no logged proximal step changed a weight beyond rounding, if there is one.

    A kernel near the identity is no criterion: a light particle's weight may change by a small share of a heavy one's.
    """
    if "weights_change" not in run.metrics:
        return None
    unit = 2.0**-53 if run.status["dtype"] == "float64" else 2.0**-24
    changes = run.metrics.dropna(subset=["weights_change"])
    moving = changes[changes["weights_change"] > unit]["step"]
    still = changes[changes["step"] > moving.max()] if len(moving) else changes
    return int(still["step"].min()) if len(still) else None


def majority_share(confusion: pd.DataFrame) -> float | None:
    """Share of the test part that is of the training part's most frequent class; None where a part has no rows."""
    rows = confusion[confusion["estimate"] == ESTIMATES[0]].groupby(["part", "actual"])["count"].sum()
    parts = set(rows.index.get_level_values("part"))
    if not {"train", "test"} <= parts or not rows["test"].sum():
        return None
    return float(rows["test"].get(rows["train"].idxmax(), 0) / rows["test"].sum())


def cell(value: object) -> str:
    """Four digits of a number; empty where there is none."""
    if isinstance(value, float):
        return "" if pd.isna(value) else f"{value:.4g}"
    return str(value)


def sentence(note: str) -> str:
    """A note as a sentence."""
    return note[:1].upper() + note[1:] + "."


def escaped(text: str) -> str:
    """The text of one Markdown cell: a `|` or a new line of a name's own would begin another cell or row."""
    # Backslashes before a `|` are doubled: they would escape one another, and leave the `|` to end the cell.
    return re.sub(r"(\\*)\|", r"\1\1\\|", " ".join(text.splitlines()))
