"""A comparison as tables: two blocks, never one, with the reference lines under each.

compare.md is for people; networks and samplers are files of their own for programs (.csv) and papers (.tex).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from proxlearn.baselines.method import Block
from proxlearn.compare.cells import DONE
from proxlearn.compare.comparison import Comparison, read_comparison
from proxlearn.compare.output_files import (
    BLOCK_FILES,
    REFERENCES,
    record_names,
    recorded_names,
    refuse_foreign_tables,
    table_names,
)
from proxlearn.files.atomic import write_atomically
from proxlearn.views.compare.block_tables import Section, as_csv, as_latex, csv_of, tables
from proxlearn.views.compare.paper_table import paper_section
from proxlearn.views.compare.plot import draw_block
from proxlearn.views.latex import tabular
from proxlearn.views.markdown import markdown
from proxlearn.views.style import house_style

SECTIONS: dict[Block, tuple[str, str, str]] = {
    "network": (
        BLOCK_FILES["network"],
        "A. Two-layer networks",
        "f is a mean of {N} tanh neurons, fitted to -1/+1 by squared error; probabilities are (1 + f)/2 within [0, 1]. "
        "Each row has selected its own settings on a held-out quarter of the training part, with at most 200 neurons; "
        "where the course of a fit is not stable (Fisher-Rao weights with a large step) the number of steps chosen so "
        "need not be a good one for all neurons.",
    ),
    "sampler": (
        BLOCK_FILES["sampler"],
        "B. Posterior samplers",
        "All aim at the posterior of a Bayesian logistic regression, linear and without bias; how near they came is in "
        "`notes.ledger` of their cells. Probabilities are means over samples. Preset {preset}, temperature "
        "{temperature:g}. Another model than block A's, with another task: "
        "where the blocks differ, it is the models that do.",
    ),
}


def render_comparison(folder: Path) -> list[Path]:
    """compare.md, and each block's tables and plot; those of blocks that only an earlier command had are deleted."""
    found = read_comparison(folder)
    names = table_names({each.block for each in found.methods}, found.protocol)
    # The cells may have taken hours, in which the user may have put a file here.
    refuse_foreign_tables(folder, names)
    earlier = recorded_names(folder)
    # Recorded first: a command that is killed while it draws must know its own files again.
    record_names(folder, earlier | set(names))
    paths = write_tables(found)
    with house_style():
        for section in sections(found):
            paths += draw_block(found, section.methods, section.name, section.title)
    for name in earlier - set(names):
        (folder / name).unlink(missing_ok=True)
    record_names(folder, names)
    return paths


