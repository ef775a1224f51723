"""The tables of one block: a column a dataset, a row a method, the reference lines last; as texts, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from proxlearn.baselines.method import Method
from proxlearn.baselines.registry import OURS
from proxlearn.compare.comparison import Comparison
from proxlearn.compare.statistics import Interval, paired, summarise
from proxlearn.views.latex import tabular

MEASURES = {
    "accuracy": ("Test accuracy", 4),
    "log_likelihood": ("Mean test log-likelihood", 4),
    "calibration_error": ("Expected calibration error", 4),
    "seconds": ("Seconds of a fit", 1),
}
"""A figure's title, and its digits after the point."""
DIFFERENCES = ("accuracy", "log_likelihood")
Show = Callable[[Method, str], str]


@dataclass(frozen=True)
class Section:
    """One block with its reference lines."""

    name: str
    title: str
    about: str
    methods: tuple[Method, ...]


def tables(found: Comparison, section: Section) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Title, head and rows of each table of a block: a column a dataset."""
    yield "Test accuracy", *_table(found, section.methods, _figures(found, "accuracy"))
    if found.has_ours:
        others = tuple(each for each in section.methods if each.name != OURS)
        for measure in DIFFERENCES if others else ():
            title = f"{MEASURES[measure][0]}: difference to ProxLearn"
            yield title, *_table(found, others, _differences(found, measure))
    for measure in ("log_likelihood", "calibration_error", "seconds"):
        yield MEASURES[measure][0], *_table(found, section.methods, _figures(found, measure))


def _table(found: Comparison, methods: Sequence[Method], show: Show) -> tuple[list[str], list[list[str]]]:
    rows = [
        [label(method), *(show(method, dataset) if has(method, dataset) else "" for dataset in found.datasets)]
        for method in methods
    ]
    return ["method", *found.datasets], rows


def _figures(found: Comparison, measure: str) -> Show:
    def show(method: Method, dataset: str) -> str:
        values = found.values(dataset, method.name, measure)
        if not values:
            return "not finished"
        wanted = found.splits_of(dataset)
        partial = "" if len(values) == wanted else f" ({len(values)} of {wanted})"
        return summarise(values.values()).text(MEASURES[measure][1]) + partial

    return show


def _differences(found: Comparison, measure: str) -> Show:
    def show(method: Method, dataset: str) -> str:
        return difference(found, dataset, method.name, measure).text(4) or "not finished"

    return show


def difference(found: Comparison, dataset: str, method: str, measure: str) -> Interval:
    """A method minus ProxLearn, paired."""
    ours, theirs = (found.values(dataset, name, measure) for name in (OURS, method))
    return paired(theirs, ours, found.test_share(dataset))


def as_csv(found: Comparison, section: Section) -> str:
    """A row a dataset and method, every figure in columns of its own."""
    head = ["dataset", "method", "title", "kind", "splits"]
    head += [f"{measure}{end}" for measure in MEASURES for end in ("", "_sd")]
    head += [f"{measure}_difference{end}" for measure in DIFFERENCES for end in ("", "_student", "_corrected")]
    lines: list[Sequence[object]] = [head]
    for dataset in found.datasets:
        for method in (each for each in section.methods if has(each, dataset)):
            numbers: list[float] = []
            for measure in MEASURES:
                mean = summarise(found.values(dataset, method.name, measure).values())
                numbers += [mean.mean, mean.sd]
            for measure in DIFFERENCES:
                each = difference(found, dataset, method.name, measure)
                numbers += [each.mean, each.student, each.corrected]
            count = len(found.values(dataset, method.name, "accuracy"))
            shown = ["" if math.isnan(number) else f"{number:.6g}" for number in numbers]
            lines.append([dataset, method.name, method.title, method.block, count, *shown])
    return csv_of(lines)


def as_latex(found: Comparison, section: Section) -> str:
    lines = [f"% {found.command}", f"% {section.about}"]
    for title, head, rows in tables(found, section):
        lines += ["", f"% {title}", *tabular(head, rows)]
    return "\n".join(lines) + "\n"


def label(method: Method) -> str:
    return f"reference: {method.title}" if method.block == "reference" else method.title


def has(method: Method, dataset: str) -> bool:
    return not method.only or dataset in method.only


def csv_of(lines: Sequence[Sequence[object]]) -> str:
    shown = io.StringIO()
    csv.writer(shown, lineterminator="\n").writerows(lines)
    return shown.getvalue()
