"""Monitoring of running jobs: results are stored in the cache, and the progress is shown on stderr."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType

from tqdm import tqdm

from proxlearn.jobs.job import Job
from proxlearn.jobs.records import DONE, JobRecord, JobRecords
from proxlearn.jobs.result_cache import ResultCache
from proxlearn.printable_text import printable
from proxlearn.run.observed_status import take_snapshot
from proxlearn.terminal.streams import try_write

POLL_SECONDS = 0.5
LINE_SECONDS = 30.0


class JobsWatcher:
    """A context manager that reads the records of jobs and shows their progress.

    On a terminal, the progress is a bar. Otherwise, a line is printed for each job that ends, and a line about the
    running jobs if no line has been printed for LINE_SECONDS.

    The launcher keeps the main thread busy, so the records are read in another thread. An error in that thread (for
    example a full disk) stops the jobs and is raised at the end.
    """

    def __init__(
        self, records: JobRecords, jobs: Sequence[Job], session: str, caption: str, cache: ResultCache | None
    ) -> None:
        self._records, self._session, self._cache = records, session, cache
        self._jobs = {job.name: job for job in jobs}
        self._left, self._total, self._unfinished = list(self._jobs), len(jobs), 0
        self._error: Exception | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._last_line = time.monotonic()
        terminal = sys.stderr.isatty()
        self._bar = tqdm(total=self._total, unit="job", dynamic_ncols=True, desc=caption) if terminal else None

    def __enter__(self) -> JobsWatcher:
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end.set()
        self._thread.join()
        self._poll()
        if self._bar is not None:
            self._bar.close()
        if self._error is not None and error is None:
            raise self._error

    def _watch(self) -> None:
        while not self._end.wait(POLL_SECONDS):
            self._poll()

    def _poll(self) -> None:
        try:
            self._read_records()
        except Exception as error:
            self._error = self._error or error
            self._records.request_stop(self._session)

    def _read_records(self) -> None:
        running: list[str] = []
        for name in list(self._left):
            record = self._records.read(name)
            if record is None or record.session != self._session:
                continue
            if not record.has_ended:
                running.append(name)
                continue
            store_result(self._cache, self._jobs[name], record)
            self._left.remove(name)
            self._unfinished += record.state != DONE
            self._show_end(name, record)
        self._show_running(running)

    def _show_end(self, name: str, record: JobRecord) -> None:
        count = f"[{self._total - len(self._left)}/{self._total}]"
        reason = f": {record.error}" if record.error else ""
        line = f"{count} {record.state}  {self._jobs[name].title}{reason}"
        if self._bar is None:
            self._write_line(line)
            return
        self._bar.update(1)
        if record.state != DONE:
            tqdm.write(printable(line), file=sys.stderr)

    def _show_running(self, running: list[str]) -> None:
        """Show the running jobs in the progress bar or, without a bar, on a line if no line was written recently."""
        if self._bar is None and time.monotonic() - self._last_line < LINE_SECONDS:
            return
        parts = [f"{self._jobs[name].title} {self._progress(name)}".strip() for name in running[:3]]
        more = f" and {len(running) - 3} more" if len(running) > 3 else ""
        unfinished = f", {self._unfinished} not finished" if self._unfinished else ""
        text = ("; ".join(parts) + more if parts else "starting") + unfinished
        if self._bar is not None:
            self._bar.set_postfix_str(printable(text))
        elif self._left:
            self._write_line(f"[{self._total - len(self._left)}/{self._total}] {text}")

    def _progress(self, name: str) -> str:
        folder = self._jobs[name].run_folder
        run = None if folder is None else take_snapshot(folder)
        return f"{run.step / run.steps:.0%}" if run is not None and run.steps else ""

    def _write_line(self, text: str) -> None:
        self._last_line = time.monotonic()
        try_write(printable(text) + "\n", sys.stderr)


def store_result(cache: ResultCache | None, job: Job, record: JobRecord | None) -> bool:
    """Store the result of a finished job in the cache; return whether its record contained a result."""
    if cache is None or job.identity is None or record is None or record.state != DONE:
        return False
    if record.result is None or record.key != job.key:
        return False
    cache.put(job.identity, record.result)
    return True
