"""Table 4: banana, diabetes and twonorm, beside the majority class and the figures that the paper quotes."""

from __future__ import annotations

from pathlib import Path

from proxlearn.compare.statistics import MeanSd
from proxlearn.paper import published
from proxlearn.views.run.tables import majority_share
from reproduce.measured import summarise, verdict
from reproduce.source import Found, complete, load, steps
from reproduce.table import Cell, Column, Row, Table

MAJORITY_NOTE = "Majority class: the test accuracy of always answering the training part's more frequent class."


def table4(root: Path) -> Table:
    runs = load(root, "table4")
    rows = []
    for name, (weighted, unweighted) in published.TABLE4.items():
        here = [each for each in runs if each["dataset"]["name"] == name]
        wanted = published.STEPS[name]
        whole = complete(here, wanted)
        ours = [
            summarise(each.final(f"test_accuracy_{which}") for each in here) for which in ("weighted", "unweighted")
        ]
        said = [verdict(a, b, 0.0, 3, whole) for a, b in zip(ours, (weighted, unweighted), strict=True)]
        cells: list[Cell] = [
            name,
            len(here),
            steps(here, wanted),
            ours[0],
            weighted,
            said[0],
            ours[1],
            unweighted,
            said[1],
        ]
        cells += [majority(here), *published.TABLE4_QUOTED[name], summarise(each.seconds for each in here)]
        rows.append(Row(cells, here))
    return Table(
        "table4",
        "Table 4: test accuracy on three more datasets",
        (
            Column("dataset"),
            Column("runs"),
            Column("recursions"),
            Column("weighted", 3),
            Column("paper's weighted", 3),
            Column("verdict on weighted"),
            Column("unweighted", 3),
            Column("paper's unweighted", 3),
            Column("verdict on unweighted"),
            Column("majority class", 3),
            Column("JKO-ICNN (quoted)", 4),
            Column("SWGF + RealNVP (quoted)", 4),
            Column("seconds a run", 0),
        ),
        rows,
        (
            "Verdict: a mean agrees if it is within twice the spread, the root of the sum of our and the paper's "
            "squared standard deviations. A row that is not finished gets none.",
            MAJORITY_NOTE,
            "Quoted: the paper's own Table 4 takes these from Bonet et al. (2022), Table 1; they were not run here.",
            "The paper gives no times for this table.",
        ),
    )


def majority(runs: list[Found]) -> MeanSd:
    """Test accuracy of always answering the training part's more frequent class; empty where there are no classes."""
    shares = []
    for each in runs:
        if each.run.confusion is not None:
            shares.append(majority_share(each.run.confusion))
    return summarise(share for share in shares if share is not None)
