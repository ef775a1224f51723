"""Results over several runs, verdicts, conclusions, and the formats of a table.

The paper's values belong to its own experiments, setting for setting, and to no other run.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from proxlearn.compare.statistics import MeanSd, summarise
from proxlearn.config.run_name import NOT_TRAJECTORY
from proxlearn.config.schema import DatasetConfig, DeviceConfig, TrainConfig, build
from proxlearn.errors import InputError
from proxlearn.paper import sine_table
from proxlearn.paper.health_measures import is_changed
from proxlearn.paper.published import EXPERIMENTS, STEPS, find_experiments
from proxlearn.paper.result_table import (
    PARTIAL,
    LabelledCell,
    PageSection,
    ResultTable,
    TableColumn,
    TableRow,
    cell_text,
    conclusion,
    verdict,
)
from tests.conftest import config_of


def test_one_run_has_no_spread_and_none_has_no_mean() -> None:
    assert summarise([2.0]).mean == 2
    assert math.isnan(summarise([2.0]).sd)
    assert summarise([1.0, 3.0]) == MeanSd(2.0, math.sqrt(2))
    assert math.isnan(summarise([]).mean)


def test_a_figure_is_shown_with_its_spread_and_one_that_ran_away_by_its_size() -> None:
    assert MeanSd(92.25, 0.5).text(1) == "92.2 ± 0.5"
    assert MeanSd(32863.0).text(0) == "32863"
    assert MeanSd(1466860.8, 2074110.6).text(5) == "1.47e+06 ± 2.07e+06"
    assert MeanSd(math.nan).text(2) == ""


@pytest.mark.parametrize(
    "ours, paper, words",
    [
        (MeanSd(92.0), MeanSd(93.5), "agrees within 2.0 (-1.5)"),
        (MeanSd(92.0), MeanSd(95.0), "differs by -3.0 (one run)"),
        (MeanSd(92.0, 1.6), MeanSd(95.0), "agrees within the spread (-3.0)"),
        (MeanSd(92.0, 1.2), MeanSd(95.0, 1.2), "agrees within the spread (-3.0)"),
        (MeanSd(92.0, 1.2), MeanSd(95.0), "differs by -3.0"),
        (MeanSd(94.99), MeanSd(95.0), "agrees within 2.0 (+0.0)"),
    ],
)
def test_a_verdict_is_by_the_allowance_or_by_twice_the_joint_spread(ours, paper, words) -> None:
    assert verdict(ours, paper, 2.0, 1, complete=True) == words
    assert verdict(ours, paper, 2.0, 1, complete=False) == PARTIAL


def test_one_run_has_no_verdict_on_a_difference_and_is_named_as_one_where_it_differs() -> None:
    assert is_changed([], 0.5) == ""
    assert is_changed([40.0], 0.5) == "one run: no verdict"
    assert is_changed([40.0, 40.1], 0.5) == "yes (2 runs)"
    assert is_changed([40.0, -30.0], 0.5) == "no (2 runs)"
    assert verdict(MeanSd(92.0), MeanSd(95.0), 2.0, 1, complete=True) == "differs by -3.0 (one run)"


@pytest.mark.parametrize(
    "verdicts, line",
    [
        ({"a": "agrees within 2", "b": "agrees within 2"}, "Both risks agree with the paper's."),
        (dict.fromkeys("abc", "agrees within 2"), "All 3 risks agree with the paper's."),
        ({"a": "agrees within 2"}, "1 of 1 risks agree with the paper's."),
        (
            {"a": "agrees within 2", "b": "differs by +3"},
            "1 of 2 risks agree with the paper's; b differs by +3.",
        ),
        (
            {"a": "agrees within 2", "b": "differs by +3", "c": PARTIAL},
            "1 of 2 risks agree with the paper's; b differs by +3. "
            "There is no verdict on c, because runs are missing or too short.",
        ),
        ({"a": PARTIAL, "b": PARTIAL}, "There is no verdict, because the runs are shorter than the paper's (2 risks)."),
    ],
)
def test_a_conclusion_counts_what_agrees_and_names_the_rest(verdicts: dict[str, str], line: str) -> None:
    assert conclusion(verdicts, "risks") == line


def test_a_table_says_the_same_in_its_three_forms(tmp_path: Path) -> None:
    columns = (TableColumn("β"), TableColumn("accuracy (%)", 1), TableColumn("paper's", 1, "the paper"))
    rows = [TableRow([0.05, MeanSd(92.25, 0.5), 93.0], [])]
    sections = (PageSection("First", ("β", "accuracy (%)")), PageSection("Second", ("β", "paper's")))
    table = ResultTable("t", "A table", "It agrees.", columns, sections, rows, ["a note"])
    paths = table.write(tmp_path)
    assert [path.name for path in paths] == ["t.csv", "t.md", "t.tex", "sources.txt"]
    (row,) = csv.DictReader(io.StringIO(paths[0].read_text()))
    assert (row["accuracy (%)"], row["accuracy (%) sd"], row["paper's"]) == ("92.25", "0.5", "93")
    page = paths[1].read_text()
    assert page.startswith("# A table\n\nIt agrees.\n")
    assert "| 0.05 | 92.2 ± 0.5   |" in page
    assert "| β    | the paper |" in page
    assert "make t" not in page
    assert r"0.05 & 92.2 $\pm$ 0.5 & 93.0 \\" in paths[2].read_text()
    assert r"accuracy (\%)" in paths[2].read_text()
    assert paths[3].read_text() == "make t\n"
    ResultTable("s", "A table", "It agrees.", columns, sections, rows, []).write(tmp_path)
    table.write(tmp_path)
    assert paths[3].read_text() == "make s\n\nmake t\n"


def test_a_labelled_cell_is_a_word_for_readers_and_a_number_for_programs(tmp_path: Path) -> None:
    cell = LabelledCell(MeanSd(1e17, 2e17), "diverged (1 of 2)")
    table = ResultTable(
        "t", "T", "", (TableColumn("risk", 5),), (PageSection("S", ("risk",)),), [TableRow([cell], [])], []
    )
    numbers, page, latex, _ = (path.read_text() for path in table.write(tmp_path))
    assert numbers.splitlines()[1].startswith("1e+17,2e+17,")
    assert "| diverged (1 of 2) |" in page
    assert "diverged (1 of 2)" in latex
    assert "e+17" not in page + latex


@given(st.floats(-1e4, 1e4), st.integers(0, 5))
def test_no_number_is_shown_as_a_negative_zero(value: float, digits: int) -> None:
    for text in (
        cell_text(value, digits),
        cell_text(MeanSd(value, 0.5), digits).split(" ± ")[0],
    ):
        assert float(text) != 0 or not text.startswith("-")
        assert float(text) == float(f"{value:.{digits}f}")


def test_the_slope_against_one_over_N_is_recovered_and_the_distance_is_a_ratio() -> None:
    slope, intercept = sine_table.line({N: 0.2 + 3 / N for N in (500, 700, 1000, 2000)})
    assert (slope, intercept) == (pytest.approx(3), pytest.approx(0.2))
    twice = {N: MeanSd(2 * value) for N, value in sine_table.published.TABLE5.items()}
    assert sine_table.distance(twice) == pytest.approx(np.log(2))


@pytest.mark.parametrize(
    "figure, text",
    [
        (MeanSd(0.2142, 0.03835), "0.21420 ± 0.03835"),
        (MeanSd(7.73311, 4.75221), "7.73311 ± 4.75221"),
        (MeanSd(241.06637, 183.99751), "241.066 ± 183.998"),
        (MeanSd(math.nan), ""),
    ],
)
def test_a_figure_of_table_5_fits_its_column(figure: MeanSd, text: str) -> None:
    assert sine_table.figure_text(figure) == text


SAME = {*NOT_TRAJECTORY, "seed", "split_seed", "dataset.path", "device.device"}
"""Settings that repeat an experiment, or say where and how it is computed and logged."""
SECTIONS = {"dataset": DatasetConfig, "device": DeviceConfig}
LEAVES = [
    *((name,) for name in TrainConfig.__dataclass_fields__ if name not in SECTIONS and name not in SAME),
    *((group, name) for group, cls in SECTIONS.items() for name in cls.__dataclass_fields__),
]
LEAVES = [leaf for leaf in LEAVES if ".".join(leaf) not in SAME]
MAKERS = {
    float: st.floats(1e-6, 0.99),
    int: st.integers(1, 10**6),
    bool: st.booleans(),
    str: st.sampled_from(["tanh", "softmax", "other"]),
    type(None): st.none(),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Return all values that a field of this type may hold."""
    if typing.get_origin(hint) is typing.Literal:
        return st.sampled_from(typing.get_args(hint))
    if hint in MAKERS:
        return MAKERS[hint]
    return st.one_of(*(values_of(choice) for choice in typing.get_args(hint)))


