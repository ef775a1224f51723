"""The paper's comparison table, with the values printed in the paper and the results obtained with this package."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proxlearn.baselines.registry import METHODS, OURS
from proxlearn.compare.comparison_files import Comparison
from proxlearn.compare.spec import AUTHORS
from proxlearn.compare.statistics import MeanSd, summarise
from proxlearn.paper import published

HEAD = ("dataset", "row", "model, split", "accuracy, run", "accuracy, printed", "log-lik., run", "log-lik., printed")
PAGE_HEAD = ("row", "accuracy", "printed", "log-lik.", "printed")
LINEAR, NETWORK = "linear, 80/20", "tanh network, 80/20"
NOT_RUN = "not run"
NOTES = (
    "The rows are not comparable. JKO-ICNN and SWGF + RealNVP sample the posterior of a *linear* logistic regression "
    "without a bias; ProxLearn trains a two-layer tanh network. Plain logistic regression reaches the samplers' "
    "accuracies in milliseconds, so its row is included.",
    "The printed ± of the samplers is the variation between trainings on one fixed 80/20 split (banana standardised, "
    "diabetes scaled to [-1, 1], twonorm raw). The printed ± of ProxLearn is over five random halves, with each part "
    "scaled by its own statistics. Our ± for 80/20 splits is over random splits scaled by statistics of the training "
    "part.",
    "Banana: 55.2 % of the rows belong to one class. A linear model can hardly do better, and the paper's ProxLearn "
    "did not do better.",
    "Temperature: the functional is the mean potential plus T times the mean log density, and the posterior has T = 1. "
    "SWGF's published notebook sums the potential over 1024 particles, which amounts to T = 1/1024.",
    "The printed log-likelihoods of JKO-ICNN, and the accuracy in brackets, come from single runs that its authors "
    "published. Their settings (`--preset paper`) start from the prior, which is far from the posterior. The "
    "functional in `notes.ledger` of the cells, compared with that of unadjusted Langevin, shows how far from the "
    "posterior they end.",
    "The rows with the paper's settings are taken from outputs/paper/table4.csv, which `make table4` writes; "
    "`paper.csv` contains their numbers of runs and recursions.",
)
AUTHORS_NOTE = (
    'The samplers\' own split (`--splits 5 authors`; "their split" in the tables) is drawn as in their published '
    "code: torch's permutation of the rows with seed 42, with the first 80 % for training. It is available for "
    "diabetes, assuming that their file lists its rows in the same order as UCI's. Values that were printed for "
    "one split are comparable with this row; a mean over random splits is a different quantity."
)


@dataclass(frozen=True)
class PaperTable:
    """The paper's comparison table with its explanations."""

    about: str
    head: Sequence[str]
    rows: list[list[str]]
    notes: Sequence[str]


@dataclass(frozen=True)
class PaperRow:
    """A row of the comparison table: a method, its results with this package, and the values printed in the paper."""

    title: str
    short_title: str
    """Shorter title for the narrow tables of compare.md."""
    model: str
    accuracy: str
    printed_accuracy: str = ""
    likelihood: str = ""
    printed_likelihood: str = ""
    runs: str = ""
    """Text in brackets that states the numbers of runs and of recursions per run, or an empty string."""

    def cells(self) -> list[str]:
        figures = [self.printed_accuracy, self.likelihood, self.printed_likelihood]
        return [self.title, self.model, self.accuracy + self.runs, *figures]

    def page_cells(self) -> list[str]:
        figures = [self.accuracy, self.printed_accuracy, self.likelihood, self.printed_likelihood]
        return [self.short_title, *figures]


