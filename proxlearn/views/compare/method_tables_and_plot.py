"""Tables and the plot of one block of methods, with a row per method and a column per dataset."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from proxlearn.baselines.registry import OURS, Method
from proxlearn.compare.comparison_files import Comparison
from proxlearn.compare.statistics import Interval, interval, paired, summarise
from proxlearn.views.style import GREY, UNWEIGHTED, WEIGHTED, save
from proxlearn.views.tables import tabular

REACH = 1.5
"""Largest extension of the axis limits to include reference methods, relative to the range of the block's methods."""
MIN_RANGE = 0.02
"""Lower limit of the range from which the extension and the margins of a panel are computed."""
SCALE = (
    "dots: means over the splits; bars: 95 %, thick: Student's\n(too narrow: splits overlap), thin: Nadeau and Bengio's"
)


def draw_block(comparison: Comparison, methods: Sequence[Method], name: str, title: str) -> list[Path]:
    """Plot one block of methods with a column of panels per dataset; write ``name``.png and ``name``.pdf."""
    others = [method for method in methods if method.name != OURS]
    rows: list[tuple[str, Sequence[Method]]] = [("accuracy", methods)]
    rows += [("difference", others)] if comparison.has_ours and others else []
    heights = [len(row_methods) for _, row_methods in rows]
    figure = Figure(figsize=(2.6 + 2.3 * len(comparison.datasets), 1.3 + 0.27 * sum(heights)), layout="constrained")
    grid = figure.subplots(len(rows), len(comparison.datasets), squeeze=False, sharey="row", height_ratios=heights)
    for line, (kind, row_methods) in zip(grid, rows, strict=True):
        for axes, dataset in zip(line, comparison.datasets, strict=True):
            _panel(axes, comparison, dataset, row_methods, kind)
            axes.set_xlabel("test accuracy" if kind == "accuracy" else "accuracy − ProxLearn's")
        line[0].set_yticks(range(len(row_methods)), [method.title for method in row_methods])
        line[0].invert_yaxis()
    for axes, dataset in zip(grid[0], comparison.datasets, strict=True):
        axes.set_title(dataset)
    settings = f"{comparison.splits_text} splits, {comparison.protocol} protocol, {comparison.preset} presets"
    figure.suptitle(f"{title}: {settings}", fontsize=9)
    figure.supxlabel(SCALE, fontsize=8)
    return save(figure, comparison.path, name, comparison.command)


def _panel(axes: Axes, comparison: Comparison, dataset: str, methods: Sequence[Method], kind: str) -> None:
    share = comparison.test_share(dataset)
    ours = comparison.values(dataset, OURS, "accuracy")
    intervals: dict[int, Interval] = {}
    for place, method in enumerate(methods):
        values = comparison.values(dataset, method.name, "accuracy")
        estimate = interval(list(values.values()), share) if kind == "accuracy" else paired(values, ours, share)
        if not math.isnan(estimate.mean):
            intervals[place] = estimate
    axes.grid(visible=False, axis="y")
    axes.set_ylim(-0.6, len(methods) - 0.4)
    if not intervals:
        return
    low, high = _limits(methods, intervals)
    if kind == "difference":
        axes.axvline(0, color=GREY, linewidth=0.8)
    for place, estimate in intervals.items():
        colour = _colour(methods[place])
        first, last = _ends(estimate)
        if low <= first and last <= high:
            _dot(axes, place, estimate, colour)
        else:
            # An interval outside the limits is drawn as a number at the edge, so that the others can be distinguished.
            left = first < low
            text = f"◂ {estimate.mean:.3f}" if left else f"{estimate.mean:.3f} ▸"
            axes.annotate(
                text,
                (0.02 if left else 0.98, place),
                xycoords=("axes fraction", "data"),
                ha="left" if left else "right",
                va="center",
                color=colour,
                fontsize=7,
            )
    axes.set_xlim(low, high)
    axes.locator_params(axis="x", nbins=4)


def _dot(axes: Axes, place: int, estimate: Interval, colour: str) -> None:
    if not math.isnan(estimate.student):
        for half, width in ((estimate.corrected, 1.0), (estimate.student, 2.6)):
            axes.plot([estimate.mean - half, estimate.mean + half], [place, place], color=colour, linewidth=width)
    axes.plot([estimate.mean], [place], "o", color=colour, markersize=4.5)


def _limits(methods: Sequence[Method], intervals: dict[int, Interval]) -> tuple[float, float]:
    """Return axis limits that include the intervals of the block's methods and those of nearby reference methods."""
    ends = {place: _ends(estimate) for place, estimate in intervals.items()}
    own = [ends[place] for place in ends if methods[place].block != "reference"] or list(ends.values())
    low, high = min(start for start, _ in own), max(end for _, end in own)
    reach = REACH * max(high - low, MIN_RANGE)
    near = [(start, end) for start, end in ends.values() if start >= low - reach and end <= high + reach]
    low, high = min(start for start, _ in (*own, *near)), max(end for _, end in (*own, *near))
    margin = 0.06 * max(high - low, MIN_RANGE)
    return low - margin, high + margin


