"""Closed, full or unread standard streams, or a narrow encoding: a run continues, and exit codes are correct."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxlearn.errors import InputError
from proxlearn.predict.prediction_table import exact_output
from proxlearn.terminal.streams import try_write

COMMAND = f'"{sys.executable}" -m proxlearn'
TRAIN = f"{COMMAND} train dataset=sine N=8 dataset.points=10 steps=5 threads=1 compile=off"


def shell(line: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash; its exit code is that of the command before a pipe."""
    command = ["bash", "-c", f"set -o pipefail; {line}"]
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())} | variables
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, errors="replace"
    )


@pytest.mark.parametrize(
    "streams", ["2>&1 | true", "<&- >&- 2>&-", ">/dev/full 2>/dev/full"], ids=["unread", "closed", "full"]
)
def test_a_run_goes_on_to_its_end_without_its_output(streams: str, tmp_path: Path) -> None:
    done = shell(f"{TRAIN} hydra.run.dir=run {streams}", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (status["state"], status["step"]) == ("finished", 5)
    # A closed stream's number is not given to a file of the run, which words would then go into.
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or b"proxlearn: " not in path.read_bytes(), path
    assert (tmp_path / "run" / "risk.png").stat().st_size > 1000


def test_a_refused_run_has_its_exit_code_whoever_reads(tmp_path: Path) -> None:
    assert shell(f"{COMMAND} train betta=1 2>&1 | true", tmp_path).returncode == 2


@pytest.mark.parametrize("words", ["data", "--help", "status --help", "train --cfg job"])
def test_a_result_that_cannot_be_printed_is_an_error_in_one_line(words: str, tmp_path: Path) -> None:
    done = shell(f"{COMMAND} {words} >/dev/full", tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("proxlearn: cannot write to standard output: No space left on device; ")


def test_closed_standard_output_is_an_error_where_it_is_the_result(tmp_path: Path) -> None:
    done = shell(f"{COMMAND} data >&-", tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert shell(f"{COMMAND} data >&- 2>&-", tmp_path).returncode == 1


def test_a_reader_that_has_enough_is_no_failure(tmp_path: Path) -> None:
    done = shell(f"{COMMAND} data | head -1", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("dataset")
    assert shell(f"{COMMAND} data | true", tmp_path).returncode == 0


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_letters_that_a_terminal_lacks_are_escaped(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "β").mkdir()
    done = shell(f"{COMMAND} status β; {COMMAND} status γ", tmp_path, PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert done.stdout == "there are no runs below \\u03b2\n"
    assert done.stderr.startswith("proxlearn: the folder \\u03b3 does not exist; ")
    assert done.stderr.count("\n") == 1


def test_a_table_on_standard_output_is_never_altered(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="backslashreplace")
    monkeypatch.setattr(sys, "stdout", narrow)
    with pytest.raises(InputError, match=r"lacks the character '\\xe9'; write to -o FILE"), exact_output() as file:
        file.write("caf\xe9")


def test_words_never_raise() -> None:
    try_write("anything", None)
    closed = io.StringIO()
    closed.close()
    try_write("anything", closed)
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    try_write("\u03b2", narrow)
    assert narrow.buffer.getvalue() == b"\\u03b2"  # type: ignore[attr-defined]
    with open("/dev/full", "w") as full:
        try_write("anything", full)
        # Closing it must not try again what could not be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())
