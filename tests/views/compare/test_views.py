"""The tables of a comparison: two blocks with the same reference methods, and the same values in every format."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxlearn.baselines.registry import METHODS
from proxlearn.commands import compare as command
from proxlearn.compare.cells import Cell, CellResult
from proxlearn.compare.comparison_files import PLAN, read_comparison, write_plan
from proxlearn.compare.spec import AUTHORS, CELLS, ComparisonSpec, scaling_of
from proxlearn.compare.statistics import summarise
from proxlearn.errors import InputError
from proxlearn.jobs.result_cache import ResultCache
from proxlearn.views.compare.comparison_views import (
    MAX_WIDTH,
    block_sections,
    conclusion,
    narrow_tables,
    render_comparison,
    summary,
    write_tables,
)
from proxlearn.views.tables import escape_latex
from tests.conftest import config_of

ACCURACY = {
    "proxlearn": 0.9,
    "adam": 0.88,
    "jko_icnn": 0.6,
    "swgf": 0.62,
    "majority": 0.55,
    "logistic": 0.57,
    "bayes": 0.95,
}
SPLITS = 4


def accuracy(method: str, split: int) -> float:
    wiggle = np.random.default_rng(split + 10 * list(ACCURACY).index(method)).normal() / 100
    return ACCURACY[method] + float(wiggle)


def write_comparison(
    folder: Path, protocol: str = "matched", missing: str | None = None, ours: dict | None = None, authors: str = ""
) -> Path:
    """Write a comparison with known values, without any fit."""
    datasets = tuple(config_of(f"dataset={name}").dataset for name in ("banana", "twonorm"))
    spec = ComparisonSpec(datasets, tuple(METHODS[name] for name in ACCURACY), SPLITS, "light", protocol, 1.0)
    cells, cache = [], ResultCache(folder / CELLS)
    for split in range(SPLITS):
        for config in datasets:
            for method in spec.methods:
                if method.only and config.name not in method.only:
                    continue
                scaling = scaling_of(spec.protocol, method, config.name)
                cell = Cell(method, config, "a" * 64, split, "b" * 64, 0.25, scaling)
                cells.append(cell)
                figures = {"accuracy": accuracy(method.name, split), "log_likelihood": -0.3, "calibration_error": 0.1}
                result = CellResult(figures | {"seconds": 1.5}, {"N": 500} if method.name == "adam" else {})
                if method.name != missing:
                    cache.put(cell.identity, result.values())
    if authors:
        alone = Cell(METHODS[authors], datasets[0], "a" * 64, AUTHORS, "c" * 64, 0.25, "standard")
        figures = {"accuracy": 0.125, "log_likelihood": -7.0, "calibration_error": 0.5, "seconds": 99.0}
        cache.put(alone.identity, CellResult(figures).values())
        cells.append(alone)
    errors = {cell.key: "a reason" for cell in cells if cell.method.name == missing}
    return write_plan(spec, cells, folder, "proxlearn compare ...", ours or {}, errors)


def test_two_blocks_each_with_its_own_rows_and_the_reference_lines(tmp_path: Path) -> None:
    folder = write_comparison(tmp_path)
    names = sorted(path.name for path in render_comparison(folder))
    stems = ("networks", "samplers")
    assert names == sorted(["compare.md", *(f"{stem}.{end}" for stem in stems for end in ("csv", "tex", "png", "pdf"))])
    document = (folder / "compare.md").read_text()
    first, second = document.split("## A. Two-layer networks")[1].split("## B. Posterior samplers")
    assert "500 tanh neurons" in first
    assert "the temperature is 1." in second
    assert "overlap, so this interval is too narrow" in second
    for own, other, stem in (
        (("proxlearn", "adam"), ("jko_icnn", "swgf"), "networks"),
        (("jko_icnn", "swgf"), ("adam",), "samplers"),
    ):
        part = first if stem == "networks" else second
        with (folder / f"{stem}.csv").open() as file:
            listed = {row["method"] for row in csv.DictReader(file)}
        assert listed == {*own, "majority", "logistic", "bayes"}
        latex = (folder / f"{stem}.tex").read_text()
        for text, mark in ((part, "| "), (latex, "")):
            assert all(f"{mark}{METHODS[name].title}" in text for name in own)
            assert not any(f"{mark}{METHODS[name].title}" in text for name in other)
            assert "reference: majority class" in text
    assert "A. Two-layer networks: test accuracy" in summary(folder)
    assert "Not finished" not in document


def test_every_form_has_the_mean_the_deviation_and_the_paired_difference(tmp_path: Path) -> None:
    folder = write_comparison(tmp_path)
    write_tables(read_comparison(folder))
    values = {name: np.array([accuracy(name, split) for split in range(SPLITS)]) for name in ("proxlearn", "adam")}
    shown = summarise(values["adam"]).text(4)
    assert f"| Adam                           | {shown} | {shown} |" in (folder / "compare.md").read_text()
    latex = escape_latex(shown)
    assert f"Adam & {latex} & " in (folder / "networks.tex").read_text()
    with (folder / "networks.csv").open() as file:
        row = next(row for row in csv.DictReader(file) if (row["dataset"], row["method"]) == ("banana", "adam"))
    assert float(row["accuracy"]) == pytest.approx(values["adam"].mean(), rel=1e-5)
    assert float(row["accuracy_sd"]) == pytest.approx(values["adam"].std(ddof=1), rel=1e-5)
    assert float(row["accuracy_difference"]) == pytest.approx((values["adam"] - values["proxlearn"]).mean(), rel=1e-4)
    ratio = float(row["accuracy_difference_corrected"]) / float(row["accuracy_difference_student"])
    assert ratio == pytest.approx(np.sqrt(1 + SPLITS * 0.25), rel=1e-4)


def test_the_page_begins_with_its_conclusion_and_has_narrow_tables_and_no_command(tmp_path: Path) -> None:
    for protocol in ("matched", "paper"):
        folder = write_comparison(tmp_path / protocol, protocol=protocol)
        write_tables(read_comparison(folder))
        lines = (folder / "compare.md").read_text().splitlines()
        assert lines[2] == (
            "Test accuracy compared with ProxLearn (corrected 95 % intervals): of the networks, Adam has a "
            "lower accuracy on banana and twonorm; of the samplers, all 2 have a lower accuracy on banana and twonorm."
        )
        assert max(len(line) for line in lines if line.startswith("|")) <= MAX_WIDTH
        assert not any("proxlearn compare ..." in line for line in lines)
        assert json.loads((folder / PLAN).read_text())["command"] == "proxlearn compare ..."


def test_without_proxlearn_the_conclusion_names_the_best_and_counts_what_is_missing(tmp_path: Path) -> None:
    folder = write_comparison(tmp_path, missing="bayes")
    comparison = read_comparison(folder)
    some = replace(comparison, methods=tuple(m for m in comparison.methods if m.name != "proxlearn"))
    means = [summarise(accuracy("adam", split) for split in range(SPLITS)).mean] * 2
    assert conclusion(some, block_sections(some)) == (
        "4 of 52 cells are not finished. Highest mean test accuracy: "
        f"banana {means[0]:.4f} (Adam), twonorm {means[1]:.4f} (Adam)."
    )
    nothing = replace(some, cells=tuple(replace(cell, result=None) for cell in some.cells))
    assert conclusion(nothing, block_sections(nothing)) == "52 of 52 cells are not finished. No cell has finished."


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(1, 5))
def test_narrow_tables_hold_every_column_once_and_fit_if_a_column_alone_does(widths, count) -> None:
    head = ["row", *(f"c{place}" for place in range(len(widths)))]
    rows = [[f"r{row}", *("x" * width for width in widths)] for row in range(count)]
    parts = list(narrow_tables(head, rows))
    columns = [column.strip() for part in parts for column in part.splitlines()[0].strip("|").split("|")[1:]]
    assert columns == head[1:]
    assert all(part.startswith("| row") and part.count("\n") == count + 2 for part in parts)
    assert max(len(line) for part in parts for line in part.splitlines()) <= MAX_WIDTH


def test_what_has_failed_is_said_and_the_rest_stands(tmp_path: Path) -> None:
    folder = write_comparison(tmp_path, missing="swgf")
    cache = ResultCache(tmp_path / CELLS)
    adam = ("adam", "banana", 2)
    (absent,) = (r for r in cache if tuple(r.identity[key] for key in ("method", "dataset", "split")) == adam)
    cache.remove(absent.identity)
    write_tables(read_comparison(folder))
    document = (folder / "compare.md").read_text()
    assert "- banana, split 0, swgf: a reason" in document
    assert "- banana, split 2, adam: not run yet" in document
    assert "(3 of 4)" in document
    assert "| SWGF + RealNVP                 | not finished" in document


def test_without_proxlearn_there_are_no_differences_and_without_blocks_the_lines_stand_alone(tmp_path: Path) -> None:
    folder = write_comparison(tmp_path)
    render_comparison(folder)
    plan = json.loads((folder / PLAN).read_text())
    for kept, section in ((("adam", "majority"), "## A. Two-layer networks"), (("majority",), "## Reference lines")):
        plan["files"] = json.loads((folder / PLAN).read_text())["files"]
        some = plan | {
            name: [each for each in plan[name] if each[key] in kept]
            for name, key in (("methods", "name"), ("cells", "method"))
        }
        (folder / PLAN).write_text(json.dumps(some))
        names = {path.name for path in render_comparison(folder)}
        document = (folder / "compare.md").read_text()
        assert section in document
        assert "difference from ProxLearn" not in document
        assert "Differences" not in document + summary(folder)
        # Nothing is left of what an earlier command has drawn.
        assert {path.name for path in folder.iterdir()} == {*names, PLAN}


def test_the_papers_protocol_sets_what_was_run_beside_what_was_printed(tmp_path: Path) -> None:
    ours = {"banana": {"runs": "5", "recursions": "3500", "weighted": "0.5541", "weighted sd": "0.0111"}}
    folder = write_comparison(tmp_path, protocol="paper", ours=ours)
    assert {"paper.csv", "paper.tex"} <= {path.name for path in write_tables(read_comparison(folder))}
    with (folder / "paper.csv").open() as file:
        rows = {(row["dataset"], row["row"]): row for row in csv.DictReader(file)}
    weighted = rows["banana", "ProxLearn, the paper's settings, weighted"]
    assert weighted["accuracy, run"] == "0.554 ± 0.011 (5 runs, 3500 recursions)"
    assert weighted["accuracy, printed"] == "0.551 ± 0.010"
    assert rows["twonorm", "ProxLearn, the paper's settings, weighted"]["accuracy, run"] == "not run (make table4)"
    jko = rows["twonorm", "JKO-ICNN, preset light"]
    assert jko["accuracy, printed"] == "0.9810 ± 0.0002 (0.9818)"
    assert jko["log-lik., printed"] == "-0.0579"
    assert jko["accuracy, run"] == summarise(accuracy("jko_icnn", split) for split in range(SPLITS)).text(4)
    assert rows["banana", "SVGD, preset light"]["accuracy, run"] == "not run"
    assert "The rows are not comparable" in (folder / "compare.md").read_text()


def test_the_samplers_own_split_has_a_row_and_no_part_in_any_mean(tmp_path: Path) -> None:
    written = {}
    for authors in ("", "jko_icnn"):
        folder = write_comparison(tmp_path / f"with {authors}", protocol="paper", authors=authors)
        render_comparison(folder)
        written[authors] = {path.name: path.read_text() for path in folder.iterdir() if path.suffix in (".csv", ".md")}
    for name in ("networks.csv", "samplers.csv"):
        assert written[""][name] == written["jko_icnn"][name]
    added = set(written["jko_icnn"]["paper.csv"].splitlines()) - set(written[""]["paper.csv"].splitlines())
    assert added == {
        'banana,"JKO-ICNN, preset light, on the samplers\' own split","linear, 80/20",0.1250,'
        "0.5500 ± 0.0100 (0.5613),-7.0000,-0.6910"
    }
    line = "- banana, JKO-ICNN: 0.1250 (log-likelihood -7.0000)"
    assert line in summary(folder)
    for authors, explained in (("", False), ("jko_icnn", True)):
        assert ("- The samplers' own split (`--splits 5 authors`;" in written[authors]["compare.md"]) is explained


def test_ours_is_taken_from_the_reproduced_table_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = ComparisonSpec((), (), 1, "light", "paper", 1.0)
    assert command.paper_settings_rows(spec) == {}
    command.PAPER_TABLE.parent.mkdir(parents=True)
    command.PAPER_TABLE.write_text("dataset,runs,recursions,weighted,weighted sd\nbanana,5,3500,0.55,0.01\n")
    assert command.paper_settings_rows(spec)["banana"]["weighted"] == "0.55"
    assert command.paper_settings_rows(ComparisonSpec((), (), 1, "light", "matched", 1.0)) == {}


@pytest.mark.parametrize("content", ["", "[]", '{"cells": 3}'])
def test_a_plan_that_cannot_be_read_is_one_line(content, tmp_path: Path) -> None:
    (tmp_path / PLAN).write_text(content)
    with pytest.raises(InputError, match="repeat the `proxlearn compare"):
        read_comparison(tmp_path)


def test_the_committed_pages_conclude_in_their_third_line() -> None:
    folder = Path(__file__).parents[3] / "outputs" / "compare"
    for page in folder.glob("*/compare.md"):
        lines = page.read_text(encoding="utf-8").splitlines()
        comparison = read_comparison(page.parent)
        assert lines[2] == conclusion(comparison, block_sections(comparison))
        assert "all 4 have a lower accuracy on banana" in lines[2]
        assert max(len(line) for line in lines if line.startswith("|")) <= MAX_WIDTH