def paper_table(comparison: Comparison) -> PaperTable:
    rows = [[dataset, *row.cells()] for dataset in _datasets(comparison) for row in _rows(comparison, dataset)]
    about = (
        "Accuracy: mean ± standard deviation over the splits, computed here (for the paper's settings: over runs with "
        "one split each). Printed: the paper's Table 4, which quotes the rows of the samplers. "
        '"ProxLearn, paper" uses the paper\'s settings and halves of the data; "ProxLearn, tuned" uses recipe=tuned '
        "and 80/20 splits, like all other rows. "
        f"The preset is {comparison.preset} and the temperature is {comparison.temperature:g}."
    )
    has_authors_split = any(cell.split == AUTHORS for cell in comparison.cells)
    return PaperTable(about, HEAD, rows, (*NOTES, AUTHORS_NOTE) if has_authors_split else NOTES)


def dataset_tables(comparison: Comparison) -> Iterator[tuple[str, Sequence[str], list[list[str]]]]:
    """Yield, for each dataset, its name and the headings and rows of its narrow table in compare.md."""
    for dataset in _datasets(comparison):
        yield dataset, PAGE_HEAD, [row.page_cells() for row in _rows(comparison, dataset)]


def _datasets(comparison: Comparison) -> list[str]:
    return [dataset for dataset in comparison.datasets if dataset in published.TABLE4]


def _rows(comparison: Comparison, dataset: str) -> Iterator[PaperRow]:
    for estimate, printed in zip(("weighted", "unweighted"), published.TABLE4[dataset], strict=True):
        accuracy, runs = _paper_settings(comparison, dataset, estimate)
        title, short_title = f"ProxLearn, the paper's settings, {estimate}", f"ProxLearn, paper, {estimate}"
        yield PaperRow(title, short_title, "tanh network, 50/50", accuracy, printed.text(3), runs=runs)
    single_run, likelihood = published.JKO_ICNN_RUNS[dataset]
    jko, swgf = (quoted.text(4) for quoted in published.TABLE4_QUOTED[dataset])
    for name, model, accuracy, printed_likelihood in (
        (OURS, NETWORK, "", ""),
        ("jko_icnn", LINEAR, f"{jko} ({single_run:.4f})", f"{likelihood:.4f}"),
        ("swgf", LINEAR, swgf, ""),
        ("svgd", LINEAR, "", ""),
        ("langevin", LINEAR, "", ""),
        ("logistic", LINEAR, "", ""),
        ("majority", "80/20", "", ""),
    ):
        short_title = "ProxLearn, tuned" if name == OURS else METHODS[name].title
        title = "ProxLearn, recipe=tuned" if name == OURS else short_title
        if METHODS[name].block == "sampler" and comparison.preset != "paper":
            # The printed values were obtained with different settings.
            title += f", preset {comparison.preset}"
        run = [_mean_text(comparison, dataset, name, measure) for measure in ("accuracy", "log_likelihood")]
        yield PaperRow(title, short_title, model, run[0], accuracy, run[1], printed_likelihood)
        single = [comparison.authors(dataset, name, measure) for measure in ("accuracy", "log_likelihood")]
        if None not in single:
            run = [f"{figure:.4f}" for figure in single]
            title, short_title = f"{title}, on the samplers' own split", f"{short_title}, their split"
            yield PaperRow(title, short_title, model, run[0], accuracy, run[1], printed_likelihood)


def _mean_text(comparison: Comparison, dataset: str, name: str, measure: str) -> str:
    return summarise(comparison.values(dataset, name, measure).values()).text(4) or NOT_RUN


def _paper_settings(comparison: Comparison, dataset: str, estimate: str) -> tuple[str, str]:
    """Return ProxLearn's accuracy with the paper's settings, and the number of runs and recursions, as strings."""
    stored = comparison.ours.get(dataset, {})
    mean, sd = (_number(stored.get(f"{estimate}{end}")) for end in ("", " sd"))
    if math.isnan(mean):
        return f"{NOT_RUN} (make table4)", ""
    return MeanSd(mean, sd).text(3), f" ({stored.get('runs')} runs, {stored.get('recursions')} recursions)"


def _number(text: object) -> float:
    try:
        return float(str(text))
    except ValueError:
        return math.nan
