"""Compose compare.md: the conclusion, tables that fit on a terminal, and notes that explain them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from proxlearn.baselines.method import Method
from proxlearn.baselines.registry import OURS
from proxlearn.compare.comparison_files import Comparison
from proxlearn.compare.foreign_files import PLAN
from proxlearn.compare.spec import CELLS
from proxlearn.compare.statistics import summarise
from proxlearn.views.compare.block_tables import Section, difference, is_for, tables
from proxlearn.views.compare.published_values import dataset_tables, paper_table
from proxlearn.views.markdown import markdown

MAX_WIDTH = 110
INTRODUCTION = (
    "{splits} random splits of each dataset into 80 % for training and 20 % for testing, the same for every method; "
    "features are scaled by statistics of the training part. Values are mean ± standard deviation over the splits."
)
DIFFERENCES = (
    "Differences are paired: the method minus ProxLearn on the same split. ± is the half-width of Student's 95 % "
    "interval over the splits. The splits are drawn from the same rows and overlap, so this interval is too narrow; "
    "the interval in brackets is Nadeau and Bengio's corrected one, which decides here and in weights.md: * marks a "
    "difference whose corrected interval excludes 0."
)
NOTES = (
    "Log-likelihood: the mean of log p, where p is the probability of the true class, at least 1e-6. Calibration "
    "error: over 15 equal bins of the probability of the predicted class.",
    "The probabilities of the RBF-SVM come from a logistic curve fitted to cross-validated scores (scikit-learn's "
    "CalibratedClassifierCV), and its accuracy is that of these probabilities. Bayes rule: the true posterior of "
    "twonorm, with an expected accuracy of .97725.",
    f"The command and the keys of its cells are in {PLAN}; the settings, notes and version of each cell are in "
    f"../{CELLS}.",
)


def document(comparison: Comparison, sections: Sequence[Section]) -> str:
    """Return the text of compare.md."""
    parts = [
        f"# Comparison: {comparison.protocol} protocol, {comparison.preset} presets",
        conclusion(comparison, sections),
        INTRODUCTION.format(splits=comparison.splits_text),
    ]
    if comparison.protocol == "paper":
        paper = paper_table(comparison)
        parts += ["## The paper's comparison: results obtained here and printed values", paper.about]
        for dataset, head, rows in dataset_tables(comparison):
            parts += [f"### {dataset}", *narrow_tables(head, rows)]
        parts.append(bullet_list(paper.notes))
    for section in sections:
        parts += [f"## {section.title}", section.about, f"![{section.title}]({section.name}.png)"]
        for title, head, rows in tables(comparison, section):
            parts += [f"### {title}", *narrow_tables(head, rows)]
    unfinished = unfinished_cells(comparison)
    parts += ["## Not finished", "\n".join(unfinished)] if unfinished else []
    threads = sorted({cell.result.threads for cell in comparison.cells if cell.result is not None})
    timing = f"Seconds are the duration of one fit, including the method's own selection; threads: {either(threads)}."
    notes = (*((DIFFERENCES,) if comparison.has_ours else ()), timing, *NOTES)
    parts += ["## Notes", bullet_list(notes)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def conclusion(comparison: Comparison, sections: Sequence[Section]) -> str:
    """Return a paragraph that summarises the accuracies."""
    unfinished = sum(cell.result is None for cell in comparison.cells)
    before = f"{unfinished} of {len(comparison.cells)} cells are not finished. " if unfinished else ""
    compared = [section for section in sections if _rivals(section)]
    if not comparison.has_ours or not compared:
        return before + _best_methods(comparison)
    if all(comparison.splits_of(dataset) < 2 for dataset in comparison.datasets):
        return f"{before}{_best_methods(comparison)} One split per dataset gives no interval."
    text = "; ".join(_differing(comparison, section) for section in compared)
    single = [dataset for dataset in comparison.datasets if comparison.splits_of(dataset) < 2]
    after = f" ({', '.join(single)}: one split, no interval)" if single else ""
    return f"{before}By the corrected 95 % intervals of test accuracy, {text}{after}."


def _rivals(section: Section) -> list[Method]:
    """Return the methods of a block except ProxLearn and the reference methods."""
    return [method for method in section.methods if method.block != "reference" and method.name != OURS]


def _differing(comparison: Comparison, section: Section) -> str:
    """Return a clause that names the methods of a block whose accuracy is clearly lower or higher than ProxLearn's."""
    rivals = _rivals(section)
    datasets: dict[str, list[str]] = {}
    for dataset in comparison.datasets:
        intervals = {
            method.title: difference(comparison, dataset, method.name, "accuracy")
            for method in rivals
            if is_for(method, dataset)
        }
        clear = {title: interval.mean for title, interval in intervals.items() if interval.excludes_zero}
        for word, sign in (("lower", -1), ("higher", 1)):
            titles = [title for title, mean in clear.items() if mean * sign > 0]
            if titles:
                subject = f"all {len(titles)}" if len(titles) == len(rivals) > 1 else " and ".join(titles)
                statement = f"{subject} {'is' if len(titles) == 1 else 'are'} {word}"
                datasets.setdefault(statement, []).append(dataset)
    if not datasets:
        return f"no {section.name.removesuffix('s')} differs from ProxLearn"
    texts = [f"{statement} on {' and '.join(names)}" for statement, names in datasets.items()]
    return f"of the {section.name}, {', '.join(texts)}"


def _best_methods(comparison: Comparison) -> str:
    best = []
    for dataset in comparison.datasets:
        means = {
            method.title: summarise(comparison.values(dataset, method.name, "accuracy").values()).mean
            for method in comparison.methods
        }
        finished = {title: mean for title, mean in means.items() if not math.isnan(mean)}
        if finished:
            title = max(finished, key=lambda name: finished[name])
            best.append(f"{dataset} {finished[title]:.4f} ({title})")
    return f"Highest mean test accuracy: {', '.join(best)}." if best else "No cell has finished."


def narrow_tables(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table as Markdown; a table wider than MAX_WIDTH is split into parts that repeat the first column."""
    columns = len(head) - 1
    for count in range(1, columns + 1):
        size = -(-columns // count)
        places = [range(start, min(start + size, columns + 1)) for start in range(1, columns + 1, size)]
        parts = [
            markdown(pd.DataFrame([[row[0], *(row[i] for i in part)] for row in rows], columns=_names(head, part)))
            for part in places
        ]
        if count == columns or all(len(part.partition("\n")[0]) <= MAX_WIDTH for part in parts):
            yield from parts
            return


def _names(head: Sequence[str], places: range) -> list[str]:
    return [head[0], *(head[place] for place in places)]


def unfinished_cells(comparison: Comparison) -> list[str]:
    """Return a line for each cell without a result, with its error, if there is one."""
    return [
        f"- {cell.dataset}, split {cell.split}, {cell.method}: {cell.error or 'not run yet'}"
        for cell in comparison.cells
        if cell.result is None
    ]


def either(numbers: Sequence[int]) -> str:
    return " or ".join(str(number) for number in numbers)


def bullet_list(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)
