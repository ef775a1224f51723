"""Build Table 5: the final risk on the sine by number of particles, for each reading of the paper.

The paper specifies neither the data nor the quantity completely; a reading is one set of assumptions about them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from proxlearn.compare.statistics import MeanSd, summarise
from proxlearn.paper import published
from proxlearn.paper.archive import Archive, ArchivedRun
from proxlearn.paper.result_table import (
    Cell,
    LabelledCell,
    PageSection,
    ResultTable,
    TableColumn,
    TableRow,
    is_complete,
    length_text,
)
from proxlearn.views.tables import enumeration

ALLOWED_SHARE = 0.15
"""Largest relative deviation from the paper's value that counts as agreement."""
DIVERGED_FACTOR = 100
"""A run has diverged if its final test risk exceeds this multiple of its first test risk."""
DIGITS = 5
DATA = {
    "table5": "100 points, weights 1/N",
    "table5-points": "1000 points, weights 1/N",
    "table5-pdf": "100 points, weights 1/12 (pdf)",
}
"""Assumptions about the data and the weights, by plan entry."""


def mean_square(run: ArchivedRun, normalised: bool) -> float:
    """Return the mean of (y - f)^2 on the test part.

    f is the sum of the neurons' outputs weighted by rho, divided by the total mass if ``normalised`` is true.
    """
    assert run.points is not None, "the archive keeps the points of these runs"
    model = run.model(max(run.clouds))
    test = run.points[run.points["part"] == "test"]
    f = model.values(test[["x0"]].to_numpy())["weighted"]
    mass = 1.0 if normalised else float(model.cloud.rho.sum())
    return float(np.mean((test["target"].to_numpy() - mass * f) ** 2))


def norm(square: float, run: ArchivedRun) -> float:
    """Return 0.5/n ||y - f||, the risk of the published code, given the mean squared error over the n points."""
    return 0.5 * math.sqrt(square / run["dataset"]["points"])


TOTAL_MASS = "f = Pᵀrho"
QUANTITIES: dict[str, Callable[[ArchivedRun], float]] = {
    "mean (y−f)², f weighted": lambda run: mean_square(run, normalised=True),
    f"mean (y−f)², {TOTAL_MASS}": lambda run: mean_square(run, normalised=False),
    "mean (y−f)², f unweighted": lambda run: run.final("test_risk_unweighted"),
    "0.5/n ‖y−f‖, f weighted": lambda run: norm(mean_square(run, normalised=True), run),
    f"0.5/n ‖y−f‖, {TOTAL_MASS}": lambda run: norm(mean_square(run, normalised=False), run),
    "‖y−f‖/n, f weighted": lambda run: 2 * norm(mean_square(run, normalised=True), run),
    "discrete free energy": lambda run: run.final("discrete_free_energy"),
}
"""Assumptions about the quantity that Table 5 shows, with the functions that compute it."""


@dataclass(frozen=True)
class Reading:
    """A reading of Table 5: the data, the quantity, and its values by number of particles."""

    data: str
    quantity: str
    figures: Mapping[int, MeanSd]
    diverged: Mapping[int, str]
    """String with the number of diverged runs, for each N at which a run diverged."""
    runs: Sequence[ArchivedRun]

    @cached_property
    def distance(self) -> float:
        return distance(self.figures)

    @property
    def line(self) -> tuple[float, float]:
        """Slope and intercept of a line fitted to the values as a function of 1/N, or NaN if any value is missing."""
        if any(math.isnan(figure.mean) for figure in self.figures.values()):
            return math.nan, math.nan
        return line({N: figure.mean for N, figure in self.figures.items()})

    def row(self) -> TableRow:
        figures: list[Cell] = [
            LabelledCell(figure, self.diverged.get(N) or figure_text(figure)) for N, figure in self.figures.items()
        ]
        summary: list[Cell] = [*self.line, self.distance]
        if self.diverged:
            summary = [LabelledCell(number, "diverged") for number in (*self.line, self.distance)]
        length = length_text(self.runs, published.STEPS["table5"])
        return TableRow([self.data, self.quantity, *figures, *summary, length], self.runs)


def table5(archive: Archive) -> ResultTable:
    paper = published.TABLE5
    slope, intercept = line(paper)
    paper_row = TableRow(
        ["the paper", LabelledCell("", "printed in the paper"), *paper.values(), slope, intercept, "", ""], []
    )
    readings = readings_of(archive)
    numbers = [f"N={N}" for N in paper]
    columns = (
        TableColumn("data and weights"),
        TableColumn("figure", short="quantity"),
        *(TableColumn(number, DIGITS) for number in numbers),
        TableColumn("slope against 1/N", short="slope"),
        TableColumn("intercept", 4),
        TableColumn("distance from the paper", short="distance"),
        TableColumn("recursions"),
    )
    return ResultTable(
        "table5",
        "Table 5: final risk on the sine, by N",
        reading_verdict(readings),
        columns,
        (
            *(data_section(data, numbers) for data in DATA.values()),
            PageSection(
                "Dependence on N, and distance from the paper",
                (
                    "data and weights",
                    "figure",
                    "slope against 1/N",
                    "intercept",
                    "distance from the paper",
                    "recursions",
                ),
                lambda row: row.cells[0] != "the paper",
            ),
        ),
        [paper_row, *(reading.row() for reading in readings)],
        (
            "The paper does not state the number of points on the sine, their spacing, or the definition of its final "
            "value; each row is one reading.",
            f"{TOTAL_MASS}: the output is not divided by the total mass, which is 1 if the weights are 1/N.",
            "Distance: the root mean square of log(ours / paper's) over the four N; 0.14 corresponds to 15 %.",
            "Slope and intercept: those of a least-squares line through the values as a function of 1/N; for the "
            f"paper's values, they are {slope:.2f} and {intercept:.4f}.",
            f"Diverged: the final test risk is above {DIVERGED_FACTOR} times its first value; table5.csv contains "
            "the numbers.",
        ),
    )


