"""`proxlearn paper`: its arguments, and the errors for wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxlearn import cli
from proxlearn.errors import InputError
from proxlearn.paper.builders import PAGES, TABLES
from proxlearn.paper.run_plan import PLAN
from proxlearn.paper.target_names import GROUPS, MEASUREMENTS, TARGETS, parse_targets


def test_every_target_has_a_builder_and_every_entry_of_the_plan_a_target() -> None:
    assert set(TARGETS) == {*TABLES, *PAGES}
    names = {entry.name for entry in PLAN}
    assert {name for entries in TARGETS.values() for name in entries} <= names
    assert set(GROUPS["all"]) == {*TARGETS, *MEASUREMENTS}


@pytest.mark.parametrize(
    "words, quick, names",
    [
        (["table2"], False, ["table2"]),
        (["runs", "table2", "table2"], False, ["table2"]),
        (["figures", "fig4"], False, ["fig2", "fig3", "fig4", "fig5"]),
        (["all"], False, list(GROUPS["all"])),
        (["runs"], False, list(GROUPS["all"])),
        (["all"], True, list(TARGETS)),
        ([], True, list(TARGETS)),
    ],
)
def test_words_name_targets(words: list[str], quick: bool, names: list[str]) -> None:
    assert parse_targets(words, quick) == names


@pytest.mark.parametrize(
    "words, message",
    [
        (["tabel2"], "unknown target `tabel2`; did you mean `table2`?"),
        (["figure"], "unknown target `figure`; did you mean `figures`?"),
        (["tuned", "--quick"], "`tuned` does not support --quick; leave --quick out"),
        (["all", "--jobs", "0"], "--jobs must be a whole number >= 1"),
    ],
)
def test_wrong_words_get_one_line_and_exit_code_2(
    words: list[str], message: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["paper", *words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_help_teaches_and_no_word_shows_it(capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["paper", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for name in (*MEASUREMENTS, *GROUPS, "table1 .. table5", "fig2 .. fig5", "runs [TARGET ...]", "--quick", "--into"):
        assert name in text
    assert "starts again from its first step" in text
    assert cli.main(["paper"]) == 2
    assert "usage: proxlearn paper" in capsys.readouterr().err


def test_without_runs_it_says_how_to_make_them(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["paper", "table4", "tuned"]) == 0
    captured = capsys.readouterr()
    assert "table4 has no runs yet; `proxlearn paper runs table4` trains them" in captured.err
    assert "tuned has no results yet; `proxlearn paper runs tuned`" in captured.err


def test_a_folder_of_other_files_is_left_alone(tmp_path: Path, capsys) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    assert cli.main(["paper", "table4", "--into", str(tmp_path)]) == 2
    assert "choose another --into" in capsys.readouterr().err
    (tmp_path / "tuned.md").write_text("# my notes\n")
    from proxlearn.paper.tuned_page import TUNED

    with pytest.raises(InputError, match=r"tuned.md is not a page of `proxlearn paper tuned`"):
        TUNED.measure(tmp_path, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.tex", "tuned.md"]
