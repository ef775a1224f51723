"""README.md and the pages of docs/start: every command and code block runs, and prints what is shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from result_pages import readme_table

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PAGES = ("README.md", "docs/start/install.md", "docs/start/quickstart.md")
BLOCK = re.compile(
    r"^```(bash|python)( not run: .+)?\n(.*?)^```$(?:\s*^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)
OUTSIDE = {"https://openreview.net/forum?id=vyRBsqj5iG", "https://github.com/zalexis12/Proximal-Mean-Field-Learning"}
PROSE = (ROOT / "docs" / "tutorials").exists()
"""Whether the tutorials, how-to guides and theory pages are there; they are another part of the site."""


def recipe(target: str) -> str:
    """Return the commands of a target of the Makefile, with a proxlearn of the path and few, small steps."""
    (lines,) = re.findall(rf"^{target}: .*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    return (
        lines.replace("\t@", "").replace("\t", "").replace("$(BIN)/", "").replace("beta=0.05", "beta=0.05 N=20 steps=5")
    )


def matches(shown: str, printed: str) -> bool:
    """Return whether an output is the shown one; ``...`` stands for any lines, and seconds and numbers may vary.

    A number agrees if it differs by at most 0.02: the last digits depend on the processor.
    """
    number = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
    pattern = r".*".join(
        re.sub(number, "NUMBER", re.escape(part).replace(r"\-", "-").replace(r"\.", ".")).replace(
            "NUMBER", f"({number})"
        )
        for part in shown.split("...\n")
    )
    # Columns of a table are as wide as their longest number.
    found = re.search(re.sub(r"(?:\\ )+", r" +", pattern), printed, re.DOTALL)
    if found is None:
        return False
    pairs = zip(re.findall(number, shown), found.groups(), strict=True)
    seconds = re.findall(rf"after ({number}) s", shown)
    return all(abs(float(ours) - float(theirs)) <= 0.02 or theirs in seconds for theirs, ours in pairs)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_runs_and_prints_what_is_shown(page: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name, line in (("proxlearn", f'exec "{sys.executable}" -m proxlearn "$@"'), ("make", f"{recipe('train')}")):
        command = tmp_path / "bin" / name
        command.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        command.chmod(0o755)
    paths = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    blocks = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    assert blocks
    before = ""
    for language, reason, code, shown in blocks:
        if reason:
            continue
        # `make test` runs this test.
        code = re.sub(r"^make test .*\n", "", code, flags=re.MULTILINE)
        before = before + code if language == "python" else before
        words = [sys.executable, "-c", before] if language == "python" else ["sh", "-e", "-c", code]
        done = subprocess.run(words, cwd=tmp_path, env=os.environ | paths, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert matches(shown, done.stdout), done.stdout


def test_make_train_says_what_will_be_seen_and_names_the_fast_alternative() -> None:
    said = recipe("train").partition("\nproxlearn train")[0]
    assert "risk rises" in said
    assert "proxlearn train dataset=wdbc recipe=tuned" in said
    assert recipe("train").endswith("\nproxlearn train dataset=wdbc beta=0.05 N=20 steps=5\n")


def test_the_readme_is_short_and_has_two_outside_addresses() -> None:
    assert README.count("\n") <= 150
    assert set(re.findall(r"https?://[^\s)>]+", README)) == OUTSIDE


def test_the_table_of_results_is_the_generated_one() -> None:
    assert readme_table() in README, "run `python docs/result_pages.py`, which writes the table again"


def test_every_link_of_the_readme_names_a_file() -> None:
    targets = [target for target in re.findall(r"\]\(([^)\s]+)\)", README) if target not in OUTSIDE]
    assert len(targets) > 20
    prose = ("docs/tutorials", "docs/howto", "docs/theory")
    expected = [target for target in targets if PROSE or not target.startswith(prose)]
    assert [target for target in expected if not (ROOT / target).exists()] == []
