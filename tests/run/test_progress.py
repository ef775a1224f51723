"""The estimated time left is based on steps, not on the compilation in the first step."""

from __future__ import annotations

import re
import sys
import time

import pytest
from tqdm import tqdm

from proxlearn.core.compile_time import COMPILE_TIME
from proxlearn.run import progress
from proxlearn.run.progress import Progress, StepRate

STEPS = 100_000


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a first step that waits for a compilation."""
    monkeypatch.setattr(COMPILE_TIME, "seconds", COMPILE_TIME.seconds)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)


def first_step() -> None:
    time.sleep(0.3)
    COMPILE_TIME.seconds += 0.3


@pytest.mark.usefixtures("compiling")
def test_steps_that_wait_for_a_compilation_do_not_count() -> None:
    pace = StepRate(0)
    first_step()
    pace.advance(1)
    assert pace.rate == 0
    for step in range(2, 7):
        time.sleep(0.002)
        pace.advance(step)
    assert 5 / 0.15 < pace.rate <= 500


@pytest.mark.usefixtures("compiling")
def test_lines_of_a_log_give_no_time_left_before_they_know_it(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(STEPS, 0) as shown:
        first_step()
        shown.advance(1)
        for step in range(2, 7):
            time.sleep(0.002)
            shown.advance(step)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"step 1/{STEPS}"
    assert "left" in lines[-1]
    rate = re.search(r"([\d.]+) rec/s", lines[-1])
    assert rate is not None
    assert float(rate[1]) > 5 / 0.15


@pytest.mark.usefixtures("compiling")
def test_a_bar_s_clock_stands_still_while_passes_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """This simulates a terminal."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Progress(STEPS, 0) as shown:
        assert isinstance(shown.bar, tqdm)
        first_step()
        shown.advance(1)
        assert shown.bar.format_dict["elapsed"] < 0.2
