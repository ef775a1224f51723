"""Tables 1, 2 and 3: the WDBC experiments."""

from __future__ import annotations

from pathlib import Path

from proxlearn.compare.statistics import MeanSd
from proxlearn.paper import published
from reproduce.comparison import MAJORITY_NOTE, majority
from reproduce.measured import summarise, verdict
from reproduce.source import Found, complete, load, steps
from reproduce.table import Cell, Column, Row, Table

POINTS = 2.0
"""Per cent of accuracy within which a figure counts as the paper's: its test part has 170 rows, so one is .6."""
SHARE = 0.15
"""The same for a risk, as a share of the paper's."""

ACCURACY_RULE = (
    f"Verdict: a mean agrees with the paper's if it is within {POINTS:g} points of it, or within twice the standard "
    "deviation over our runs. A row that is not finished gets none."
)
READINGS = (
    '"Saturated": a test point counts only if logistic(f) is within 1e-3 of its label, which is what the paper\'s '
    '"unweighted" column contains. "Sign": the plain mean of the neurons, by its sign.'
)


def accuracies(runs: list[Found], table: str, paper: tuple[float, float], hours: float) -> list[Cell]:
    """The cells that Tables 1 and 2 share."""
    saturated, sign, weighted = (
        summarise(100 * each.final(f"test_accuracy_{name}") for each in runs)
        for name in ("unweighted_saturated", "unweighted", "weighted")
    )
    wanted = published.STEPS[table]
    whole = complete(runs, wanted)
    return [
        len(runs),
        steps(runs, wanted),
        MeanSd(100 * majority(runs).mean),
        saturated,
        paper[0],
        verdict(saturated, MeanSd(paper[0]), POINTS, 2, whole),
        sign,
        weighted,
        paper[1],
        verdict(weighted, MeanSd(paper[1]), POINTS, 2, whole),
        summarise(each.seconds / 3600 for each in runs),
        hours,
    ]


ACCURACIES = (
    Column("runs"),
    Column("recursions"),
    Column("majority class (%)"),
    Column("unweighted, saturated (%)"),
    Column("paper's unweighted"),
    Column("verdict on unweighted"),
    Column("unweighted, sign (%)"),
    Column("weighted (%)"),
    Column("paper's weighted"),
    Column("verdict on weighted"),
    Column("hours"),
    Column("paper's hours", 1),
)


def table1(root: Path) -> Table:
    runs = load(root, "table1", "table1-seeds", "table1-float64")
    rows = []
    for beta, paper in published.TABLE1.items():
        for dtype in ("float32", "float64"):
            here = [each for each in runs if each["beta"] == beta and each["device"]["dtype"] == dtype]
            if here or dtype == "float32":
                rows.append(Row([beta, dtype, *accuracies(here, "table1", paper, published.TABLE1_HOURS)], here))
    return Table(
        "table1",
        "Table 1: WDBC, a million recursions, test accuracy",
        (Column("beta"), Column("precision"), *ACCURACIES),
        rows,
        (ACCURACY_RULE, READINGS, MAJORITY_NOTE, "The paper computed in float64 throughout."),
    )


def table2(root: Path) -> Table:
    runs = load(root, "table2", "table2-seeds", "table2-more")
    rows = []
    for beta, (unweighted, weighted, hours) in published.TABLE2.items():
        here = [each for each in runs if each["beta"] == beta]
        switched = sum(each.run.status["switched_at"] is not None for each in here)
        cells = accuracies(here, "table2", (unweighted, weighted), hours)
        rows.append(Row([beta, *cells, f"{switched} of {len(here)}"], here))
    return Table(
        "table2",
        "Table 2: WDBC, 250000 recursions, float32 until a value is not finite, then float64",
        (Column("beta"), *ACCURACIES, Column("went on in float64")),
        rows,
        (
            ACCURACY_RULE,
            READINGS,
            MAJORITY_NOTE,
            "The paper's hours are on a Jetson TX2; ours on one thread of a shared CPU.",
        ),
    )


def table3(root: Path) -> Table:
    runs = load(root, "table3", "table3-seeds", "table2", "table2-seeds", where=lambda each: each["beta"] == 0.05)
    rows = []
    for epsilon, (risk, seconds) in published.TABLE3.items():
        here = [each for each in runs if each["epsilon"] == epsilon]
        ours = summarise(1e3 * each.final("test_risk_paper_unweighted") for each in here)
        wanted = published.STEPS["table3"]
        said = verdict(ours, MeanSd(1e3 * risk), SHARE * 1e3 * risk, 2, complete(here, wanted))
        time = summarise(each.seconds for each in here)
        rows.append(Row([f"{epsilon:g}", len(here), steps(here, wanted), ours, 1e3 * risk, said, time, seconds], here))
    return Table(
        "table3",
        "Table 3: WDBC, beta=0.05, 250000 recursions, over epsilon",
        (
            Column("epsilon"),
            Column("runs"),
            Column("recursions"),
            Column("final risk, unweighted (1e-3)"),
            Column("paper's"),
            Column("verdict"),
            Column("seconds", 0),
            Column("paper's seconds", 0),
        ),
        rows,
        (
            f"Verdict: a mean agrees if it is within {SHARE:.0%} of the paper's, or within twice the standard "
            "deviation over our runs. A row that is not finished gets none.",
            "The risk is the quantity behind the paper's figures, `risk_paper`: 0.5/n ‖label − g‖, a norm and not its "
            "square, with g = logistic(f) snapped to 0 or 1 within 1e-3.",
            "epsilon=1 is Table 2's beta=0.05.",
        ),
    )
