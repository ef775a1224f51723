"""Every command and every Python block of the tutorials and how-to pages runs and prints what its page shows.

The blocks of a page run in order, in one folder and one Python namespace. A block ``text`` that follows a ``bash`` or
``python`` block is the output of that block; a line ``...`` in it stands for any lines. Words after the language tell
how a block is used: ``file: PATH`` is the content of a file, ``exit code 2`` is a command that fails with this code and
whose output is its message, and ``not run: REASON`` is not executed.

``python -m tests.test_tutorials PAGE ...`` runs pages in a temporary folder and writes the printed output into them.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from proxlearn import cli
from proxlearn.core.fused.fixed_point import SHIFT_LIMIT
from proxlearn.core.fused.fused_step import MOST_DENSE
from proxlearn.core.fused.screening import TOLERANCE
from proxlearn.core.hyper import BLIND_KAPPA, energy_share
from proxlearn.core.kernels.choice import WHOLE_N
from proxlearn.core.losses import cross_entropy, logistic, quadratic
from proxlearn.core.metrics import CALIBRATION_BINS
from proxlearn.core.schedules import LOWEST
from proxlearn.data import wdbc
from tests.conftest import config_of

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path for folder in ("tutorials", "howto") for path in (DOCS / folder).glob("*.md"))
PROJECT = [DOCS / "project" / f"{name}.md" for name in ("alternatives", "architecture", "dependencies", "faq")]
"""The pages about the project that are not generated when the site is built."""
FENCE = re.compile(r"^```(?P<language>\w+)(?: (?P<use>[^\n]*))?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
SHORTER = {
    "tutorials/table2.md": {
        "steps=2000": "N=20 steps=3",
        "experiment=table2 beta=0.05\n": "experiment=table2 beta=0.05 N=20 steps=3\n",
        "paper runs table2": "paper table2",
        "recipe=tuned N=200": "N=20 steps=3",
    },
    "howto/large_clouds.md": {"N=9000": "N=300", "N=100000": "N=100 steps=2"},
    "howto/search.md": {"--trials 3": "--trials 1"},
}
"""Parts of commands that take minutes, and what replaces them here; the output of such a block is not compared."""
IN_A_COPY = ("tutorials/new_dataset.md",)
"""Pages that change the package; they run in a copy of the project."""
ARCHIVE = {"tutorials/table2.md": "outputs/paper/table2"}
"""Folders of the repository that the commands of a page read."""
SHELL = re.compile(r"[|<>;&$`*]|^\w+=")
TIME = re.compile(r"\d+(\.\d+)? (s|seconds)\b")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and the output that the page shows for it."""

    language: str
    use: str
    code: str
    output: str | None
    output_span: tuple[int, int]