def is_same_precision(leaf: tuple[str, ...], old: Any, new: Any) -> bool:
    """Return whether the precision is the same: a fallback does not affect a run that stays finite without it."""
    return leaf == ("device", "fallback_dtype") and {old, new} <= {None, "float64"}


@settings(deadline=None)
@given(st.data(), st.sampled_from(EXPERIMENTS), st.sampled_from(LEAVES))
def test_one_changed_setting_and_the_papers_figures_are_gone(data, experiment, leaf) -> None:
    config = dataclasses.asdict(experiment.config)
    assert experiment in find_experiments(config)
    *groups, key = leaf
    section = config[groups[0]] if groups else config
    old = section[key]
    if leaf == ("dataset", "initial"):
        block = data.draw(st.sampled_from(sorted(old)))
        new = old | {block: (old[block][0] - data.draw(st.floats(0.01, 1)), old[block][1])}
    else:
        new = data.draw(values_of(typing.get_type_hints(SECTIONS[groups[0]] if groups else TrainConfig)[key]))
    assume(new != old and not is_same_precision(leaf, old, new))
    section[key] = new
    try:
        build(TrainConfig, config)
    except InputError:
        assume(False)
    assert experiment not in find_experiments(config)


@settings(deadline=None)
@given(st.sampled_from(EXPERIMENTS), st.integers(0, 100), st.integers(0, 100), st.integers(0, 10**7), st.booleans())
def test_repetitions_logging_and_place_leave_it_the_papers_experiment(experiment, seed, split, steps, films) -> None:
    config = dataclasses.asdict(experiment.config)
    config |= {"seed": seed, "split_seed": split, "steps": steps, "films": films, "log_every": 7, "threads": 1}
    config["device"] |= {"device": "auto", "threads": 2}
    assert experiment in find_experiments(config)


