"""`make paper-quick` builds every table and figure from short runs, and again from the archive alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from proxlearn.paper.archive_files import read_packed_runs
from proxlearn.paper.run_plan import PLAN

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