def read_blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a page that have a meaning for the test, in order."""
    fences = list(FENCE.finditer(text))
    for fence, following in zip(fences, [*fences[1:], None], strict=True):
        if fence["language"] == "text":
            continue
        output, span = None, (0, 0)
        is_next = following is not None and not text[fence.end() : following.start()].strip()
        if following is not None and is_next and following["language"] == "text":
            output, span = following["code"], following.span("code")
        yield Block(fence["language"], fence["use"] or "", fence["code"], output, span)


@dataclass
class PageRunner:
    """Runs the blocks of one page in the current folder."""

    page: str
    names: dict[str, Any] = field(default_factory=dict)
    in_process: bool = True

    def run(self, block: Block) -> tuple[str, bool]:
        """Run a block; return what it prints on stdout, and whether it was shortened."""
        code = block.code
        for long, short in SHORTER.get(self.page, {}).items():
            code = code.replace(long, short)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            if block.use.startswith("file: "):
                Path(block.use.removeprefix("file: ")).write_text(code, encoding="utf-8")
            elif block.language == "diff":
                words = ["git", "apply", "--unsafe-paths", "-"]
                subprocess.run(words, input=code, text=True, check=True)
            elif block.language == "python":
                exec(compile(code, self.page, "exec"), self.names)
            elif block.language == "bash":
                expected = int(block.use.removeprefix("exit code ") or 0)
                for line in code.replace("\\\n", " ").splitlines():
                    self._run_line(line, expected)
        return printed.getvalue(), code != block.code

    def _run_line(self, line: str, expected: int) -> None:
        words = shlex.split(line, comments=True)
        if not words:
            return
        quoted = re.sub(r"\"[^\"]*\"|'[^']*'|#.*", "", line)
        if self.in_process and words[0] == "proxlearn" and not SHELL.search(quoted):
            with contextlib.redirect_stderr(sys.stdout) if expected else contextlib.nullcontext():
                assert cli.main(words[1:]) == expected, line
            return
        done = subprocess.run(["sh", "-e", "-c", line], capture_output=True, text=True, check=False)
        assert done.returncode == expected, f"{line}\n{done.stdout}{done.stderr}"
        print(done.stdout, end="")


def normalise(output: str) -> str:
    """Return an output without the numbers that depend on time: seconds, also those in a column of that name."""
    lines, column = [], None
    for line in output.splitlines():
        cells = line.split("|")
        names = [cell.strip() for cell in cells]
        if "seconds" in names:
            column = names.index("seconds")
        elif column is not None and len(cells) > column and names[column]:
            cells[column] = "SECONDS"
        lines.append("|".join(re.sub(r"-{3,}", "---", cell) for cell in cells))
    return TIME.sub("TIME", "\n".join(lines))


def prepare_folder(page: str, folder: Path) -> dict[str, str]:
    """Put what the commands of a page need into a folder; return the environment of the commands."""
    (folder / "bin").mkdir()
    for name, module in (("proxlearn", "proxlearn"), ("torchrun", "torch.distributed.run")):
        command = folder / "bin" / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n', encoding="utf-8")
        command.chmod(0o755)
    if page in ARCHIVE:
        shutil.copytree(ROOT / ARCHIVE[page], folder / ARCHIVE[page])
    environment = {"PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}", "MPLBACKEND": "Agg"}
    if page not in IN_A_COPY:
        return environment | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    for name in ("proxlearn", "configs"):
        ignored = shutil.ignore_patterns("__pycache__", "configs") if name == "proxlearn" else None
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    # An installed wheel has the configs in the package.
    (folder / "proxlearn" / "configs").symlink_to(folder / "configs")
    return environment | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}


def page_name(path: Path) -> str:
    return path.relative_to(DOCS).as_posix()


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_every_block_of_a_page_runs_and_prints_what_is_shown(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = page_name(path)
    blocks = [block for block in read_blocks(path.read_text(encoding="utf-8")) if block.code]
    for name, value in prepare_folder(page, tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    runner = PageRunner(page, in_process=page not in IN_A_COPY)
    checker, flags = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for block in blocks:
        if block.use.startswith("not run"):
            assert len(block.use.removeprefix("not run:").strip()) > 5, f"{page}: no reason for {block.code!r}"
            continue
        printed, shortened = runner.run(block)
        if block.output is not None and not shortened:
            want, got = normalise(block.output), normalise(printed)
            assert checker.check_output(want, got, flags), f"{page}:\n{block.code}\nprinted\n{printed}"


@pytest.mark.parametrize("path", [*PAGES, *sorted((DOCS / "theory").glob("*.md")), *PROJECT], ids=page_name)
def test_a_page_begins_with_what_the_reader_gets_and_describes_its_pictures(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    title, blank, first = text.split("\n")[:3]
    assert title.startswith("# ")
    assert not blank
    assert first[:1].isalpha() or first[:1] in "`["
    for alternative, target in re.findall(r"!\[(.*?)\]\(([^)\s]+)\)", text):
        assert len(alternative) > 20, f"{path.name}: {target} has no description"
        assert (path.parent / target).is_file()
    assert "```{image}" not in text
    for options in re.findall(r"^:::\{figure\} \S+\n((?::.*\n)*)", text, re.MULTILINE):
        assert ":alt: " in options


def test_every_picture_is_used_small_and_readable() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    pictures = sorted((DOCS / "pictures").glob("*"))
    assert len(pictures) <= 10
    for path in pictures:
        assert path.name in text
        assert path.stat().st_size < 100_000
        if path.suffix == ".png":
            with Image.open(path) as picture:
                assert min(picture.size) >= 300


NAMES = {0.1: "one tenth", 0.01: "a hundredth"}
MAJORITY = 131 / 170
"""Share of the more frequent class of WDBC's test part."""


