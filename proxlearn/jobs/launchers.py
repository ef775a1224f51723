"""Hydra launchers: the number of jobs at a time, the threads per job, and the preparation of a launcher."""

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
    """Return the number of cores that this process may use; all cores if the system does not report it (macOS)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def runs_here(master: DictConfig) -> bool:
    """Whether the launcher runs its jobs on this machine."""
    return launcher_name(master) in LAUNCHERS and LAUNCHERS[launcher_name(master)].here


def batch_size(master: DictConfig, jobs: int) -> int:
    """Return how many of ``jobs`` jobs are passed to the launcher at once.

    The result is ``jobs``, except for submitit_local, which starts at once every job that it gets.
    """
    name = launcher_name(master)
    size = master.hydra.sweeper.get("max_batch_size") or (available_cores() if name == "submitit_local" else jobs)
    return max(1, min(int(size), jobs))


def threads_per_job(master: DictConfig, jobs: int) -> int | None:
    """Return cores / jobs, so that concurrent jobs do not slow each other down; None leaves the number to torch."""
    name = launcher_name(master)
    settings: Any = OmegaConf.to_container(master.hydra.launcher, resolve=True)
    if name == "submitit_slurm":
        cpus = settings.get("cpus_per_task")
        return None if cpus is None else int(cpus)
    if name == "ray":
        return max(1, int(settings["ray"]["remote"].get("num_cpus", 1)))
    if name == "joblib":
        n_jobs = int(settings.get("n_jobs") or 1)
        # In joblib -1 stands for all cores, -2 for all but one.
        parallel = n_jobs if n_jobs > 0 else max(1, available_cores() + 1 + n_jobs)
    elif name == "submitit_local":
        parallel = batch_size(master, jobs)
    else:
        return None
    return max(1, available_cores() // min(parallel, jobs))


def setup_launcher(master: DictConfig, folder: Path) -> None:
    """Prepare a launcher; its own files go below ``folder``."""
    name = launcher_name(master)
    if name.startswith("submitit"):
        master.hydra.launcher.submitit_folder = str(folder / master.hydra.launcher.submitit_folder)
    if name == "submitit_slurm":
        install_sacct_shim(folder / "bin")
    if name == "ray":
        # Ray 2.60 starts its own nodes with this setting; the nodes of a cluster need it too.
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def end_workers_with_command(master: DictConfig, launcher: Any) -> None:
    """Make joblib's workers watch this process, because it cannot end them if it is killed."""
    if launcher_name(master) != "joblib":
        return
    from joblib import Parallel

    # joblib before 1.5 passes nothing on to its workers.
    if "backend_kwargs" in inspect.signature(Parallel.__init__).parameters:
        launcher.joblib |= {"initializer": end_with_parent, "initargs": (os.getpid(),)}


def shutdown_launcher(master: DictConfig) -> None:
    """End joblib's workers: joblib keeps them for the next call, and each keeps a fork server of half a gigabyte."""
    if launcher_name(master) == "joblib":
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor(reuse=True).shutdown(kill_workers=True)


def install_sacct_shim(folder: Path) -> None:
    """Put a substitute for `sacct` on PATH if SLURM has no accounting; else a dead job blocks the launcher for ever."""
    if shutil.which("sbatch") is None:
        raise InputError("this machine has no `sbatch`", "run the command on a machine that can submit jobs to SLURM")
    if shutil.which("sacct") is not None and subprocess.run(["sacct", "-n"], capture_output=True).returncode == 0:
        return
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "sacct"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m proxlearn.jobs.sacct_shim "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
