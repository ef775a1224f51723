"""No control character from a file or from a file name reaches the terminal."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from proxlearn import cli
from proxlearn.errors import InputError
from proxlearn.printable_text import printable, printable_lines
from proxlearn.run.session import open_run_log
from proxlearn.terminal.notice import notice

HOSTILE = "a\x1b[31mb\x07\x9b\u202e\u2028\ud800\x00\x7f\r"


def assert_harmless(text: str) -> None:
    for line in text.split("\n"):
        assert line.isprintable(), ascii(line)


def test_every_character_is_printed_or_escaped() -> None:
    for code in range(0x3000):
        printed = printable(chr(code))
        assert printed.replace("\xa0", " ").isprintable() or chr(code).isspace(), hex(code)
        assert "\x1b" not in printed
        assert printable_lines(chr(code)) == (
            "\n" if code == 10 else printed if code not in (9, 13) else ascii(chr(code))[1:-1]
        )
    assert printable("naïve 日本 €\u3000→") == "naïve 日本 €\u3000→"
    assert printable("a\nb") == "a b"


def test_errors_and_notices_are_one_harmless_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert_harmless(str(InputError(f"no column `{HOSTILE}\n`", HOSTILE)))
    notice(f"column `{HOSTILE}\n`")
    assert cli.main([HOSTILE]) == 2
    message = capsys.readouterr().err
    assert_harmless(message)
    assert message.count("\n") == 2


def test_status_shows_names_and_remarks_without_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "a\x1b]0;title\x07\n\x9b31m"
    run.mkdir()
    values = {"state": "failed", "step": 1, "steps": 2, "seconds": 1.0, "started": HOSTILE, "pid": 1}
    (run / "status.json").write_text(json.dumps(values | {"host": HOSTILE, "error": f"{HOSTILE}\n{HOSTILE}"}))
    dead = tmp_path / "dead"
    dead.mkdir()
    (dead / "status.json").write_text(json.dumps(values | {"state": "running", "host": HOSTILE}))
    assert cli.main(["status", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert_harmless(printed)
    assert len(printed.splitlines()) == 3


def test_warnings_of_a_run_are_harmless_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", sys.stdout)
    journal = open_run_log(tmp_path / "train.log")
    journal.warning("took over the folder from %s\n", HOSTILE.replace("\ud800", ""))
    assert_harmless(capsys.readouterr().out)
    for handler in journal.handlers:
        handler.close()
