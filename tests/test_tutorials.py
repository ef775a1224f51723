"""Every command and every Python block of the tutorials and how-to pages runs and prints what its page shows.

The blocks of a page run in order, in one folder and one Python namespace. A block ``text`` that follows a ``bash`` or
``python`` block is the output of that block; a line ``...`` in it stands for any lines. Words after the language tell
how a block is used: ``file: PATH`` is the content of a file, and ``not run: REASON`` is not executed.

``python -m tests.test_tutorials PAGE ...`` runs pages in a temporary folder and writes the printed output into them.
"""

from __future__ import annotations

import contextlib
import doctest
import io
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

import pytest
from PIL import Image

from proxlearn import cli

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path for folder in ("tutorials", "howto") for path in (DOCS / folder).glob("*.md"))
FENCE = re.compile(r"^```(?P<language>\w+)(?: (?P<use>[^\n]*))?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
SHORTER = {
    "tutorials/table2.md": {
        "steps=2000": "N=20 steps=3",
        "-m experiment=table2": "experiment=table2 beta=0.05 N=20 steps=3",
        "recipe=tuned N=200": "N=20 steps=3",
    },
    "howto/large_clouds.md": {"N=9000": "N=300"},
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
        shown = following is not None and following["language"] == "text"
        is_output = shown and not text[fence.end() : following.start()].strip()
        output, span = (following["code"], following.span("code")) if is_output else (None, (0, 0))
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
                for line in code.replace("\\\n", " ").splitlines():
                    self._run_line(line)
        return printed.getvalue(), code != block.code

    def _run_line(self, line: str) -> None:
        words = shlex.split(line, comments=True)
        if not words:
            return
        quoted = re.sub(r"\"[^\"]*\"|'[^']*'|#.*", "", line)
        if self.in_process and words[0] == "proxlearn" and not SHELL.search(quoted):
            assert cli.main(words[1:]) == 0, line
            return
        done = subprocess.run(["sh", "-e", "-c", line], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
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
    command = folder / "bin" / "proxlearn"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m proxlearn "$@"\n', encoding="utf-8")
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


@pytest.mark.parametrize("path", sorted(DOCS.glob("*/*.md")), ids=page_name)
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
