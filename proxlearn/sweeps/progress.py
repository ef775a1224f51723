"""A sweep while it runs, whoever runs its jobs: a bar on a terminal, elsewhere a line for each job that ends."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

from tqdm import tqdm

from proxlearn.run.run_snapshot import take_snapshot
from proxlearn.run.sweep_folder import DONE, JobRecord, SweepFolder
from proxlearn.terminal.streams import try_write
from proxlearn.text import printable

POLL_SECONDS = 0.5
LINE_SECONDS = 30.0


class SweepProgress:
    """Watches the records that the jobs leave in the sweep's folder."""

    def __init__(self, sweep: SweepFolder, numbers: list[int], session: str) -> None:
        self._sweep, self._session = sweep, session
        self._jobs = {job.number: job for job in sweep.read_jobs()}
        self._left, self._total, self._bad = list(numbers), len(numbers), 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._shown = time.monotonic()
        terminal = sys.stderr.isatty()
        self._bar = tqdm(total=self._total, unit="job", dynamic_ncols=True, desc="sweep") if terminal else None

    def __enter__(self) -> SweepProgress:
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end.set()
        self._thread.join()
        self._look()
        if self._bar is not None:
            self._bar.close()

    def _watch(self) -> None:
        while not self._end.wait(POLL_SECONDS):
            self._look()

    def _look(self) -> None:
        running: list[int] = []
        for number in list(self._left):
            record = self._sweep.read_record(number)
            if record is None or record.session != self._session:
                continue
            if record.state in ("running", "waiting"):
                running.append(number)
                continue
            self._left.remove(number)
            self._bad += record.state != DONE
            self._tell(number, record)
        self._show(running)

    def _tell(self, number: int, record: JobRecord) -> None:
        """A job has ended."""
        count = f"[{self._total - len(self._left)}/{self._total}]"
        why = f": {record.error}" if record.error else ""
        line = f"{count} {record.state}  job {number}  {self._jobs[number].title}{why}"
        if self._bar is None:
            self._line(line)
            return
        self._bar.update(1)
        if record.state != DONE:
            tqdm.write(printable(line), file=sys.stderr)

    def _show(self, running: list[int]) -> None:
        """What is going on between two ends."""
        if self._bar is None and time.monotonic() - self._shown < LINE_SECONDS:
            return
        parts = [f"{self._jobs[number].title} {self._share(number)}" for number in running[:3]]
        more = f" and {len(running) - 3} more" if len(running) > 3 else ""
        bad = f", {self._bad} not finished" if self._bad else ""
        text = ("; ".join(parts) + more if parts else "starting") + bad
        if self._bar is not None:
            self._bar.set_postfix_str(printable(text))
        elif self._left:
            self._line(f"[{self._total - len(self._left)}/{self._total}] {text}")

    def _share(self, number: int) -> str:
        folder = self._sweep.run_folder(self._jobs[number])
        run = None if folder is None else take_snapshot(folder)
        return f"{run.step / run.steps:.0%}" if run is not None and run.steps else ""

    def _line(self, text: str) -> None:
        self._shown = time.monotonic()
        try_write(printable(text) + "\n", sys.stderr)
