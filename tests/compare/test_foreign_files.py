"""In the output folder of ``proxlearn compare``, no file that it did not write is replaced, truncated or deleted."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from proxlearn.cli import main
from proxlearn.compare.comparison_files import KNOWN_NAMES, PLAN, recorded_names, table_names
from proxlearn.run.folder_recognition import is_comparison

COMMITTED = Path(__file__).resolve().parents[2] / "outputs" / "compare"
WORDS = ["compare", "--dataset", "wdbc", "--splits", "1", "--jobs", "1", "--threads", "1", "--output", "out"]
REFERENCES = ["--method", "majority", "logistic"]
LIGHT = "matched-light"
MINE = "mine, and nobody else's\n"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a comparison of the reference methods."""
    folder = tmp_path_factory.mktemp("comparison")
    assert main([*WORDS[:-1], str(folder / "out"), *REFERENCES]) == 0
    return folder / "out"


@pytest.fixture
def out(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, "out")
    return Path("out")


def contents(folder: Path) -> dict[str, bytes | str]:
    return {
        str(path): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one-line error of a command that must change nothing."""
    before = contents(Path("out"))
    capsys.readouterr()
    assert main(words) == 2
    assert contents(Path("out")) == before
    lines = [line for line in capsys.readouterr().err.splitlines() if "show no differences" not in line]
    (line,) = lines
    return line


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        ".lock",
        "compare.log",
        "splits.jsonl",
        "cells.jsonl",
        "splits/wdbc-0.json",
        "cells/wdbc/0-majority.json",
        f"{LIGHT}/compare.md",
        f"{LIGHT}/plan.json",
    ],
)
def test_a_folder_of_others_is_refused(name: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("out", name)
    path.parent.mkdir(parents=True)
    path.write_text('{"command": "make", "format": "mine"}' if path.suffix == ".json" else MINE)
    line = refusal([*WORDS, *REFERENCES], capsys)
    assert f"out contains other files ({name.split('/')[0]}) but no comparison of proxlearn; choose a new" in line
    assert line.endswith("or empty folder: --output FOLDER")
    assert [each.name for each in Path("out").iterdir()] == [name.split("/")[0]]


USERS = (".lock", "compare.log", "splits.jsonl", "cells.jsonl", f"{LIGHT}/networks.csv", f"{LIGHT}/networks.pdf")


# An empty lock or log is what a process that was killed at its start, or a full disk, leaves of one of ours.
@pytest.mark.parametrize(
    "name, kind",
    [(name, kind) for kind in ("text", "link", "empty") for name in (USERS[2:] if kind == "empty" else USERS)],
)
def test_a_file_of_the_user_in_a_comparison_is_refused(name: str, kind: str, out: Path, capsys) -> None:
    Path("elsewhere").write_text(MINE)
    path = out / name
    path.unlink(missing_ok=True)
    if kind == "link":
        path.symlink_to(Path("elsewhere").absolute())
    else:
        path.write_text(MINE if kind == "text" else "")
    line = refusal([*WORDS, *REFERENCES, "majority", "adam", "--splits", "2"], capsys)
    assert f"{path} was not written by `proxlearn compare`; move it elsewhere, or choose another" in line
    assert Path("elsewhere").read_text() == MINE


def test_a_file_in_place_of_a_plan_a_cache_or_a_folder_is_refused(out: Path, capsys) -> None:
    for path in (out / "cells.jsonl", out / "splits.jsonl", out / LIGHT / PLAN):
        old = path.read_bytes()
        path.write_text('{"mine": 1}')
        assert f"{path} was not written by" in refusal([*WORDS, *REFERENCES], capsys)
        path.write_bytes(old)
    shutil.rmtree(out / LIGHT)
    (out / LIGHT).write_text(MINE)
    assert f"{LIGHT} is not a folder; move it" in refusal([*WORDS, *REFERENCES], capsys)


def test_only_files_that_were_recorded_are_replaced_or_deleted(out: Path) -> None:
    tables = out / LIGHT
    written = {path.name for path in tables.iterdir()} - {PLAN}
    assert json.loads((tables / PLAN).read_text())["files"] == sorted(written)
    # Files of a larger comparison, of which the plan says that two are the command's own.
    for name in ("samplers.csv", "samplers.tex", "networks.csv", "paper.csv", "notes.md"):
        (tables / name).write_text(MINE)
    Path("notes.md").write_text(MINE)
    plan = json.loads((tables / PLAN).read_text())
    forged = ["../../notes.md", "notes.md", str(Path("notes.md").absolute())]
    plan["files"] += ["samplers.csv", "samplers.tex", *forged]
    (tables / PLAN).write_text(json.dumps(plan))
    users = [tables / name for name in ("networks.csv", "paper.csv", "notes.md")]
    # Folders of version 0.1.0, and one of the user's that has the name of the jobs' folder without its dot.
    users += [
        Path("notes.md"),
        out / "notes.json",
        *(out / name / "notes.json" for name in ("cells", "splits", "jobs")),
    ]
    for path in users[3:]:
        path.parent.mkdir(exist_ok=True)
        path.write_text(MINE)
    assert main([*WORDS, *REFERENCES]) == 0
    left = {path.name for path in tables.iterdir()}
    assert left == {*written, PLAN, "networks.csv", "paper.csv", "notes.md"}
    assert json.loads((tables / PLAN).read_text())["files"] == sorted(written)
    assert {path.read_text() for path in users} == {MINE}


def test_a_plan_without_a_list_stands_for_what_its_version_wrote(out: Path, capsys) -> None:
    tables = out / LIGHT
    plan = json.loads((tables / PLAN).read_text())
    names = plan.pop("files")
    (tables / PLAN).write_text(json.dumps(plan))
    assert recorded_names(tables) == set(names)
    (tables / "networks.csv").write_text(MINE)
    assert "networks.csv was not written" in refusal([*WORDS, "--method", "adam"], capsys)
    assert main([*WORDS, *REFERENCES]) == 0
    assert json.loads((tables / PLAN).read_text())["files"] == names


@pytest.mark.parametrize(
    "damage", ['{"command": "proxlearn compare", "files": [[1]]}', '{"command": "proxlearn compare']
)
def test_a_damaged_plan_claims_no_file(damage: str, out: Path, capsys) -> None:
    (out / LIGHT / PLAN).write_text(damage)
    message = refusal([*WORDS, *REFERENCES], capsys)
    assert "5 files, such as " in message
    assert "compare.md, were not written by `proxlearn compare`; move them elsewhere" in message


def test_a_command_that_was_killed_at_its_start_is_no_obstacle(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("out").mkdir()
    Path("out/.lock").write_text('{"pid": 1, "ho')
    Path("out/.proxlearn-splits.jsonl.99999999.tmp").write_text("{")
    assert main([*WORDS, "--method", "majority"]) == 0
    assert not list(Path("out").glob(".proxlearn-*"))


def test_an_empty_log_is_no_obstacle(out: Path) -> None:
    (out / "compare.log").write_text("")
    assert main([*WORDS, *REFERENCES]) == 0


def test_the_committed_comparisons_are_recognised_with_all_their_files() -> None:
    assert is_comparison(COMMITTED)
    for folder, protocol in ((LIGHT, "matched"), ("paper-paper", "paper")):
        names = set(table_names(("network", "sampler"), protocol))
        present = {path.name for path in (COMMITTED / folder).iterdir()} - {PLAN}
        # Files for LaTeX and figures as PDF are built, not committed.
        committed = {name for name in names if not name.endswith((".tex", ".pdf"))}
        assert committed <= present == recorded_names(COMMITTED / folder)
        assert present <= names <= KNOWN_NAMES