def quoted_numbers() -> dict[str, list[str]]:
    """Return sentences of pages with the numbers that the code, the configs and the stored runs have."""
    table2, info = config_of("experiment=table2", "beta=0.05"), wdbc.INFO
    assert info.features is not None
    density = 1.0
    for name, (low, high) in table2.dataset.initial.items():
        density /= (high - low) ** (info.features if name == "w" else 1)
    mantissa, power = f"{density:.1e}".split("e-0")
    metrics = pd.read_csv(ROOT / "outputs" / "paper" / "table2" / "metrics.csv")
    is_majority = metrics["test_accuracy_weighted"] <= MAJORITY + 0.02
    plateau = int(metrics[is_majority].groupby("run")["step"].max().min()) // 10_000 * 10_000
    bits = round(math.log2(TOLERANCE))
    single, double = (SHIFT_LIMIT[np.dtype(kind)] for kind in (np.float32, np.float64))
    return {
        "howto/large_clouds.md": [f"kernel of up to {MOST_DENSE} particles", f"of more than {WHOLE_N} particles"],
        "project/faq.md": [f"`recipe=tuned` uses {config_of('recipe=tuned').N}", f"Up to {MOST_DENSE} particles"],
        "theory/glossary.md": [f"over {CALIBRATION_BINS} bins", f"relative $2^{{{bits}}}$"],
        "theory/kernels.md": [
            f"$N \\le {MOST_DENSE}$",
            f"$R = {single:.0f}$ (float32) or $R = {double:.0f}$ (float64)",
            f"$\\eta = 2^{{{bits}}}$",
        ],
        "theory/readings.md": [
            f"is about ${mantissa} \\times 10^{{-{power}}}$",
            f"total mass of about ${mantissa} \\times 10^{{-{int(power) - round(math.log10(table2.N))}}}$",
        ],
        "theory/recursion.md": [f"if the share is below {NAMES[round(energy_share(BLIND_KAPPA), 9)]}"],
        "howto/hyperparameters.md": [
            f"{quadratic.smoothness / logistic.smoothness:.0f} and "
            f"{quadratic.smoothness / cross_entropy.smoothness:.0f} times as large",
            f"the step size to {NAMES[LOWEST]}",
        ],
        "tutorials/table2.md": [
            f"{info.rows} rows, {info.features} features",
            f"A cloud of {table2.N} neurons is trained for {table2.steps} recursions",
            f"more than {plateau} recursions",
        ],
    }


def test_numbers_in_the_text_are_those_of_the_code_and_of_the_stored_runs() -> None:
    for page, sentences in quoted_numbers().items():
        text = " ".join((DOCS / page).read_text(encoding="utf-8").split())
        for sentence in sentences:
            assert sentence in text, f"{page} does not say {sentence!r}"


def test_the_page_on_the_architecture_names_every_package() -> None:
    text = (DOCS / "project" / "architecture.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in (ROOT / "proxlearn").glob("*/__init__.py")} - {"configs"}
    assert set(re.findall(r"`proxlearn\.(\w+)`", text)) == packages


def write_outputs(path: Path) -> None:
    """Run a page in a temporary folder and replace the outputs in it; an output with ``...`` stays as it is."""
    text, page = path.read_text(encoding="utf-8"), page_name(path)
    result, position = "", 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.environ.update(prepare_folder(page, Path(folder)))
        runner = PageRunner(page, in_process=page not in IN_A_COPY)
        for block in read_blocks(text):
            if block.use.startswith("not run"):
                continue
            printed, shortened = runner.run(block)
            if block.output is not None and "..." not in block.output and not shortened:
                start, end = block.output_span
                result, position = result + text[position:start] + printed.strip("\n") + "\n", end
    path.write_text(result + text[position:], encoding="utf-8")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        write_outputs(Path(argument).resolve())
