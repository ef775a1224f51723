"""The README's comparison tables agree digit by digit with the committed cells."""

from __future__ import annotations

import functools
import re
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from proxlearn.baselines.registry import METHODS
from proxlearn.compare.spec import CELLS
from proxlearn.jobs.result_cache import ResultCache

ROOT = Path(__file__).parents[1]
TITLES = {each.name: ("reference: " if each.block == "reference" else "") + each.title for each in METHODS.values()}
Cells = dict[tuple[str, str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


@functools.cache
def cells(paper: bool) -> Cells:
    """Return the cells by method and dataset, ordered by split, with the split of the samplers' authors last."""
    grouped: Cells = defaultdict(list)
    records = ResultCache(ROOT / "outputs" / "compare" / CELLS)
    for cell in sorted((record.identity | record.result for record in records), key=lambda cell: str(cell["split"])):
        # Networks and reference lines have no preset; samplers are scaled otherwise under --protocol paper.
        light = cell["preset"] is None or (cell["preset"] == "light" and cell["scaling"] == "standard")
        if cell["preset"] == "paper" if paper else light:
            grouped[cell["method"], cell["dataset"]].append(cell)
    return grouped


def short(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}".replace("0.", ".")


def mean(some: list[dict[str, Any]], figure: str) -> float:
    return statistics.mean(cell["figures"][figure] for cell in some)


def spread(some: list[dict[str, Any]]) -> str:
    values = [cell["figures"]["accuracy"] for cell in some]
    return f"{short(statistics.mean(values))} ± {short(statistics.stdev(values))}"


@pytest.mark.parametrize("name", TITLES)
def test_accuracies_of_the_light_presets(name: str, readme: str) -> None:
    row = [f"| {TITLES[name]} |"]
    for dataset in ("banana", "diabetes", "twonorm", "wdbc"):
        found = [cell for cell in cells(paper=False)[name, dataset] if cell["split"] != "authors"]
        assert len(found) in (0, 5)
        row.append(f" {spread(found) if found else ''} |")
    assert "".join(row) in readme


@pytest.mark.parametrize("name", ["jko_icnn", "swgf", "langevin"])
def test_figures_of_the_published_settings(name: str, readme: str) -> None:
    row = [f"| {TITLES[name]}, run |"]
    for dataset in ("banana", "diabetes", "twonorm"):
        found = cells(paper=True)[name, dataset]
        random = [cell for cell in found if cell["split"] != "authors"]
        accuracy = spread(random) if len(random) > 1 else short(mean(random, "accuracy"))
        row.append(f" {accuracy}, {short(mean(random, 'log_likelihood'))} ({len(random)}) |")
        row += [
            f" {short(mean([own], 'accuracy'))}, {short(mean([own], 'log_likelihood'))} |"
            for own in found
            if own["split"] == "authors"
        ]
    assert "".join(row) in readme


def test_how_far_the_published_settings_get(readme: str) -> None:
    """The functionals are those that the paragraph states."""
    text = " ".join(readme.split())
    paper = cells(paper=True)

    def functionals(name: str, dataset: str) -> list[float]:
        of_random = [cell for cell in paper[name, dataset] if cell["split"] != "authors"]
        return [cell["notes"]["ledger"][-1]["functional"] for cell in of_random]

    def asked(pattern: str) -> tuple[str, ...]:
        found = re.search(pattern, text)
        assert found is not None, pattern
        return found.groups()

    said = asked(r"ends at (\d+) to (\d+) on diabetes' five splits, where Langevin's bound is (\d+) to (\d+), and at")
    ours, bound = functionals("jko_icnn", "diabetes"), functionals("langevin", "diabetes")
    assert said == tuple(f"{value:.0f}" for value in (min(ours), max(ours), min(bound), max(bound)))
    said = asked(r"and at (\d+) on twonorm \((\d+)\)") + asked(r"not on twonorm \((\d+)\)")
    assert said == tuple(f"{functionals(name, 'twonorm')[0]:.0f}" for name in ("jko_icnn", "langevin", "swgf"))
    pairs = zip(functionals("jko_icnn", "banana"), functionals("langevin", "banana"), strict=True)
    above = [reached - least for reached, least in pairs]
    assert asked(r"On banana it comes within ([\d.]+) to ([\d.]+) of") == (f"{min(above):.1f}", f"{max(above):.1f}")
