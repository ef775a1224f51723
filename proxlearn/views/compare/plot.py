"""A block as dots with intervals: a panel a dataset; accuracies above, differences to ProxLearn below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from proxlearn.baselines.method import Method
from proxlearn.baselines.registry import OURS
from proxlearn.compare.comparison import Comparison
from proxlearn.compare.statistics import Interval, interval, paired
from proxlearn.views.style import GREY, UNWEIGHTED, WEIGHTED, save

REACH = 1.5
"""How many times the block's own range a panel spans, at most, for the sake of its reference lines."""
LEAST = 0.02
"""The smallest range of accuracies worth a panel."""
SCALE = (
    "dots: means over the splits; bars: 95 %, thick Student's\n(too narrow: splits overlap), thin Nadeau and Bengio's"
)


def draw_block(found: Comparison, methods: Sequence[Method], name: str, title: str) -> list[Path]:
    """``name``.png and .pdf."""
    others = [each for each in methods if each.name != OURS]
    rows: list[tuple[str, Sequence[Method]]] = [("accuracy", methods)]
    rows += [("difference", others)] if found.has_ours and others else []
    heights = [len(each) for _, each in rows]
    made = Figure(figsize=(2.6 + 2.3 * len(found.datasets), 1.3 + 0.27 * sum(heights)), layout="constrained")
    grid = made.subplots(len(rows), len(found.datasets), squeeze=False, sharey="row", height_ratios=heights)
    for line, (kind, shown) in zip(grid, rows, strict=True):
        for axes, dataset in zip(line, found.datasets, strict=True):
            _panel(axes, found, dataset, shown, kind)
            axes.set_xlabel("test accuracy" if kind == "accuracy" else "accuracy − ProxLearn's")
        line[0].set_yticks(range(len(shown)), [each.title for each in shown])
        line[0].invert_yaxis()
    for axes, dataset in zip(grid[0], found.datasets, strict=True):
        axes.set_title(dataset)
    made.suptitle(f"{title}: {found.splits_text} splits, {found.protocol} protocol, {found.preset} presets", fontsize=9)
    made.supxlabel(SCALE, fontsize=8)
    return save(made, found.path, name, found.command)


def _panel(axes: Axes, found: Comparison, dataset: str, methods: Sequence[Method], kind: str) -> None:
    share = found.test_share(dataset)
    ours = found.values(dataset, OURS, "accuracy")
    intervals: dict[int, Interval] = {}
    for place, method in enumerate(methods):
        values = found.values(dataset, method.name, "accuracy")
        each = interval(list(values.values()), share) if kind == "accuracy" else paired(values, ours, share)
        if not math.isnan(each.mean):
            intervals[place] = each
    axes.grid(visible=False, axis="y")
    axes.set_ylim(-0.6, len(methods) - 0.4)
    if not intervals:
        return
    low, high = _limits(methods, intervals)
    if kind == "difference":
        axes.axvline(0, color=GREY, linewidth=0.8)
    for place, each in intervals.items():
        colour = _colour(methods[place])
        first, last = _ends(each)
        if low <= first and last <= high:
            _dot(axes, place, each, colour)
        else:
            # Far off, if only in part: told by its number at the edge, so that the others can be told apart.
            left = first < low
            text = f"◂ {each.mean:.3f}" if left else f"{each.mean:.3f} ▸"
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


def _dot(axes: Axes, place: int, each: Interval, colour: str) -> None:
    if not math.isnan(each.student):
        for half, width in ((each.corrected, 1.0), (each.student, 2.6)):
            axes.plot([each.mean - half, each.mean + half], [place, place], color=colour, linewidth=width)
    axes.plot([each.mean], [place], "o", color=colour, markersize=4.5)


def _limits(methods: Sequence[Method], intervals: dict[int, Interval]) -> tuple[float, float]:
    """The block's own dots and bars, and those reference lines that are not far from them."""
    ends = {place: _ends(each) for place, each in intervals.items()}
    own = [ends[place] for place in ends if methods[place].block != "reference"] or list(ends.values())
    low, high = min(each[0] for each in own), max(each[1] for each in own)
    room = REACH * max(high - low, LEAST)
    near = [each for each in ends.values() if each[0] >= low - room and each[1] <= high + room]
    low, high = min(each[0] for each in (*own, *near)), max(each[1] for each in (*own, *near))
    margin = 0.06 * max(high - low, LEAST)
    return low - margin, high + margin


def _ends(each: Interval) -> tuple[float, float]:
    """Of its longest bar; of one value, that value."""
    half = 0.0 if math.isnan(each.corrected) else each.corrected
    return each.mean - half, each.mean + half


def _colour(method: Method) -> str:
    return GREY if method.block == "reference" else WEIGHTED if method.name == OURS else UNWEIGHTED
