"""Write the page of the experiment on whether weights lower the risk: the conclusion, the design and the tables."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from proxlearn.data.banana import FILE
from proxlearn.paper.result_table import markdown_table
from proxlearn.verify.pieces import Piece, stored, write_page
from proxlearn.verify.weights_experiment import (
    DESIGN,
    KAPPAS,
    MULTIPLES,
    PROBLEMS,
    REVISION,
    SEEDS,
    SIZES,
    STEPS,
    UPDATES,
    measure,
)
from proxlearn.views.verify_plots import draw_experiment

TITLE = "Do weights ever help?"
COMPARISONS = ("equal recursions", "equal time")
FAMILY = len(PROBLEMS) * len(SIZES) * len(MULTIPLES) * len(KAPPAS)
LEVEL = 0.05
TERMS = (
    "A cell is a combination of problem, N, epsilon and kappa; weights help (hurt) in a cell if they clearly lower "
    "(raise) the test risk compared with uniform weights."
)
"""Explanation of the terms of the conclusion."""


@dataclass(frozen=True)
class Effect:
    """The mean of log(risk / risk with uniform weights) in one cell, with its simultaneous interval."""

    problem: str
    N: int
    multiple: float
    kappa: float
    mean: float
    half_width: float
    diverged: int

    @property
    def verdict(self) -> str:
        if self.diverged or math.isnan(self.half_width):
            return "diverged" if self.diverged else "open"
        return "helps" if self.mean < -self.half_width else "hurts" if self.mean > self.half_width else "open"

    @property
    def text(self) -> str:
        if self.diverged:
            return f"diverged {self.diverged}"
        star = {"helps": " ↓", "hurts": " ↑"}.get(self.verdict, "")
        return f"{change_text(self.mean, 0)}{star}"


def change_text(log_ratio: float, digits: int) -> str:
    """Return the change of a risk in percent; a change that rounds to zero has no sign."""
    change = round(100 * math.expm1(log_ratio), digits)
    return f"{change:+.{digits}f} %" if change else f"{0:.{digits}f} %"


def pieces() -> list[Piece]:
    """Return the pieces of the experiment, one per problem, N and seed."""
    fits = []
    # The fits are ordered by seed, so that an unfinished experiment covers every cell, with fewer seeds.
    for seed in range(SEEDS):
        for problem in PROBLEMS:
            data = {"data_sha256": FILE.sha256} if problem == "banana" else {}
            for N in SIZES:
                arguments = {"problem": problem, "N": N, "seed": seed, **data}
                fits.append(Piece("experiment", f"{problem}, N={N}, seed {seed}", measure_piece, arguments, REVISION))
    return fits


def measure_piece(problem: str, N: int, seed: int, data_sha256: str = "") -> dict[str, Any]:
    """Return the result of ``measure``; ``data_sha256`` is used only in the identity of the piece."""
    return measure(problem, N, seed)


def log_ratios(result: dict[str, Any], update: str, cell: str, comparison: str) -> float | None:
    """Return log(risk / risk with uniform weights) of one fit, or None if one of the two fits has diverged."""
    risk, seconds = result["cells"][cell][UPDATES.index(update)]
    uniform = result["uniform"]
    if risk is None or None in uniform["risks"]:
        return None
    steps = float(STEPS)
    if comparison == "equal time":
        steps *= seconds / uniform["seconds"]
    # The logarithm of the risk is interpolated linearly in the logarithm of the step, and is constant beyond the
    # recorded steps.
    reference = np.interp(math.log(steps), np.log(uniform["steps"]), np.log(uniform["risks"]))
    return math.log(risk) - float(reference)


def effects(results: Sequence[tuple[Piece, dict[str, Any]]], update: str, comparison: str) -> Iterator[Effect]:
    """Yield the effect of an update in every cell that has results."""
    from scipy.stats import t

    for problem in PROBLEMS:
        for N in SIZES:
            fits = [r for piece, r in results if (piece.arguments["problem"], piece.arguments["N"]) == (problem, N)]
            for multiple in MULTIPLES:
                for kappa in KAPPAS:
                    cell = f"{multiple:g} {kappa:g}"
                    ratios = [log_ratios(fit, update, cell, comparison) for fit in fits]
                    values = np.array([ratio for ratio in ratios if ratio is not None])
                    k, diverged = len(values), len(ratios) - len(values)
                    if not ratios:
                        continue
                    half = math.nan
                    if k > 1:
                        share = 1.0 if problem == "banana" else 0.0
                        quantile = float(t.ppf(1 - LEVEL / FAMILY / 2, k - 1))
                        half = quantile * float(values.std(ddof=1)) * math.sqrt(1 / k + share)
                    yield Effect(problem, N, multiple, kappa, float(values.mean()) if k else math.nan, half, diverged)


def write(pieces: Sequence[Piece], results: Path, folder: Path) -> list[Path]:
    """Write the page and its plot from the stored results; return their paths."""
    fits = list(stored(pieces, results))
    if not fits:
        return []
    table = {
        (update, comparison): list(effects(fits, update, comparison))
        for update in UPDATES
        for comparison in COMPARISONS
    }
    lines = [conclusion(table)]
    if len(fits) < len(pieces):
        lines.append(f"**Unfinished**: {len(fits)} of {len(pieces)} fits; the same command computes the others.")
    lines += ["![effects](experiment.png)", "## Design, stated before the first fit", DESIGN.rstrip()]
    lines += ["## Number of cells per verdict", counts(table)]
    for (update, comparison), cells in table.items():
        lines += [f"## {update}, {comparison}", effects_table(cells)]
    lines.append(NOTES)
    paths = [write_page(folder / "experiment.md", TITLE, "\n\n".join(text.rstrip() for text in lines) + "\n")]
    return paths + draw_experiment({key: [vars(cell) for cell in cells] for key, cells in table.items()}, folder)


def conclusion(table: dict[tuple[str, str], list[Effect]]) -> str:
    """Return two sentences per update with the numbers of cells and the largest gain, followed by TERMS."""
    sentences = []
    for update in UPDATES:
        parts = []
        for comparison in COMPARISONS:
            cells = table[update, comparison]
            helps = [cell for cell in cells if cell.verdict == "helps"]
            hurts = sum(cell.verdict == "hurts" for cell in cells)
            gain = ""
            if helps:
                best = min(helps, key=lambda cell: cell.mean)
                gain = (
                    f"\nThe largest gain is {-100 * math.expm1(best.mean):.0f} % ({best.problem}, N = {best.N}, "
                    f"kappa = {best.kappa:g}, epsilon {best.multiple:g})."
                )
            parts.append(f"help in {len(helps)} and hurt in {hurts} of {len(cells)} cells at {comparison}.{gain}")
        name = {
            "proximal": "Proximal weights",
            "fisher_rao": "Fisher-Rao weights",
            "resampling": "Weights with resampling",
        }
        sentences += [f"{who} {part}" for who, part in zip((name[update], "They"), parts, strict=True)]
    lines = (line for sentence in (*sentences, TERMS) for line in sentence.splitlines())
    kept = (line.replace(" %", "\xa0%") for line in lines)  # on the site, a line that starts with % is a comment
    return "\n".join(textwrap.fill(line, 119, break_on_hyphens=False) for line in kept).replace("\xa0", " ")


def counts(table: dict[tuple[str, str], list[Effect]]) -> str:
    rows = [["update", "comparison", "helps", "no clear effect", "hurts", "diverged", "median change of the risk"]]
    for (update, comparison), cells in table.items():
        number = {v: str(sum(cell.verdict == v for cell in cells)) for v in ("helps", "open", "hurts", "diverged")}
        finite = [cell.mean for cell in cells if not math.isnan(cell.mean)]
        median = change_text(float(np.median(finite)), 1) if finite else ""
        rows.append([update, comparison, *number.values(), median])
    return markdown_table(rows)


def effects_table(cells: list[Effect]) -> str:
    rows = [["problem", "N", "epsilon", *(f"kappa = {kappa:g}" for kappa in KAPPAS)]]
    by_place = {(c.problem, c.N, c.multiple, c.kappa): c for c in cells}
    for problem in PROBLEMS:
        for N in SIZES:
            for multiple in MULTIPLES:
                row = [by_place.get((problem, N, multiple, kappa)) for kappa in KAPPAS]
                if any(row):
                    rows.append([problem, str(N), f"{multiple:g}", *(cell.text if cell else "" for cell in row)])
    return markdown_table(rows)


NOTES = """\
- Values: the geometric mean over the seeds of risk / risk with uniform weights, minus 1. ↓ (helps) and ↑ (hurts): the
  simultaneous interval does not contain 0. epsilon is in units of the median squared distance between neighbours in the
  initial cloud.
- Processor times depend on the machine that computed the fits; they affect only the comparison at equal time.
- All fits are in experiment.jsonl (`proxlearn verify --experiment weights`; `--page` writes only this page).
"""
