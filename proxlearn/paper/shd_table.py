"""Build the table that compares our accuracies on SHD with those in the text of Section 5 of the paper."""

from __future__ import annotations

from proxlearn.compare.statistics import MeanSd, summarise
from proxlearn.paper import published
from proxlearn.paper.archive import Archive
from proxlearn.paper.result_table import (
    Cell,
    PageSection,
    ResultTable,
    TableColumn,
    TableRow,
    conclusion,
    is_complete,
    length_text,
    verdict,
)
from proxlearn.paper.table4 import MAJORITY_NOTE, majority
from proxlearn.paper.wdbc_tables import ALLOWED_POINTS

LONG = "fig3"
RUNS = {LONG: "the long run", "fig3-start": "short runs from the same first cloud"}


def shd_table(archive: Archive) -> ResultTable:
    rows, verdicts = [], {}
    for entry, description in RUNS.items():
        runs, steps = archive.runs(entry), published.STEPS["shd"]
        for part, paper in published.SHD.items():
            particle, weighted, unweighted = (
                summarise(100 * run.final(f"{part}_accuracy_{estimate}") for run in runs)
                for estimate in ("particle", "weighted", "unweighted")
            )
            words = ""
            if entry == LONG:
                words = verdict(particle, MeanSd(paper), ALLOWED_POINTS, 2, is_complete(runs, steps))
                verdicts[f"the {part} accuracy"] = words
            hours = summarise(run.seconds / 3600 for run in runs)
            majority_share = MeanSd(100 * majority(runs).mean) if part == "test" else ""
            cells: list[Cell] = [description, part, len(runs), length_text(runs, steps), majority_share]
            cells += [particle, paper, words, weighted, unweighted, hours, published.SHD_HOURS]
            rows.append(TableRow(cells, runs))
    return ResultTable(
        "shd",
        "SHD: accuracy after a million recursions",
        conclusion(verdicts, "accuracies", " points"),
        (
            TableColumn("runs of", short="runs"),
            TableColumn("part"),
            TableColumn("runs", short="number"),
            TableColumn("recursions"),
            TableColumn("majority class (%)"),
            TableColumn("a particle (%)", short="mean (%)"),
            TableColumn("paper's", short="the paper"),
            TableColumn("verdict"),
            TableColumn("ensemble, weighted (%)", short="weighted (%)"),
            TableColumn("ensemble, unweighted (%)", short="unweighted (%)"),
            TableColumn("hours"),
            TableColumn("paper's hours for 1e6", 1),
        ),
        (
            PageSection(
                "Accuracy of single particles, averaged", ("runs of", "part", "a particle (%)", "paper's", "verdict")
            ),
            PageSection(
                "Accuracy of the ensemble",
                ("runs of", "part", "ensemble, weighted (%)", "ensemble, unweighted (%)", "majority class (%)"),
            ),
            PageSection(
                "Runs",
                ("runs of", "runs", "recursions", "hours", "paper's hours for 1e6"),
                lambda row: row.cells[1] == "test",
            ),
        ),
        rows,
        (
            f"Verdict: an accuracy agrees if it is within {ALLOWED_POINTS:g} points of the paper's. A row with "
            "unfinished runs has no verdict.",
            "Mean: the accuracy of the predictions of a single particle, averaged over the particles; "
            "the paper states this accuracy. Ensemble: the most probable class under the mean of the particles.",
            MAJORITY_NOTE,
            "The paper made 30 runs of 10^6 recursions. Here, one run has this length, and 30 short runs show the "
            "spread at the start.",
        ),
    )
