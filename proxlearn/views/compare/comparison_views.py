"""Write the files of a comparison: compare.md, tables and plots of two blocks of methods.

compare.md shows all tables and plots. Each block also has a .csv file, with one row per dataset and method, and a .tex
file with the tables in LaTeX.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from proxlearn.baselines.registry import OURS, Block, Method
from proxlearn.compare.comparison_files import (
    BLOCK_FILES,
    PLAN,
    REFERENCES,
    Comparison,
    read_comparison,
    record_names,
    recorded_names,
    refuse_foreign_tables,
    table_names,
)
from proxlearn.compare.spec import CELLS
from proxlearn.compare.statistics import summarise
from proxlearn.files.atomic import write_atomically
from proxlearn.views.compare.method_tables_and_plot import (
    Section,
    as_csv,
    as_latex,
    csv_text,
    difference,
    draw_block,
    is_for,
    tables,
)
from proxlearn.views.compare.paper_comparison import dataset_tables, paper_table
from proxlearn.views.style import house_style
from proxlearn.views.tables import enumeration, markdown, tabular

MAX_WIDTH = 110
INTRODUCTION = (
    "{splits} of each dataset into 80 % for training and 20 % for testing, the same for every method; "
    "features are scaled by statistics of the training part. Values are mean ± standard deviation over the splits."
)
DIFFERENCES = (
    "Differences are paired: the method minus ProxLearn on the same split. ± is the half-width of Student's 95 % "
    "interval over the splits. The splits are drawn from the same rows and overlap, so this interval is too narrow; "
    "the interval in brackets is Nadeau and Bengio's corrected one, which decides the verdicts here and in weights.md. "
    "* marks a difference whose corrected interval does not contain 0."
)
NOTES = (
    "Log-likelihood: the mean of log p, where p is the probability of the true class, at least 1e-6. Calibration "
    "error: computed over 15 bins of equal width of the probability of the predicted class.",
    "The probabilities of the RBF-SVM come from a logistic curve fitted to cross-validated scores (scikit-learn's "
    "CalibratedClassifierCV), and its accuracy is computed from them. Bayes rule: the true posterior of "
    "twonorm, with an expected accuracy of .97725.",
    f"The command and the keys of its cells are in {PLAN}; the settings, notes and version of each cell are in "
    f"../{CELLS}.",
)


def document(comparison: Comparison, sections: Sequence[Section]) -> str:
    """Return the text of compare.md."""
    parts = [
        f"# Comparison: {comparison.protocol} protocol, {comparison.preset} presets",
        conclusion(comparison, sections),
        INTRODUCTION.format(splits=_splits_phrase(comparison)),
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
    on_threads = "one thread" if threads == [1] else f"{either(threads)} threads"
    timing = f"Seconds: the duration of one fit on {on_threads}, including the method's selection of settings."
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
    return f"{before}Test accuracy compared with ProxLearn (corrected 95 % intervals): {text}{after}."


def _splits_phrase(comparison: Comparison) -> str:
    """Return the number of random splits as a phrase, with the datasets that have another number in brackets."""
    others = ", ".join(f"{name}: {number}" for name, number in comparison.exceptions.items())
    noun = "random split" if comparison.splits == 1 else "random splits"
    return f"{comparison.splits} {noun}" + (f" ({others})" if others else "")


def _rivals(section: Section) -> list[Method]:
    """Return the methods of a block except ProxLearn and the reference methods."""
    return [method for method in section.methods if method.block != "reference" and method.name != OURS]


def _differing(comparison: Comparison, section: Section) -> str:
    """Return a clause that names, for one block, the methods that are clearly less or more accurate than ProxLearn."""
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
                subject = f"all {len(titles)}" if len(titles) == len(rivals) > 1 else enumeration(titles)
                is_plural = len(titles) > 1 or subject.endswith("weights")
                statement = f"{subject} {'have' if is_plural else 'has'} a {word} accuracy"
                datasets.setdefault(statement, []).append(dataset)
    if not datasets:
        return f"no {section.name.removesuffix('s')} differs"
    texts = [f"{statement} on {enumeration(names)}" for statement, names in datasets.items()]
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
    """Return one line per cell that has no result; the line states the error, or that the cell has not run yet."""
    return [
        f"- {cell.dataset}, split {cell.split}, {cell.method}: {cell.error or 'not run yet'}"
        for cell in comparison.cells
        if cell.result is None
    ]


def either(numbers: Sequence[int]) -> str:
    return " or ".join(str(number) for number in numbers)


def bullet_list(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


SECTIONS: dict[Block, tuple[str, str, str]] = {
    "network": (
        BLOCK_FILES["network"],
        "A. Two-layer networks",
        "f is a mean of {N} tanh neurons, fitted with the logistic loss; the probability of +1 is 1/(1 + exp(-f)). "
        "Every method, including Fisher-Rao weights, selects its settings on a held-out quarter of the training part, "
        "with at most 200 neurons. If a fit is unstable (Fisher-Rao weights with a large step size), the number of "
        "steps selected in this way may not suit {N} neurons.",
    ),
    "sampler": (
        BLOCK_FILES["sampler"],
        "B. Posterior samplers",
        "All methods sample the posterior of a linear Bayesian logistic regression without a bias; `notes.ledger` of "
        "their cells shows how closely each approaches it. Probabilities are means over samples. The preset is "
        "{preset} and the temperature is {temperature:g}. The model and the task differ from those of block A, so "
        "differences between the blocks are differences between the models.",
    ),
}


def render_comparison(folder: Path) -> list[Path]:
    """Write compare.md and the tables and plots of all blocks; delete the files of blocks that are not compared."""
    comparison = read_comparison(folder)
    names = table_names({method.block for method in comparison.methods}, comparison.protocol)
    # The cells may have taken hours, during which the user may have put a file here.
    refuse_foreign_tables(folder, names)
    earlier = recorded_names(folder)
    # The names are recorded first, so that a later command recognises the files even if this one is killed while
    # drawing.
    record_names(folder, earlier | set(names))
    paths = write_tables(comparison)
    with house_style():
        for section in block_sections(comparison):
            paths += draw_block(comparison, section.methods, section.name, section.title)
    for name in earlier - set(names):
        (folder / name).unlink(missing_ok=True)
    record_names(folder, names)
    return paths


def write_tables(comparison: Comparison) -> list[Path]:
    sections = block_sections(comparison)
    contents = {"compare.md": document(comparison, sections)}
    for section in sections:
        contents[f"{section.name}.csv"] = as_csv(comparison, section)
        contents[f"{section.name}.tex"] = as_latex(comparison, section)
    if comparison.protocol == "paper":
        paper = paper_table(comparison)
        contents["paper.csv"] = csv_text([paper.head, *paper.rows])
        contents["paper.tex"] = "\n".join([f"% {comparison.command}", *tabular(paper.head, paper.rows)]) + "\n"
    paths = [comparison.path / name for name in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        write_atomically(path, content.encode())
    return paths


def summary(folder: Path) -> str:
    """Return the text that `proxlearn compare` prints at its end: accuracies, failures, and the path of compare.md."""
    comparison = read_comparison(folder)
    lines = []
    for section in block_sections(comparison):
        title, head, rows = next(tables(comparison, section))
        lines += ["", f"{section.title}: {title.lower()}", "", *narrow_tables(head, rows)]
    lines += authors_split_lines(comparison) + unfinished_cells(comparison)
    page = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    rest = "Differences with intervals, other metrics and plots" if comparison.has_ours else "Other metrics and plots"
    return "\n".join([*lines, f"\n{rest}: {page / 'compare.md'}"]) + "\n"


def block_sections(comparison: Comparison) -> list[Section]:
    """Return one section for each block that has methods in this comparison.

    If no block has methods, return a single section with the reference methods.
    """
    references = tuple(method for method in comparison.methods if method.block == "reference")
    sections = []
    for block, (name, title, about) in SECTIONS.items():
        own = tuple(method for method in comparison.methods if method.block == block)
        if own:
            values = {"N": _width(comparison), "preset": comparison.preset, "temperature": comparison.temperature}
            sections.append(Section(name, title, about.format(**values), own + references))
    return sections or [Section(REFERENCES, "Reference lines", "scikit-learn's defaults.", references)]


def authors_split_lines(comparison: Comparison) -> list[str]:
    """Return lines with the results on the split used by the samplers' authors; no mean includes these results.

    The list is empty if there are no such results.
    """
    lines = []
    for dataset in comparison.datasets:
        for method in comparison.methods:
            accuracy, likelihood = (
                comparison.authors(dataset, method.name, measure) for measure in ("accuracy", "log_likelihood")
            )
            if accuracy is not None:
                lines.append(f"- {dataset}, {method.title}: {accuracy:.4f} (log-likelihood {likelihood:.4f})")
    return ["", "On the samplers' own split: test accuracy", "", *lines] if lines else []


def _width(comparison: Comparison) -> str:
    """Return, as a string, the number of neurons that the notes of the cells state, or "N" if no note states it."""
    notes = [cell.result.notes for cell in comparison.cells if cell.result is not None]
    return either(sorted({int(note["N"]) for note in notes if "N" in note})) or "N"
