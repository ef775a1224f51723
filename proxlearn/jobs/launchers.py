"""Launchers of jobs: Hydra launchers (joblib, SLURM, Ray), and a pool of processes on this machine."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.core.config_loader import ConfigLoader
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals
from omegaconf import DictConfig

from proxlearn.config.compose import compose_with_loader, parse
from proxlearn.config.hydra_internals import launcher_context
from proxlearn.jobs import launcher_setup
from proxlearn.jobs.job import JobBatch


class HydraLauncher:
    """A job launcher that uses the Hydra launcher of a composed config; it writes its files into ``folder``."""

    def __init__(self, master: DictConfig, loader: ConfigLoader, folder: Path) -> None:
        self._master, self._loader, self._folder = master, loader, folder

    def open(self) -> None:
        launcher_setup.setup_launcher(self._master, self._folder)

    def batch_size(self, jobs: int) -> int:
        return launcher_setup.batch_size(self._master, jobs)

    def threads_per_job(self, jobs: int) -> int | None:
        return launcher_setup.threads_per_job(self._master, jobs)

    def launch(self, batch: JobBatch) -> None:
        """Run all jobs of the batch; raise an error if the launcher cannot run them."""
        setup_globals()
        logging.getLogger("hydra_plugins").setLevel(logging.ERROR)
        context = launcher_context(self._loader)
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=context, task_function=batch, config=self._master
        )
        launcher_setup.end_workers_with_command(self._master, launcher)
        overrides = [folder_overrides(job.run_folder or batch.folder) for job in batch.jobs]
        for ended in launcher.launch(overrides, initial_job_idx=0):
            # A failed job is only recorded. An error here means that the launcher could not run the job.
            _ = ended.return_value

    def close(self) -> None:
        launcher_setup.shutdown_launcher(self._master)


def named_launcher(name: str, settings: Sequence[str], folder: Path) -> HydraLauncher:
    """Return the launcher ``hydra/launcher=NAME`` with ``settings`` such as hydra.launcher.partition=debug."""
    master, loader = compose_with_loader(parse(["-m", f"hydra/launcher={name}", *settings]))
    return HydraLauncher(master, loader, folder)


def folder_overrides(folder: Path) -> list[str]:
    """Return the overrides that set ``folder`` as Hydra's output folder of a job."""
    return [
        f"hydra.sweep.dir={quote_for_hydra(str(folder.parent))}",
        f"hydra.sweep.subdir={quote_for_hydra(folder.name)}",
    ]


def quote_for_hydra(text: str) -> str:
    """Quote a string so that Hydra's grammar parses it unchanged."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@dataclass(frozen=True)
class LocalPool:
    """A job launcher that runs at most ``parallel`` jobs at a time on this machine, each with ``threads`` threads.

    If ``threads`` is None, torch chooses the number of threads.
    """

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