def data_section(data: str, numbers: Sequence[str]) -> PageSection:
    """Return the section with the paper's values and with all readings of the runs that ``data`` describes."""
    return PageSection(data, ("figure", *numbers), lambda row: row.cells[0] in ("the paper", data))


def readings_of(archive: Archive) -> list[Reading]:
    readings = []
    for entry, data in DATA.items():
        runs = archive.runs(entry)
        by_N = {N: [run for run in runs if run["N"] == N] for N in published.TABLE5}
        diverged = {N: words for N, some in by_N.items() if (words := diverged_text(some))}
        for quantity, value in QUANTITIES.items():
            # If the total mass is 1, division by it has no effect.
            if TOTAL_MASS not in quantity or entry == "table5-pdf":
                figures = {N: summarise(value(run) for run in some) for N, some in by_N.items()}
                readings.append(Reading(data, quantity, figures, diverged, runs))
    return readings


def reading_verdict(readings: Sequence[Reading]) -> str:
    """Return sentences that name the reading closest to the paper and state whether it agrees."""
    complete = [reading for reading in readings if not math.isnan(reading.distance)]
    if not complete:
        return "There is no verdict, because no reading has runs at every N yet."
    if not all(is_complete(reading.runs, published.STEPS["table5"]) for reading in readings):
        return "There is no verdict on the best reading, because some runs are shorter than the paper's."
    best = min(complete, key=lambda reading: reading.distance)
    agrees = best.distance <= math.log(1 + ALLOWED_SHARE)
    start = "One reading agrees with the paper:" if agrees else "No reading agrees with the paper. The closest one is"
    slopes = f"slope {best.line[0]:.3g}, compared with {line(published.TABLE5)[0]:.3g} in the paper"
    words = f"{start} {best.data}; {best.quantity} (distance {best.distance:.2f}; {slopes})."
    ratios = {N: best.figures[N].mean / paper - 1 for N, paper in published.TABLE5.items()}
    within = [f"N={N} ({ratio:+.0%})" for N, ratio in ratios.items() if abs(ratio) <= ALLOWED_SHARE]
    beyond = [f"N={N} ({ratio:+.0%})" for N, ratio in ratios.items() if abs(ratio) > ALLOWED_SHARE]
    parts = [f"within {ALLOWED_SHARE:.0%} of the paper's value at {enumeration(within)}"] if within else []
    parts += [f"more than {ALLOWED_SHARE:.0%} away from it at {enumeration(beyond)}"] if beyond else []
    return f"{words} It is {', and '.join(parts)}."


def distance(figures: Mapping[int, MeanSd]) -> float:
    """Return the root mean square, over N, of the logarithm of our value divided by the paper's value."""
    logarithms = [math.log(figures[N].mean / paper) for N, paper in published.TABLE5.items()]
    return math.sqrt(sum(logarithm**2 for logarithm in logarithms) / len(logarithms))


def line(figures: Mapping[int, float]) -> tuple[float, float]:
    """Return the slope and intercept of a line fitted to the values as a function of 1/N."""
    slope, intercept = np.polyfit([1 / N for N in figures], list(figures.values()), 1)
    return float(slope), float(intercept)


def figure_text(figure: MeanSd) -> str:
    """Return a value as a string with DIGITS decimal places, or DIGITS + 1 significant digits if it is at least 10."""
    above_ones = 0 if math.isnan(figure.mean) or abs(figure.mean) < 10 else int(math.log10(abs(figure.mean)))
    return figure.text(max(0, DIGITS - above_ones))


def diverged_text(runs: Sequence[ArchivedRun]) -> str:
    """Return a string with the number of diverged runs, or an empty string if no run has diverged."""
    count = sum(has_diverged(run) for run in runs)
    return f"diverged ({count} of {len(runs)})" if count else ""


def has_diverged(run: ArchivedRun) -> bool:
    """Return whether a final test risk is not finite or is more than DIVERGED_FACTOR times its first value."""
    ratios = [run.final(name) / run.metrics[name].iloc[0] for name in ("test_risk_weighted", "test_risk_unweighted")]
    return not all(ratio <= DIVERGED_FACTOR for ratio in ratios)
