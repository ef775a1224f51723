"""Who runs the jobs of a sweep: how many at a time, with how many threads each, and what a launcher needs first."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from proxlearn.config.launcher_defaults import LAUNCHERS, launcher_name
from proxlearn.errors import InputError
from proxlearn.jobs.worker import end_with_parent


def available_cores() -> int:
    """Those that this process may use; where the system does not say which (macOS), all that there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def runs_here(master: DictConfig) -> bool:
    return launcher_name(master) in LAUNCHERS and LAUNCHERS[launcher_name(master)].here


def batch_size(master: DictConfig, jobs: int) -> int:
    """How many of ``jobs`` jobs are handed to the launcher at once: all, but where it would start them all at once."""
    name = launcher_name(master)
    asked = master.hydra.sweeper.get("max_batch_size") or (available_cores() if name == "submitit_local" else jobs)
    return max(1, min(int(asked), jobs))


def threads_per_job(master: DictConfig, jobs: int) -> int | None:
    """Cores / jobs, so that jobs side by side do not get in each other's way; None leaves it to torch."""
    name = launcher_name(master)
    settings: Any = OmegaConf.to_container(master.hydra.launcher, resolve=True)
    if name == "submitit_slurm":
        cpus = settings.get("cpus_per_task")
        return None if cpus is None else int(cpus)
    if name == "ray":
        return max(1, int(settings["ray"]["remote"].get("num_cpus", 1)))
    if name == "joblib":
        asked = int(settings.get("n_jobs") or 1)
        # joblib counts from the other end too: -1 is every core, -2 all but one.
        side_by_side = asked if asked > 0 else max(1, available_cores() + 1 + asked)
    elif name == "submitit_local":
        side_by_side = batch_size(master, jobs)
    else:
        return None
    return max(1, available_cores() // min(side_by_side, jobs))


def setup_launcher(master: DictConfig, sweep: Path) -> None:
    """What a launcher needs to be told for it to work as one expects."""
    name = launcher_name(master)
    if name.startswith("submitit"):
        master.hydra.launcher.submitit_folder = str(sweep / master.hydra.launcher.submitit_folder)
    if name == "submitit_slurm":
        install_sacct_shim(sweep / "bin")
    if name == "ray":
        # What Ray 2.60 starts its own nodes with; a cluster's nodes must have been started so too.
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def end_workers_with_command(master: DictConfig, launcher: Any) -> None:
    """Have joblib's workers watch this process: killed, it could not end them."""
    if launcher_name(master) != "joblib":
        return
    from joblib import Parallel

    # joblib before 1.5 passes nothing on to its workers.
    if "backend_kwargs" in inspect.signature(Parallel.__init__).parameters:
        launcher.joblib |= {"initializer": end_with_parent, "initargs": (os.getpid(),)}


def shutdown_launcher(master: DictConfig) -> None:
    """joblib keeps its workers for a next call; none comes, and each holds a server of half a gigabyte."""
    if launcher_name(master) == "joblib":
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor(reuse=True).shutdown(kill_workers=True)


def install_sacct_shim(folder: Path) -> None:
    """Without SLURM's accounting, `sacct` says nothing, and a job that died is waited for for ever: answer for it."""
    if shutil.which("sbatch") is None:
        raise InputError("this machine has no `sbatch`", "give the command on a machine that submits to SLURM")
    if shutil.which("sacct") is not None and subprocess.run(["sacct", "-n"], capture_output=True).returncode == 0:
        return
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "sacct"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m proxlearn.jobs.sacct_shim "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