def _ends(estimate: Interval) -> tuple[float, float]:
    """Return the ends of the corrected interval, or the mean as both ends if there is no interval."""
    half = 0.0 if math.isnan(estimate.corrected) else estimate.corrected
    return estimate.mean - half, estimate.mean + half


def _colour(method: Method) -> str:
    return GREY if method.block == "reference" else WEIGHTED if method.name == OURS else UNWEIGHTED


MEASURES = {
    "accuracy": ("Test accuracy", 4),
    "log_likelihood": ("Mean test log-likelihood", 4),
    "calibration_error": ("Expected calibration error", 4),
    "seconds": ("Seconds per fit", 1),
}
"""Title and number of decimal places of each metric."""
DIFFERENCES = ("accuracy", "log_likelihood")
CellText = Callable[[Method, str], str]


@dataclass(frozen=True)
class Section:
    """A block of methods, followed by the reference methods."""

    name: str
    title: str
    about: str
    methods: tuple[Method, ...]


def tables(comparison: Comparison, section: Section) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield the title, the headings and the rows of each table of a block."""
    yield "Test accuracy", *_table(comparison, section.methods, _figures(comparison, "accuracy"))
    if comparison.has_ours:
        others = tuple(method for method in section.methods if method.name != OURS)
        for measure in DIFFERENCES if others else ():
            title = f"{MEASURES[measure][0]}: difference from ProxLearn"
            yield title, *_table(comparison, others, _differences(comparison, measure))
    for measure in ("log_likelihood", "calibration_error", "seconds"):
        yield MEASURES[measure][0], *_table(comparison, section.methods, _figures(comparison, measure))


def _table(comparison: Comparison, methods: Sequence[Method], text: CellText) -> tuple[list[str], list[list[str]]]:
    rows = [
        [label(method), *(text(method, dataset) if is_for(method, dataset) else "" for dataset in comparison.datasets)]
        for method in methods
    ]
    return ["method", *comparison.datasets], rows


def _figures(comparison: Comparison, measure: str) -> CellText:
    def text(method: Method, dataset: str) -> str:
        values = comparison.values(dataset, method.name, measure)
        if not values:
            return "not finished"
        splits = comparison.splits_of(dataset)
        partial = "" if len(values) == splits else f" ({len(values)} of {splits})"
        return summarise(values.values()).text(MEASURES[measure][1]) + partial

    return text


def _differences(comparison: Comparison, measure: str) -> CellText:
    def text(method: Method, dataset: str) -> str:
        return difference(comparison, dataset, method.name, measure).text(4) or "not finished"

    return text


def difference(comparison: Comparison, dataset: str, method: str, measure: str) -> Interval:
    """Return the mean difference of a metric (the method minus ProxLearn) over their common splits, with intervals."""
    ours, theirs = (comparison.values(dataset, name, measure) for name in (OURS, method))
    return paired(theirs, ours, comparison.test_share(dataset))


def as_csv(comparison: Comparison, section: Section) -> str:
    """Return the results of a block as CSV text, with one row per dataset and method."""
    head = ["dataset", "method", "title", "kind", "splits"]
    head += [f"{measure}{end}" for measure in MEASURES for end in ("", "_sd")]
    head += [f"{measure}_difference{end}" for measure in DIFFERENCES for end in ("", "_student", "_corrected")]
    lines: list[Sequence[object]] = [head]
    for dataset in comparison.datasets:
        for method in (method for method in section.methods if is_for(method, dataset)):
            numbers: list[float] = []
            for measure in MEASURES:
                mean = summarise(comparison.values(dataset, method.name, measure).values())
                numbers += [mean.mean, mean.sd]
            for measure in DIFFERENCES:
                interval = difference(comparison, dataset, method.name, measure)
                numbers += [interval.mean, interval.student, interval.corrected]
            count = len(comparison.values(dataset, method.name, "accuracy"))
            figures = ["" if math.isnan(number) else f"{number:.6g}" for number in numbers]
            lines.append([dataset, method.name, method.title, method.block, count, *figures])
    return csv_text(lines)


def as_latex(comparison: Comparison, section: Section) -> str:
    lines = [f"% {comparison.command}", f"% {section.about}"]
    for title, head, rows in tables(comparison, section):
        lines += ["", f"% {title}", *tabular(head, rows)]
    return "\n".join(lines) + "\n"


def label(method: Method) -> str:
    return f"reference: {method.title}" if method.block == "reference" else method.title


def is_for(method: Method, dataset: str) -> bool:
    return not method.only or dataset in method.only


def csv_text(lines: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()
