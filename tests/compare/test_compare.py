"""``proxlearn compare`` as a user runs it: computed once, continued, robust to failing methods, one-line errors.

Means and intervals, against scipy and against closed forms.
"""

from __future__ import annotations

import csv
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from proxlearn import cli
from proxlearn.baselines.registry import METHODS, Method
from proxlearn.commands import compare
from proxlearn.compare.spec import AUTHORS_SEEDS, CELLS, LOG, SPLITS
from proxlearn.compare.statistics import Interval, MeanSd, interval, paired, summarise
from proxlearn.jobs.result_cache import ResultCache

HERE = "tests.compare.throwaway"
WORDS = ["compare", "--dataset", "wdbc", "--splits", "2", "--output", "out", "--jobs", "2", "--threads", "1"]


@pytest.fixture
def throwaways(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name, block in (
        ("first", "network"),
        ("second", "sampler"),
        ("broken", "sampler"),
        ("killed", "sampler"),
        ("improbable", "network"),
        ("slow", "network"),
    ):
        monkeypatch.setitem(METHODS, name, Method(name, f"the {name} one", block, f"{HERE}:{name}"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_one_split_for_all_failures_alone_and_nothing_done_twice(throwaways: Path, capsys) -> None:
    every = [*WORDS, "--method", "first", "second", "broken", "killed", "improbable", "majority"]
    assert cli.main(every) == 1
    shown = capsys.readouterr().out
    calls = [line.split() for line in Path("calls.txt").read_text().splitlines()]
    assert sorted(call[:3] for call in calls) == sorted(
        [name, "wdbc", seed] for name in ("first", "second") for seed in "01"
    )
    rows = {(name, seed): digest for name, _, seed, digest in calls}
    assert rows["first", "0"] == rows["second", "0"] != rows["first", "1"] == rows["second", "1"]
    # Those that could not be done are named with their reason, a line each; the others have their figures.
    assert "- wdbc, split 1, broken: ValueError: two lines; see compare.log\n" in shown
    assert "- wdbc, split 0, killed: its process was killed by SIGKILL\n" in shown
    assert "- wdbc, split 0, improbable: the predictions of the method are not probabilities" in shown
    tables = Path("out", "matched-light")
    document = (tables / "compare.md").read_text()
    assert "- wdbc, split 0, broken: ValueError" in document
    with (tables / "networks.csv").open() as file:
        found = {row["method"]: row for row in csv.DictReader(file)}
    assert found["majority"]["splits"] == found["first"]["splits"] == "2"
    assert (found["improbable"]["splits"], found["improbable"]["accuracy"]) == ("0", "")
    assert "Traceback" in Path("out", "compare.log").read_text()

    # The same splits and cells for a command that asks for less; nothing is done again.
    fewer = [*WORDS, "--method", "first", "second", "majority"]
    assert cli.main(fewer) == 0
    assert len(Path("calls.txt").read_text().splitlines()) == 4
    assert "6 cells, 6 already finished" in capsys.readouterr().err

    # A damaged record is computed again, and no other one.
    cells = Path("out", CELLS)
    lines = cells.read_text().splitlines(keepends=True)
    (place,) = (n for n, line in enumerate(lines) if '"method": "second"' in line and '"split": 1' in line)
    cells.write_text("".join([*lines[:place], lines[place][:100] + "\n", *lines[place + 1 :]]))
    assert cli.main(fewer) == 0
    assert Path("calls.txt").read_text().splitlines()[4:] == [
        " ".join(call) for call in calls if call[0:3:2] == ["second", "1"]
    ]
    assert "1 damaged line is skipped" in capsys.readouterr().err
    assert {path.name for path in Path("out").iterdir()} == {CELLS, SPLITS, LOG, "matched-light"}


def test_a_hydra_launcher_can_run_the_cells(throwaways: Path) -> None:
    words = ["compare", "--dataset", "wdbc", "--splits", "2", "--output", "out", "--method", "first"]
    assert cli.main([*words, "--launcher", "basic"]) == 0
    assert len(ResultCache(Path("out", CELLS))) == 2
    assert {path.name for path in Path("out").iterdir()} == {CELLS, SPLITS, LOG, "matched-light"}


def test_a_signal_stops_the_cells_and_the_same_command_computes_the_rest(throwaways: Path, capsys) -> None:
    def send() -> None:
        while not Path("calls.txt").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    words = [*WORDS, "--jobs", "1", "--method", "slow", "majority"]
    threading.Thread(target=send, daemon=True).start()
    assert cli.main(words) == 130
    assert "stopped; the same command computes the missing cells" in capsys.readouterr().err
    assert [record.identity["method"] for record in ResultCache(Path("out", CELLS))] == ["majority"]
    Path("go").touch()
    assert cli.main(words) == 0
    assert "4 cells, 1 already finished" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, said",
    [
        (["--method", "adm"], "unknown method `adm`; did you mean `adam`?"),
        (["--dataset", "banan"], "unknown dataset `banan`; did you mean `banana`?"),
        (
            ["--dataset", "sine"],
            "the dataset sine does not have two classes; choose from banana, diabetes, twonorm, wdbc",
        ),
        (
            ["--dataset", "wdbc", "--method", "bayes"],
            "none of the methods in --method supports the dataset wdbc; add another method",
        ),
        (["--splits", "0"], "--splits must be a whole number >= 1, got 0; try --splits=5"),
        (["--splits", "many"], "--splits must be a whole number >= 1 and <= 1000, got 'many'; try --splits=5"),
        (
            ["--splits", "5", "4"],
            "--splits has 2 numbers without a dataset; give a single number for all datasets; use NAME=NUMBER to "
            "override it for one dataset",
        ),
        (["--splits", "5", "autors"], "--splits cannot be `autors`; did you mean `authors`?"),
        (
            ["--splits", "twonom=1"],
            "--splits names `twonom`, which is not one of the compared datasets; did you mean `twonorm`?",
        ),
        (["--splits", "wdbc=0"], "--splits wdbc must be a whole number >= 1, got 0; try --splits wdbc=5"),
        (
            ["--splits", "5", "authors"],
            "--splits authors is available only with --protocol paper; add --protocol paper",
        ),
        (
            ["--splits", "authors", "--protocol", "paper", "--dataset", "wdbc"],
            "--splits authors is available only for --dataset diabetes; add --dataset diabetes",
        ),
        (
            ["--preset", "paper", "--method", "swgf", "svm"],
            "no settings of swgf have been published for the dataset wdbc; choose --preset light or --dataset banana "
            "diabetes twonorm",
        ),
        (["--preset", "heavy"], "--preset cannot be 'heavy'; choose --preset=light|paper"),
        (["--protocol", "mine"], "--protocol cannot be 'mine'; choose --protocol=matched|paper"),
        (["--temperature", "0"], "--temperature must be a finite number > 0, got 0; try --temperature=1"),
        (
            ["--jobs", "2", "--launcher", "basic"],
            "--jobs and --threads have no effect with --launcher; use the launcher's settings instead",
        ),
        (
            ["--launcher", "jobib"],
            "unknown hydra/launcher `jobib`; did you mean `joblib`? (hydra/launcher: basic, joblib, ",
        ),
        (["--jobs", "0"], "--jobs must be a whole number >= 1, got 0; try --jobs=1"),
        (["--threads", "1.5"], "--threads must be a whole number >= 1, got 1.5; try --threads=1"),
        (
            ["--output", "/dev/null/x"],
            "cannot write to /dev/null, so the folder /dev/null/x cannot be created; choose another --output",
        ),
    ],
)
def test_a_wrong_command_is_one_line_and_leaves_nothing_behind(
    words, said, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["compare", *words]) == 2
    line = capsys.readouterr().err
    assert line.startswith(f"proxlearn: {said}")
    assert line.count("\n") == 1
    assert said.endswith(", ") or line == f"proxlearn: {said}\n"
    assert not list(tmp_path.iterdir())


def test_one_dataset_may_have_another_number_of_splits(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["compare", "--dataset", "wdbc", "--method", "majority", "--output", "out", "--jobs", "1"]
    for split_words, number in ((["5", "wdbc=2"], 2), (["wdbc=1"], 1), (["3"], 3)):
        assert cli.main([*words, "--splits", *split_words]) == 0
        document = Path("out/matched-light/compare.md").read_text(encoding="utf-8")
        assert ("5 random splits (wdbc: 2)" in document) == (number == 2)
        with Path("out/matched-light/references.csv").open(encoding="utf-8") as file:
            assert next(csv.DictReader(file))["splits"] == str(number)


def test_the_samplers_own_split_is_done_beside_the_random_ones_and_counted_apart(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(AUTHORS_SEEDS, "wdbc", 42)
    monkeypatch.chdir(tmp_path)
    words = [
        "compare",
        "--protocol",
        "paper",
        "--dataset",
        "wdbc",
        "--method",
        "majority",
        "--output",
        "out",
        "--jobs",
        "1",
    ]
    assert cli.main([*words, "--splits", "2", "authors"]) == 0
    assert [record.identity["split"] for record in ResultCache(Path("out", CELLS))] == [0, 1, "authors"]
    with Path("out/paper-light/references.csv").open(encoding="utf-8") as file:
        assert next(csv.DictReader(file))["splits"] == "2"


def test_a_method_for_other_data_only_has_no_row() -> None:
    spec = compare.parse_spec(compare.parser().parse_args(["--dataset", "wdbc"]))
    assert [method.name for method in spec.methods] == [name for name in METHODS if name != "bayes"]


def test_help_teaches_and_needs_neither_torch_nor_pandas() -> None:
    code = (
        "import sys; from proxlearn import cli\n"
        "try: cli.main(['compare', '--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit(bool({'torch', 'pandas', 'sklearn', 'matplotlib', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    for each in METHODS.values():
        assert f"  {each.name:<11}{each.title}" in done.stdout


FIGURES = st.lists(st.tuples(*[st.floats(0, 1).map(lambda x: round(x, 6))] * 2), min_size=2, max_size=12)


def by_split(values) -> dict[int, float]:
    return dict(enumerate(values))


@given(FIGURES)
def test_a_paired_interval_is_scipys(pairs) -> None:
    theirs, ours = (list(each) for each in zip(*pairs, strict=True))
    result = paired(by_split(theirs), by_split(ours), 0.25)
    differences = np.subtract(theirs, ours)
    assert result.mean == pytest.approx(differences.mean(), abs=1e-12)
    if np.ptp(differences) > 1e-9:
        low, high = ttest_rel(theirs, ours).confidence_interval(0.95)
        assert result.student == pytest.approx((high - low) / 2, rel=1e-6)


@given(FIGURES, st.floats(0.01, 2))
def test_the_correction_widens_by_nadeau_and_bengios_factor(pairs, share) -> None:
    result = interval([a - b for a, b in pairs], share)
    k = len(pairs)
    assert result.corrected == pytest.approx(result.student * math.sqrt(1 + k * share), rel=1e-9, abs=1e-12)


@given(FIGURES)
def test_the_other_way_round_is_the_same_with_the_other_sign(pairs) -> None:
    theirs, ours = (by_split(each) for each in zip(*pairs, strict=True))
    one, other = paired(theirs, ours, 0.25), paired(ours, theirs, 0.25)
    assert (one.mean, one.student, one.corrected) == (-other.mean, other.student, other.corrected)


def test_two_values_have_students_closed_form() -> None:
    # With one degree of freedom Student's law is Cauchy's, whose quantile is a tangent.
    result = interval([1.0, 3.0])
    assert (result.mean, result.student) == (2.0, pytest.approx(math.tan(0.475 * math.pi)))
    assert result.corrected == result.student
    assert not result.excludes_zero


def test_only_splits_that_both_have_are_paired_and_one_says_nothing_of_the_spread() -> None:
    result = paired({0: 0.5, 1: 0.7, 2: 0.9}, {1: 0.6, 2: 0.7, 3: 0.1}, 0.25)
    assert result.mean == pytest.approx(0.15)
    alone = paired({0: 0.5}, {0: 0.25}, 0.25)
    assert alone.mean == 0.25
    assert math.isnan(alone.student)
    assert not alone.excludes_zero
    assert math.isnan(paired({0: 0.5}, {1: 0.5}, 0.25).mean)


def test_a_mean_of_splits_has_the_sample_standard_deviation() -> None:
    assert summarise([1.0, 3.0]) == MeanSd(2.0, math.sqrt(2))


def test_the_text_has_both_intervals_and_a_star_by_the_corrected_one() -> None:
    clear, doubtful = Interval(1.0, 0.5, 0.9), Interval(-1.0, 0.5, 1.1)
    assert (clear.text(1), doubtful.text(1)) == ("+1.0 ± 0.5 (± 0.9) *", "-1.0 ± 0.5 (± 1.1)")
    assert (interval([0.5]).text(2), interval([]).text(2)) == ("+0.50", "")


@given(st.floats(-1e-3, 1e-3), st.integers(0, 6))
def test_no_zero_has_a_minus_sign(value: float, digits: int) -> None:
    for text in (MeanSd(value).text(digits), Interval(value, math.nan, math.nan).text(digits)):
        assert not (text.startswith("-") and float(text) == 0)
        assert float(text) == pytest.approx(value, abs=0.51 * 10**-digits)
