"""Table 5: the sine, over the number of particles, under each reading of what the paper leaves unsaid."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from proxlearn.compare.statistics import MeanSd
from proxlearn.paper import published
from proxlearn.predict.model_loader import find_model
from reproduce.measured import summarise
from reproduce.source import Found, load, steps
from reproduce.table import Cell, Column, Row, Table

SHARE = 0.15
"""Of the paper's figure, within which one of ours agrees."""
DATA = {
    "table5": "100 points, weights 1/N",
    "table5-points": "1000 points, weights 1/N",
    "table5-pdf": "100 points, weights 1/12 (pdf)",
}
"""Readings that need runs of their own."""


def mean_square(found: Found, normalised: bool) -> float:
    """Mean of (y - f)^2 on the test part, f = P^T rho with or without the division by the total mass."""
    learnt, points = find_model(found.run.path), found.run.points
    assert learnt is not None
    assert points is not None
    test = points[points["part"] == "test"]
    f = learnt.values(test[["x0"]].to_numpy())["weighted"]
    mass = 1.0 if normalised else float(learnt.cloud.rho.sum())
    return float(np.mean((test["target"].to_numpy() - mass * f) ** 2))


def norm(square: float, found: Found) -> float:
    """0.5/n ||y - f||, the form of the published code's risk, n the number of points."""
    return 0.5 * math.sqrt(square / found["dataset"]["points"])


QUANTITIES: dict[str, Callable[[Found], float]] = {
    "mean (y − f)², f weighted": lambda found: mean_square(found, normalised=True),
    "mean (y − f)², f = Pᵀrho as it is": lambda found: mean_square(found, normalised=False),
    "mean (y − f)², f unweighted": lambda found: found.final("test_risk_unweighted"),
    "0.5/n ‖y − f‖, f weighted": lambda found: norm(mean_square(found, normalised=True), found),
    "0.5/n ‖y − f‖, f = Pᵀrho as it is": lambda found: norm(mean_square(found, normalised=False), found),
    "‖y − f‖/n, f weighted": lambda found: 2 * norm(mean_square(found, normalised=True), found),
    "discrete free energy": lambda found: found.final("discrete_free_energy"),
}
"""Readings of what the final figure is."""


def table5(root: Path) -> Table:
    paper = published.TABLE5
    slope, intercept = line(paper)
    rows = [Row(["the paper", "", *paper.values(), slope, intercept, "", ""], [])]
    distances: list[float] = []
    for entry, data in DATA.items():
        runs = load(root, entry)
        for quantity, of in QUANTITIES.items():
            if "as it is" in quantity and entry != "table5-pdf":
                # A total mass of 1 divides nothing.
                continue
            figures = {N: summarise(of(each) for each in runs if each["N"] == N) for N in paper}
            rows.append(Row([data, quantity, *_cells(figures), steps(runs, published.STEPS["table5"])], runs))
            distances.append(distance(figures))
    known = [each for each in distances if not math.isnan(each)]
    best = 1 + distances.index(min(known)) if known else None
    return Table(
        "table5",
        "Table 5: the sine's final risk, over N",
        (
            Column("data and weights"),
            Column("figure"),
            *(Column(f"N={N}", 5) for N in paper),
            Column("slope against 1/N"),
            Column("intercept", 4),
            Column("distance from the paper"),
            Column("recursions"),
        ),
        rows,
        (
            "The paper says neither how many points its sine has, nor how they are spaced, nor what exactly its final "
            "figure is: each row is one reading.",
            "Distance: the root mean square of log(ours / paper's) over the four N; 0.14 is 15 %.",
            "Slope and intercept: least squares of the figure against 1/N.",
            verdict(rows, distances, best),
        ),
    )


def verdict(rows: list[Row], distances: list[float], best: int | None) -> str:
    """Which reading is nearest, and whether it is near."""
    if best is None:
        return "No reading has runs at every N yet: no verdict."
    near = distances[best - 1]
    if any(" of " in str(row.cells[-1]) for row in rows):
        return "Some runs are shorter than the paper's: no verdict on which reading matches best."
    said = "agrees" if near <= math.log(1 + SHARE) else "is nearest, but does not agree"
    slopes = f"slope {_text(rows[best].cells[6])} against the paper's {_text(rows[0].cells[6])}"
    reading = f"The reading that {said}: {rows[best].cells[0]}; {rows[best].cells[1]} (distance {near:.2f}, {slopes})."
    apart = {
        N: cell.mean / paper - 1
        for (N, paper), cell in zip(published.TABLE5.items(), rows[best].cells[2:6], strict=True)
        if isinstance(cell, MeanSd)
    }
    within = [f"N={N} ({each:+.0%})" for N, each in apart.items() if abs(each) <= SHARE]
    beyond = [f"N={N} ({each:+.0%})" for N, each in apart.items() if abs(each) > SHARE]
    parts = [f"within {SHARE:.0%} of the paper's at {', '.join(within)}" if within else ""]
    parts += [f"beyond it at {', '.join(beyond)}" if beyond else ""]
    return f"{reading} It is {' and '.join(part for part in parts if part)}."


def distance(figures: dict[int, MeanSd]) -> float:
    logs = [math.log(figures[N].mean / paper) for N, paper in published.TABLE5.items()]
    return math.sqrt(sum(each**2 for each in logs) / len(logs))


def line(figures: dict[int, float]) -> tuple[float, float]:
    """Slope and intercept of the figures against 1/N."""
    slope, intercept = np.polyfit([1 / N for N in figures], list(figures.values()), 1)
    return float(slope), float(intercept)


def _cells(figures: dict[int, MeanSd]) -> list[Cell]:
    slope, intercept = math.nan, math.nan
    if not any(math.isnan(each.mean) for each in figures.values()):
        slope, intercept = line({N: each.mean for N, each in figures.items()})
    return [*figures.values(), slope, intercept, distance(figures)]


def _text(cell: Cell) -> str:
    assert isinstance(cell, float)
    return f"{cell:.3g}"
