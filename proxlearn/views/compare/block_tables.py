"""Tables of one block of methods as text, CSV and LaTeX, with a row per method and a column per dataset."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from proxlearn.baselines.registry import OURS, Method
from proxlearn.compare.comparison_files import Comparison
from proxlearn.compare.statistics import Interval, paired, summarise
from proxlearn.views.tables import tabular

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
    """Return the mean difference of a metric between a method and ProxLearn on the same splits, with intervals."""
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
