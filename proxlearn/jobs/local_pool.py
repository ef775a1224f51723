"""Execution of jobs on this machine without Hydra: several threads, each of which supervises one job at a time."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass

from proxlearn.jobs.job import JobBatch


@dataclass(frozen=True)
class LocalPool:
    """A pool of at most ``parallel`` concurrent jobs with ``threads`` threads each; None leaves the number to torch."""

    parallel: int = 1
    threads: int | None = None

    def open(self) -> None:
        """Do nothing, because no preparation is needed."""

    def batch_size(self, jobs: int) -> int:
        return jobs

    def threads_per_job(self, jobs: int) -> int | None:
        return self.threads

    def launch(self, batch: JobBatch) -> None:
        """Run all jobs of the batch; if a supervisor fails, raise the first error after all supervisors have ended."""
        places: queue.SimpleQueue[int] = queue.SimpleQueue()
        for place in range(len(batch.jobs)):
            places.put(place)
        errors: list[Exception] = []

        def work() -> None:
            while not errors:
                try:
                    batch.supervise(places.get_nowait())
                except queue.Empty:
                    return
                except Exception as error:
                    errors.append(error)

        # The threads are daemons, so that a second Ctrl-C ends the command without waiting for them.
        workers = [threading.Thread(target=work, daemon=True) for _ in range(min(self.parallel, len(batch.jobs)))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Do nothing, because no shutdown is needed."""
