"""Every committed page of results: the conclusion comes first, tables are narrow, numbers are readable.

`make paper-quick` builds every table and figure from short runs, and again from the archive alone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proxlearn.paper.archive import Archive
from proxlearn.paper.archive_files import read_packed_runs
from proxlearn.paper.builders import build
from proxlearn.paper.run_plan import PLAN
from proxlearn.paper.target_names import TARGETS
from proxlearn.paper.tuned_page import TUNED
from proxlearn.paper.weight_updates_page import WEIGHTS

OUTPUTS = Path(__file__).parents[2] / "outputs"
PAGES = sorted(path for path in OUTPUTS.rglob("*.md") if "runs" not in path.parts)
MAX_WIDTH = 110
MAX_FILES = 150


def test_the_pages_are_there() -> None:
    names = {str(path.relative_to(OUTPUTS)) for path in PAGES}
    tables = {f"paper/{name}.md" for name in TARGETS if not name.startswith("fig")}
    assert names >= tables | {"tuned.md", "weights.md"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_begins_with_its_conclusion(path: Path) -> None:
    title, blank, line = path.read_text(encoding="utf-8").splitlines()[:3]
    assert title.startswith("# ")
    assert blank == ""
    assert re.fullmatch(r"[A-Zr0-9].*\d.*\.|(All|Both) .*\.", line), line


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_readable(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    wide = [line for line in text.splitlines() if line.startswith("|") and len(line) > MAX_WIDTH]
    assert wide == []
    # A run with such a figure has diverged and is called so; a zero has no sign.
    assert re.findall(r"\d\.\d+e\+(?!00)\d+", text) == []
    assert re.findall(r"(?<![\d.e])-0(?:\.0+)?(?![\d.])", text) == []
    assert "hydra.run.dir" not in text
    assert "## Made by" not in text


def test_outputs_hold_few_files() -> None:
    listed = subprocess.run(["git", "ls-files", "outputs"], cwd=OUTPUTS.parent, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is not a git repository")
    assert len(listed.stdout.splitlines()) <= MAX_FILES


def test_all_is_rebuilt_from_the_archive_byte_for_byte(tmp_path: Path, monkeypatch) -> None:
    """This is `proxlearn paper all` in a clean clone, without the data; test_quick.py covers the figures."""
    monkeypatch.setenv("PROXLEARN_DATA", str(tmp_path / "no data"))
    root = tmp_path / "paper"
    root.mkdir()
    for folder in (OUTPUTS / "paper").iterdir():
        if folder.is_dir() and folder.name != "runs":
            (root / folder.name).symlink_to(folder)
    archive = Archive(root)
    # sources.txt is complete after the last page.
    for path in {path for name in TARGETS if not name.startswith("fig") for path in build(name, archive)}:
        assert path.read_bytes() == (OUTPUTS / "paper" / path.name).read_bytes(), path.name
    for measurement in (TUNED, WEIGHTS):
        (tmp_path / measurement.name).symlink_to(OUTPUTS / measurement.name)
        path = measurement.write(tmp_path)
        assert path is not None
        assert path.read_bytes() == (OUTPUTS / path.name).read_bytes()


def test_every_stored_fit_is_one_that_would_be_made_today() -> None:
    """A changed config would leave the stored results without a page, and all fits would be repeated."""
    assert {dataset: len(fits) for dataset, fits in TUNED.results(OUTPUTS).items()} == dict.fromkeys(TUNED.overrides, 5)
    assert {dataset: len(fits) for dataset, fits in WEIGHTS.results(OUTPUTS).items()} == dict.fromkeys(
        WEIGHTS.overrides, 20
    )


TABLES = [f"{name}.{ending}" for name in ("table1", "table2", "table3", "table4", "table5", "shd")
          for ending in ("csv", "md", "tex")]  # fmt: skip
FIGURES = [f"fig{number}.{ending}" for number in (2, 3, 4, 5) for ending in ("png", "pdf")]
HEALTH = ["health.md", "curves.md", "sources.txt"]


def paper(root: Path, *words: str, **environment: str) -> None:
    command = [sys.executable, "-m", "proxlearn", "paper", *words, "--into", root.name]
    ended = subprocess.run(command, cwd=root.parent, capture_output=True, text=True, env=os.environ | environment)
    assert ended.returncode == 0, ended.stderr[-2000:]


def files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.iterdir() if path.is_file() and path.suffix}


def test_quick_builds_all_and_the_archive_alone_rebuilds_it_identically(paper_files: Path, tmp_path: Path) -> None:
    root = tmp_path / "results"
    paper(root, "--quick")
    built = files(root)
    assert sorted(built) == sorted([*TABLES, *FIGURES, *HEALTH])
    packed = {name for entry in PLAN for name in read_packed_runs(root / entry.experiment)}
    assert packed == {run.name for entry in PLAN for run in entry.runs(root, quick=True)}
    for name in built:
        (root / name).unlink()
    # As `make paper` in a clean clone: neither the run folders nor the data are there.
    shutil.rmtree(root / "runs")
    paper(root, "tables", "figures", "curves", "health", PROXLEARN_DATA=str(tmp_path))
    assert files(root) == built
    for name in ("sources.txt", "table2.tex", "fig4.png"):
        assert b"proxlearn train experiment=" in built[name], f"{name} does not name the command that made it"
    assert str(tmp_path).encode() not in built["fig4.png"] + built["table2.tex"]
