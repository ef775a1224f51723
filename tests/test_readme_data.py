"""The README's page on new datasets, followed step by step in a copy of the project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def section(title: str) -> str:
    """Return the README from a heading to the next of the same or a higher level."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    start = re.search(rf"^(#+) {title}$", text, re.MULTILINE)
    assert start is not None, f"README.md has no section {title!r}"
    rest = text[start.end() :]
    # One # alone is the README's title, or a comment in a block of code.
    end = re.search(rf"^#{{2,{len(start[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_a_new_dataset_is_one_module_one_yaml_and_one_line(tmp_path: Path) -> None:
    page = section("A new dataset")
    for folder in ("proxlearn", "configs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    # As an installed wheel has them.
    (tmp_path / "proxlearn" / "configs").symlink_to(tmp_path / "configs")
    for language, suffix in (("python", "py"), ("yaml", "yaml")):
        names = re.findall(rf"^`([^`]+\.{suffix})` says", page, re.MULTILINE)
        for name, content in zip(names, blocks(page, language), strict=True):
            assert not (tmp_path / name).exists()
            (tmp_path / name).write_text(content, encoding="utf-8")
    (patch,) = blocks(page, "diff")
    subprocess.run(["git", "apply", "--unsafe-paths", "-"], cwd=tmp_path, input=patch, text=True, check=True)

    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "proxlearn"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m proxlearn "$@"\n')
    command.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(tmp_path),
        "OMP_NUM_THREADS": "1",
    }
    (commands,) = blocks(page, "sh")
    done = subprocess.run(
        ["sh", "-e", "-c", commands], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^moons +400 +2 +2 ", done.stdout, re.MULTILINE)
    accuracy = re.search(r"^\| test +\| weighted +\| ([\d.]+)", done.stdout, re.MULTILINE)
    assert accuracy is not None
    assert float(accuracy[1]) > 0.85
    (run,) = (tmp_path / "outputs" / "moons").iterdir()
    assert (run / "regions.png").stat().st_size > 10_000
