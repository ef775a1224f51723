"""Build Tables 1, 2 and 3: the experiments on WDBC."""

from __future__ import annotations

from proxlearn.compare.statistics import MeanSd, summarise
from proxlearn.paper import published
from proxlearn.paper.archive import Archive, ArchivedRun
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

ALLOWED_POINTS = 2.0
"""Largest difference from the paper's accuracy, in percentage points, that counts as agreement; one test row is 0.6
points."""
ALLOWED_SHARE = 0.15
"""Largest relative difference from the paper's risk that counts as agreement."""

ACCURACY_RULE = (
    f"Verdict: a mean agrees with the paper's value if their difference is at most {ALLOWED_POINTS:g} points or at "
    "most twice the standard deviation over our runs. A row with unfinished runs has no verdict."
)
ESTIMATES_NOTE = (
    '"Saturated": a prediction counts as correct only if logistic(f) is within 1e-3 of the label, as in the paper\'s '
    '"unweighted" column. "Sign": the prediction is the sign of the plain mean of the neurons.'
)
SATURATED, SIGN, WEIGHTED = "unweighted, saturated (%)", "unweighted, sign (%)", "weighted (%)"

ACCURACY_COLUMNS = (
    TableColumn("runs"),
    TableColumn("recursions"),
    TableColumn("majority class (%)"),
    TableColumn(SATURATED, short="saturated (%)"),
    TableColumn("paper's unweighted", short="the paper"),
    TableColumn("verdict on unweighted", short="verdict"),
    TableColumn(SIGN, short="sign (%)"),
    TableColumn(WEIGHTED),
    TableColumn("paper's weighted", short="the paper"),
    TableColumn("verdict on weighted", short="verdict"),
    TableColumn("hours"),
    TableColumn("paper's hours", 1),
)


def accuracy_sections(keys: tuple[str, ...], run_columns: tuple[str, ...] = ()) -> tuple[PageSection, ...]:
    """Return the sections into which the pages of Tables 1 and 2 split their columns."""
    return (
        PageSection(
            "Weighted estimate", (*keys, WEIGHTED, "paper's weighted", "verdict on weighted", "majority class (%)")
        ),
        PageSection("Unweighted estimate", (*keys, SATURATED, "paper's unweighted", "verdict on unweighted", SIGN)),
        PageSection("Runs", (*keys, "runs", "recursions", "hours", "paper's hours", *run_columns)),
    )


def accuracy_cells(runs: list[ArchivedRun], table: str, paper: tuple[float, float], hours: float) -> list[Cell]:
    """Return the cells that Tables 1 and 2 have in common.

    ``paper`` contains the paper's unweighted and weighted accuracies, and ``hours`` the paper's time.
    """
    saturated, sign, weighted = (
        summarise(100 * run.final(f"test_accuracy_{estimate}") for run in runs)
        for estimate in ("unweighted_saturated", "unweighted", "weighted")
    )
    steps = published.STEPS[table]
    complete = is_complete(runs, steps)
    return [
        len(runs),
        length_text(runs, steps),
        MeanSd(100 * majority(runs).mean),
        saturated,
        paper[0],
        verdict(saturated, MeanSd(paper[0]), ALLOWED_POINTS, 2, complete),
        sign,
        weighted,
        paper[1],
        verdict(weighted, MeanSd(paper[1]), ALLOWED_POINTS, 2, complete),
        summarise(run.seconds / 3600 for run in runs),
        hours,
    ]


def accuracy_verdicts(setting: str, cells: list[Cell]) -> dict[str, str]:
    """Return, by subject, the verdicts in the cells that ``accuracy_cells`` returned.

    ``setting`` describes the row of the cells, for example "beta=0.05".
    """
    estimates = {"unweighted": str(cells[5]), "weighted": str(cells[9])}
    return {f"the {estimate} accuracy at {setting}": words for estimate, words in estimates.items()}


