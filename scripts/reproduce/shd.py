"""Section 5's accuracies on handwritten digits: the paper prints them in the text, beside Figure 3."""

from __future__ import annotations

from pathlib import Path

from proxlearn.compare.statistics import MeanSd
from proxlearn.paper import published
from reproduce.comparison import MAJORITY_NOTE, majority
from reproduce.measured import summarise, verdict
from reproduce.source import complete, load, steps
from reproduce.table import Cell, Column, Row, Table
from reproduce.wdbc import POINTS

RUNS = {"fig3": "the long run", "fig3-start": "short runs from the same first cloud"}


def shd(root: Path) -> Table:
    rows = []
    for entry, what in RUNS.items():
        runs = load(root, entry)
        for part, paper in published.SHD.items():
            columns = [f"{part}_accuracy_{name}" for name in ("particle", "weighted", "unweighted")]
            ours = [summarise(100 * each.final(column) for each in runs) for column in columns]
            wanted = published.STEPS["shd"]
            said = verdict(ours[0], MeanSd(paper), POINTS, 2, complete(runs, wanted)) if entry == "fig3" else ""
            time = summarise(each.seconds / 3600 for each in runs)
            most = MeanSd(100 * majority(runs).mean) if part == "test" else ""
            cells: list[Cell] = [what, part, len(runs), steps(runs, wanted), most, ours[0], paper, said]
            rows.append(Row([*cells, *ours[1:], time, published.SHD_HOURS], runs))
    return Table(
        "shd",
        "SHD: accuracy after a million recursions",
        (
            Column("runs of"),
            Column("part"),
            Column("runs"),
            Column("recursions"),
            Column("majority class (%)"),
            Column("a particle (%)"),
            Column("paper's"),
            Column("verdict"),
            Column("ensemble, weighted (%)"),
            Column("ensemble, unweighted (%)"),
            Column("hours"),
            Column("paper's hours for 1e6", 1),
        ),
        rows,
        (
            f"Verdict: agrees if within {POINTS:g} points. A row that is not finished gets none.",
            "A particle: each particle answers alone, and its answers are compared with the labels, averaged over "
            "particles; that is the paper's accuracy. Ensemble: the most probable class of the mean.",
            MAJORITY_NOTE,
            "The paper made 30 runs of 10^6 recursions; here one is that long, and 30 show the spread at the start.",
        ),
    )
