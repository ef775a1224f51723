"""Write the files of a comparison, which has two separate blocks of methods with the same reference methods.

compare.md is for readers; each block also has a file for programs (.csv) and a file for papers (.tex).
"""

from __future__ import annotations

from pathlib import Path

from proxlearn.baselines.method import Block
from proxlearn.compare.comparison_files import Comparison, read_comparison
from proxlearn.compare.foreign_files import (
    BLOCK_FILES,
    REFERENCES,
    record_names,
    recorded_names,
    refuse_foreign_tables,
    table_names,
)
from proxlearn.files.atomic import write_atomically
from proxlearn.views.compare.block_tables import Section, as_csv, as_latex, csv_text, tables
from proxlearn.views.compare.page import document, either, narrow_tables, unfinished_cells
from proxlearn.views.compare.plot import draw_block
from proxlearn.views.compare.published_values import paper_table
from proxlearn.views.latex import tabular
from proxlearn.views.style import house_style

SECTIONS: dict[Block, tuple[str, str, str]] = {
    "network": (
        BLOCK_FILES["network"],
        "A. Two-layer networks",
        "f is a mean of {N} tanh neurons, fitted with the logistic loss; the probability of +1 is 1/(1 + exp(-f)). "
        "Each method, also Fisher-Rao weights, selects its own settings on a held-out quarter of the training part, "
        "with at most 200 neurons. If a fit is unstable (Fisher-Rao weights with a large step), the selected number of "
        "steps may not suit the full number of neurons.",
    ),
    "sampler": (
        BLOCK_FILES["sampler"],
        "B. Posterior samplers",
        "All methods sample the posterior of a linear Bayesian logistic regression without bias; `notes.ledger` of "
        "their cells shows how close they came. Probabilities are means over samples. Preset {preset}, temperature "
        "{temperature:g}. The model and the task differ from those of block A, so differences between the blocks are "
        "differences between the models.",
    ),
}


def render_comparison(folder: Path) -> list[Path]:
    """Write compare.md and the tables and plot of each block; delete the files of blocks no longer compared."""
    comparison = read_comparison(folder)
    names = table_names({method.block for method in comparison.methods}, comparison.protocol)
    # The cells may have taken hours, during which the user may have put a file here.
    refuse_foreign_tables(folder, names)
    earlier = recorded_names(folder)
    # The names are recorded first, because a command that was killed while drawing must recognise its own files.
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
    """Return the blocks that have methods in this comparison, or only the reference methods if no block has any."""
    references = tuple(method for method in comparison.methods if method.block == "reference")
    sections = []
    for block, (name, title, about) in SECTIONS.items():
        own = tuple(method for method in comparison.methods if method.block == block)
        if own:
            values = {"N": _width(comparison), "preset": comparison.preset, "temperature": comparison.temperature}
            sections.append(Section(name, title, about.format(**values), own + references))
    return sections or [Section(REFERENCES, "Reference lines", "scikit-learn's defaults.", references)]


def authors_split_lines(comparison: Comparison) -> list[str]:
    """Return lines with the results on the split of the samplers' authors, which are not part of any mean."""
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
    """Return the number of neurons of the networks as a string, from the notes of their cells."""
    notes = [cell.result.notes for cell in comparison.cells if cell.result is not None]
    return either(sorted({int(note["N"]) for note in notes if "N" in note})) or "N"