def table1(archive: Archive) -> ResultTable:
    all_runs = archive.runs("table1", "table1-seeds", "table1-float64")
    rows: list[TableRow] = []
    verdicts: dict[str, str] = {}
    for beta, paper in published.TABLE1.items():
        for dtype in ("float32", "float64"):
            runs = [run for run in all_runs if run["beta"] == beta and run["device"]["dtype"] == dtype]
            if runs or dtype == "float32":
                cells = accuracy_cells(runs, "table1", paper, published.TABLE1_HOURS)
                verdicts |= accuracy_verdicts(f"beta={beta} ({dtype})", cells)
                rows.append(TableRow([beta, dtype, *cells], runs))
    return ResultTable(
        "table1",
        "Table 1: WDBC, a million recursions, test accuracy",
        conclusion(verdicts, "accuracies", " points"),
        (TableColumn("beta"), TableColumn("precision"), *ACCURACY_COLUMNS),
        accuracy_sections(("beta", "precision")),
        rows,
        (ACCURACY_RULE, ESTIMATES_NOTE, MAJORITY_NOTE, "The paper used float64 throughout."),
    )


def table2(archive: Archive) -> ResultTable:
    all_runs = archive.runs("table2", "table2-seeds", "table2-more")
    rows: list[TableRow] = []
    verdicts: dict[str, str] = {}
    for beta, (unweighted, weighted, hours) in published.TABLE2.items():
        runs = [run for run in all_runs if run["beta"] == beta]
        switched = sum(run.status["switched_at"] is not None for run in runs)
        cells = accuracy_cells(runs, "table2", (unweighted, weighted), hours)
        verdicts |= accuracy_verdicts(f"beta={beta}", cells)
        rows.append(TableRow([beta, *cells, f"{switched} of {len(runs)}"], runs))
    return ResultTable(
        "table2",
        "Table 2: WDBC, 250000 recursions, float32 (float64 after a non-finite value)",
        conclusion(verdicts, "accuracies", " points"),
        (TableColumn("beta"), *ACCURACY_COLUMNS, TableColumn("switched to float64")),
        accuracy_sections(("beta",), ("switched to float64",)),
        rows,
        (
            ACCURACY_RULE,
            ESTIMATES_NOTE,
            MAJORITY_NOTE,
            "The paper's hours were measured on a Jetson TX2; ours were measured on one thread of a shared CPU.",
        ),
    )


def table3(archive: Archive) -> ResultTable:
    entries = ("table3", "table3-seeds", "table2", "table2-seeds")
    all_runs = archive.runs(*entries, where=lambda run: bool(run["beta"] == 0.05))
    rows, verdicts = [], {}
    for epsilon, (risk, seconds) in published.TABLE3.items():
        runs = [run for run in all_runs if run["epsilon"] == epsilon]
        ours = summarise(1e3 * run.final("test_risk_paper_unweighted") for run in runs)
        steps = published.STEPS["table3"]
        words = verdict(ours, MeanSd(1e3 * risk), ALLOWED_SHARE * 1e3 * risk, 2, is_complete(runs, steps))
        verdicts[f"the risk at epsilon={epsilon:g}"] = words
        cells: list[Cell] = [f"{epsilon:g}", len(runs), length_text(runs, steps), ours, 1e3 * risk, words]
        rows.append(TableRow([*cells, summarise(run.seconds for run in runs), seconds], runs))
    return ResultTable(
        "table3",
        "Table 3: WDBC, beta=0.05, 250000 recursions, by epsilon",
        conclusion(verdicts, "risks", "e-3"),
        (
            TableColumn("epsilon"),
            TableColumn("runs"),
            TableColumn("recursions"),
            TableColumn("final risk, unweighted (1e-3)"),
            TableColumn("paper's", short="the paper"),
            TableColumn("verdict"),
            TableColumn("seconds", 0),
            TableColumn("paper's seconds", 0),
        ),
        (
            PageSection("Final risk", ("epsilon", "final risk, unweighted (1e-3)", "paper's", "verdict")),
            PageSection("Runs", ("epsilon", "runs", "recursions", "seconds", "paper's seconds")),
        ),
        rows,
        (
            f"Verdict: a mean agrees if it differs by at most {100 * ALLOWED_SHARE:g} % from the paper's value, or by "
            "at most twice the standard deviation over our runs. A row with unfinished runs has no verdict.",
            "The risk is `risk_paper`, the quantity in the paper's figures: 0.5/n ‖label − g‖, a norm instead of its "
            "square, where g is logistic(f), replaced by 0 or 1 if it is within 1e-3 of that value.",
            "epsilon=1 is the same experiment as beta=0.05 in Table 2.",
        ),
    )
