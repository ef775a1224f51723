"""The function that trains one job of a sweep, in the process of that job."""

from __future__ import annotations

from pathlib import Path

from proxlearn.jobs.job import JobStopped
from proxlearn.run.device import check_memory
from proxlearn.run.sweep_folder import SweepFolder
from proxlearn.train_and_draw import train_and_draw

PRELOAD = (
    "proxlearn.sweeps.job",
    "proxlearn.run.train",
    "proxlearn.views.run.run_views",
    "proxlearn.core.fused.fused_step",
)
"""Modules imported once, so that a job starts in a fraction of a second."""


def train_job(sweep: Path, number: int, folder: Path, command: str) -> None:
    """Train the run of job ``number`` in ``folder``, with the config that was checked before the sweep began."""
    config = SweepFolder(sweep).read_config(number)
    check_memory(config)
    outcome = train_and_draw(config, folder, command)
    if outcome.signal is not None:
        raise JobStopped(f"stopped at step {outcome.step}", outcome.signal)
