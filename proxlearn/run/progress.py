"""The display of a run's progress, and the measurement of the number of steps per second."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from tqdm import tqdm

from proxlearn.core.compile_time import COMPILE_TIME
from proxlearn.run.loop_state import Observer, RunState
from proxlearn.run.metrics import Row
from proxlearn.terminal.streams import try_write


class StepRate:
    """A counter of steps and their duration, excluding steps during which code is compiled or loaded.

    Such a step takes as long as thousands of others and would distort the estimate of the time left.
    """

    def __init__(self, step: int) -> None:
        self._step, self._time, self._overhead = step, time.monotonic(), COMPILE_TIME.overhead
        self._steps, self._seconds = 0, 0.0

    def advance(self, step: int) -> None:
        now = time.monotonic()
        if COMPILE_TIME.overhead == self._overhead:
            self._steps += step - self._step
            self._seconds += now - self._time
        self._step, self._time, self._overhead = step, now, COMPILE_TIME.overhead

    @property
    def rate(self) -> float:
        """Recursions per second, or 0 before the first counted step."""
        return self._steps / self._seconds if self._seconds > 0 else 0.0


LINE_SECONDS = 10.0


class Progress(Observer):
    """An observer that shows the step, the risk, the accuracy, the recursions per second and the time left."""

    def __init__(self, steps: int, start: int, visible: bool = True) -> None:
        self.visible = visible
        self.steps, self.step, self.step_rate = steps, start, StepRate(start)
        self.line_time = time.monotonic()
        self.overhead = COMPILE_TIME.overhead
        self.newest_metrics = ""
        terminal = visible and sys.stderr.isatty()
        self.bar = tqdm(total=steps, initial=start, unit="rec", dynamic_ncols=True) if terminal else None

    def after_step(self, state: RunState) -> None:
        if state.row is not None:
            self.show_metrics(state.row)
        self.advance(state.step)

    def advance(self, step: int) -> None:
        self.step = step
        self.step_rate.advance(step)
        if self.bar is not None:
            if COMPILE_TIME.overhead != self.overhead:
                # The clock of the progress bar is restarted after a compilation.
                self.overhead = COMPILE_TIME.overhead
                self.bar.unpause()
            self.bar.update(step - self.bar.n)
        elif self.visible and time.monotonic() - self.line_time > LINE_SECONDS:
            self._print_line()

    def show_metrics(self, row: Row) -> None:
        parts = [f"risk {row['test_risk_weighted']:.4g}"]
        if "test_accuracy_weighted" in row:
            parts.append(f"accuracy {row['test_accuracy_weighted']:.4f}")
        self.newest_metrics = ", ".join(parts)
        if self.bar is not None:
            self.bar.set_postfix_str(self.newest_metrics)

    def _print_line(self) -> None:
        self.line_time = time.monotonic()
        rate = self.step_rate.rate
        pace = f"{rate:.1f} rec/s, {tqdm.format_interval((self.steps - self.step) / rate)} left" if rate else ""
        line = f"step {self.step}/{self.steps}  {self.newest_metrics}  {pace}".rstrip()
        try_write(line + "\n", sys.stderr)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.close()