@pytest.mark.parametrize(
    "words",
    [
        *(["table1", f"beta={beta}"] for beta in (0.03, 0.05, 0.07)),
        *(["table2", f"beta={beta}"] for beta in (0.03, 0.05, 0.07)),
        *(["table3", f"epsilon={epsilon}"] for epsilon in (0.1, 0.5, 1, 5, 10)),
        *(["table4", f"dataset={name}"] for name in ("banana", "diabetes", "twonorm")),
        *(["table5", f"N={N}"] for N in (500, 700, 1000, 2000)),
        ["fig3"],
    ],
    ids=" ".join,
)
def test_the_packaged_experiments_are_the_papers(words) -> None:
    """They are composed by Hydra here and by published.py there."""
    config = config_of(f"experiment={words[0]}", *words[1:])
    sources = {experiment.source: experiment.steps for experiment in find_experiments(dataclasses.asdict(config))}
    title = {"fig3": "Section 5", "table5": "Table 5 (which does not define its quantity)"}
    source = title.get(words[0], f"Table {words[0][-1]}")
    assert sources[source] == config.steps
    assert config.steps in STEPS.values()


def test_a_config_that_cannot_be_checked_has_no_figures_of_the_papers() -> None:
    config = dataclasses.asdict(EXPERIMENTS[0].config)
    assert find_experiments(config)
    for wrong in ({"beta": "a"}, {"dataset": 5}, {"unknown": 1}, {"dataset": config["dataset"] | {"name": ["wdbc"]}}):
        assert not find_experiments(config | wrong)
