"""``proxlearn data``: the table, fetching and verifying."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from proxlearn import cli
from proxlearn.data import registry
from tests.data.conftest import empty_cache

__all__ = ["empty_cache"]


def test_the_table_names_every_dataset_with_its_figures(empty_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert set(lines) == {"dataset", *registry.LOADERS}
    assert lines["shd"].split()[1:4] == ["1593", "256", "10"]
    assert "CC BY 4.0" in lines["shd"]
    assert "  not fetched  " in lines["banana"]
    assert "  none needed  " in lines["wdbc"]
    assert "  dataset.path  " in lines["csv"]


def test_present_files_are_shown_with_their_place(paper_files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "list", "banana"]) == 0
    assert str(paper_files / "banana.dat") in capsys.readouterr().out


def test_it_answers_without_torch_pandas_or_scikit_learn() -> None:
    code = (
        "import sys; from proxlearn import cli; cli.main(['data']); cli.main(['data', 'verify', 'wdbc']);"
        "sys.exit(bool({'torch', 'pandas', 'sklearn', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_verify_passes_good_files(paper_files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "verify"]) == 0
    assert len(re.findall(r"sha256 [0-9a-f]{64} matches$", capsys.readouterr().out, re.MULTILINE)) == 4


def test_verify_names_a_damaged_file_and_goes_on(
    paper_files: Path, empty_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty_cache.mkdir(parents=True)
    for name in ("banana.dat", "pima.dat"):
        (empty_cache / name).write_bytes((paper_files / name).read_bytes())
    with open(empty_cache / "banana.dat", "r+b") as file:
        file.write(b"7")
    assert cli.main(["data", "verify"]) == 2
    output = capsys.readouterr().out
    assert f"banana: {empty_cache / 'banana.dat'} is damaged" in output
    assert len(re.findall(r"sha256 [0-9a-f]{64} matches$", output, re.MULTILINE)) == 1
    assert "shd: semeion.data is not on this machine" in output


def test_fetch_leaves_good_files_alone_and_says_where_they_are(
    paper_files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["data", "fetch", "banana", "wdbc"]) == 0
    output = capsys.readouterr().out
    assert f"{paper_files / 'banana.dat'} is present, and its sha256 matches" in output
    assert "wdbc: needs no file" in output


def test_an_unknown_name_is_corrected(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "fetch", "bananna"]) == 2
    assert "did you mean `banana`?" in capsys.readouterr().err
