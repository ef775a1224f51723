"""`make paper-quick`: every table and figure, from runs of a hundredth of the steps; and again from the runs alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLES = [f"{name}.{suffix}" for name in ("table1", "table2", "table3", "table4", "table5", "shd")
          for suffix in ("csv", "md", "tex")]  # fmt: skip
FIGURES = [f"fig{number}.{suffix}" for number in (2, 3, 4, 5) for suffix in ("png", "pdf")]


def paper(root: Path, *words: str, **environment: str) -> None:
    command = [sys.executable, "scripts/paper.py", "--quick", "--into", str(root), *words]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | environment)
    assert shown.returncode == 0, shown.stderr[-2000:]


def test_quick_builds_all_and_rebuilds_it_identically_without_the_data(paper_files: Path, tmp_path: Path) -> None:
    paper(tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert sorted(made) == sorted([*TABLES, *FIGURES, "health.md"])
    for name in made:
        (tmp_path / name).unlink()
    # As `make paper` in a clean clone: the run folders are all there is.
    paper(tmp_path, "--only", "build", PROXLEARN_DATA=str(tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == made
    for name in ("table2.md", "fig4.png", "health.md"):
        assert b"proxlearn train experiment=" in made[name], f"{name} does not name the command that made it"