def write_tables(found: Comparison) -> list[Path]:
    contents = {"compare.md": document(found)}
    for section in sections(found):
        contents |= {f"{section.name}.csv": as_csv(found, section), f"{section.name}.tex": as_latex(found, section)}
    if found.protocol == "paper":
        paper = paper_section(found)
        contents["paper.csv"] = csv_of([paper.head, *paper.rows])
        contents["paper.tex"] = "\n".join([f"% {found.command}", *tabular(paper.head, paper.rows)]) + "\n"
    paths = [found.path / name for name in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        write_atomically(path, content.encode())
    return paths


def summary(folder: Path) -> str:
    """What the command ends with: accuracies, failures, where the rest is."""
    found = read_comparison(folder)
    lines = []
    for section in sections(found):
        title, head, rows = next(tables(found, section))
        lines += ["", f"{section.title}: {title.lower()}", "", markdown(pd.DataFrame(rows, columns=head))]
    lines += own_split(found) + failures(found)
    shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    rest = "Differences with intervals, the other figures and plots" if found.has_ours else "Other figures and plots"
    return "\n".join([*lines, f"\n{rest}: {shown / 'compare.md'}"]) + "\n"


def sections(found: Comparison) -> list[Section]:
    """The blocks of which methods were asked for; the reference lines alone where no block is."""
    references = tuple(each for each in found.methods if each.block == "reference")
    made = []
    for block, (name, title, about) in SECTIONS.items():
        own = tuple(each for each in found.methods if each.block == block)
        if own:
            words = about.format(N=_width(found), preset=found.preset, temperature=found.temperature)
            made.append(Section(name, title, words, own + references))
    return made or [Section(REFERENCES, "Reference lines", "scikit-learn's defaults.", references)]


def document(found: Comparison) -> str:
    """compare.md."""
    parts = [
        f"# Compared: {found.protocol} protocol, {found.preset} presets",
        WORDS.format(splits=found.how_many),
    ]
    if found.protocol == "paper":
        paper = paper_section(found)
        parts += ["## The paper's own comparison, run and printed", paper.about]
        parts += [markdown(pd.DataFrame(paper.rows, columns=list(paper.head))), _list(paper.notes)]
    for section in sections(found):
        parts += [f"## {section.title}", section.about, f"![{section.title}]({section.name}.png)"]
        for title, head, rows in tables(found, section):
            parts += [f"### {title}", markdown(pd.DataFrame(rows, columns=head))]
    bad = failures(found)
    parts += ["## Not finished", "\n".join(bad)] if bad else []
    threads = sorted({r.record.threads for r in found.results if r.record is not None and r.record.state == DONE})
    timed = f"Seconds are of one fit, with the method's own selection; threads of a process: {_either(threads)}."
    notes = (*((DIFFERENCES,) if found.has_ours else ()), *NOTES, timed)
    parts += ["## How to read it", _list(notes), "## Made by", f"    {found.command}"]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


WORDS = (
    "{splits} random splits of each dataset into 80 % for training and 20 % for testing, the same rows for every "
    "method; features are scaled by figures of the training part. Mean ± standard deviation over the splits."
)
DIFFERENCES = (
    "Differences are paired: the method minus ProxLearn on the same split. ± is the half-width of Student's 95 % "
    "interval over the splits. The splits are drawn from the same rows and overlap, so this interval is too narrow; in "
    "brackets is Nadeau and Bengio's corrected one, and * marks a difference whose corrected interval leaves out 0."
)
NOTES = (
    "Log-likelihood: the mean of log p of the right class, p at least 1e-6. Calibration error: 15 equal bins of the "
    "predicted class's probability.",
    "The RBF-SVM's probabilities are a logistic curve fitted to cross-validated scores (scikit-learn's "
    "CalibratedClassifierCV), and its accuracy is theirs. Bayes rule: twonorm's true posterior, .97725 in expectation.",
)


def own_split(found: Comparison) -> list[str]:
    """A line for each figure on the samplers' own split, which no mean contains."""
    lines = []
    for dataset in found.datasets:
        for method in found.methods:
            accuracy, likelihood = (
                found.authors(dataset, method.name, each) for each in ("accuracy", "log_likelihood")
            )
            if accuracy is not None:
                lines.append(f"- {dataset}, {method.title}: {accuracy:.4f} (log-likelihood {likelihood:.4f})")
    return ["", "On the samplers' own split: test accuracy", "", *lines] if lines else []


def failures(found: Comparison) -> list[str]:
    """A line for each cell that has no figures."""
    lines = []
    for each in found.results:
        if each.record is None or each.record.state != DONE:
            why = "not run yet" if each.record is None else each.record.error
            lines.append(f"- {each.dataset}, split {each.split}, {each.method}: {why}")
    return lines


def _width(found: Comparison) -> str:
    """How many neurons the networks have, as their own notes say."""
    notes = [each.record.notes or {} for each in found.results if each.record is not None]
    return _either(sorted({int(note["N"]) for note in notes if "N" in note})) or "as many"


def _either(numbers: Sequence[int]) -> str:
    return " or ".join(str(each) for each in numbers)


def _list(words: Sequence[str]) -> str:
    return "\n".join(f"- {each}" for each in words)
