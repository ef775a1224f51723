"""Set-up of Hydra launchers (concurrent jobs, threads per job), and termination of workers whose command has ended."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from proxlearn.config.launcher_defaults import LAUNCHERS, launcher_name
from proxlearn.errors import InputError

POLL_SECONDS = 1.0
JOB_RUNNING = threading.Lock()
"""Lock that is held while a job is supervised, so that a worker ends only after the results of its job are stored."""
_orphaned = threading.Event()


def is_orphaned() -> bool:
    """Return whether this process is a worker whose command has ended; it then stops its job and starts no other."""
    return _orphaned.is_set()


def end_with_parent(parent: int) -> None:
    """Start a thread that ends this process after its parent process has ended; this works on every platform."""
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    _orphaned.set()
    with JOB_RUNNING:
        os._exit(1)


def available_cores() -> int:
    """Return the number of cores that this process may use or, if it is unknown (macOS), the number of all cores."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def runs_here(master: DictConfig) -> bool:
    """Return whether the launcher that a config selects runs its jobs on this machine."""
    return launcher_name(master) in LAUNCHERS and LAUNCHERS[launcher_name(master)].here


def batch_size(master: DictConfig, jobs: int) -> int:
    """Return how many of ``jobs`` jobs are passed to the launcher at once.

    By default, the result is ``jobs``. For submitit_local, which starts all its jobs at once, it is the number of
    cores.
    """
    name = launcher_name(master)
    size = master.hydra.sweeper.get("max_batch_size") or (available_cores() if name == "submitit_local" else jobs)
    return max(1, min(int(size), jobs))


def threads_per_job(master: DictConfig, jobs: int) -> int | None:
    """Return the number of threads per concurrent job, or None if torch chooses the number."""
    name = launcher_name(master)
    settings: Any = OmegaConf.to_container(master.hydra.launcher, resolve=True)
    if name == "submitit_slurm":
        cpus = settings.get("cpus_per_task")
        return None if cpus is None else int(cpus)
    if name == "ray":
        return max(1, int(settings["ray"]["remote"].get("num_cpus", 1)))
    if name == "joblib":
        n_jobs = int(settings.get("n_jobs") or 1)
        # In joblib, -1 means all cores, and -2 all but one.
        parallel = n_jobs if n_jobs > 0 else max(1, available_cores() + 1 + n_jobs)
    elif name == "submitit_local":
        parallel = batch_size(master, jobs)
    else:
        return None
    return max(1, available_cores() // min(parallel, jobs))


def setup_launcher(master: DictConfig, folder: Path) -> None:
    """Prepare the launcher that a config selects; the launcher writes its files into ``folder``."""
    name = launcher_name(master)
    if name.startswith("submitit"):
        master.hydra.launcher.submitit_folder = str(folder / master.hydra.launcher.submitit_folder)
    if name == "submitit_slurm":
        install_sacct_shim(folder / "bin")
    if name == "ray":
        # Ray 2.60 uses this setting for the nodes that it starts; the nodes of an existing cluster also need it.
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def end_workers_with_command(master: DictConfig, launcher: Any) -> None:
    """Make the workers of joblib end when this process ends, even if it is killed."""
    if launcher_name(master) != "joblib":
        return
    from joblib import Parallel

    # joblib before version 1.5 does not pass these arguments on to its workers.
    if "backend_kwargs" in inspect.signature(Parallel.__init__).parameters:
        launcher.joblib |= {"initializer": end_with_parent, "initargs": (os.getpid(),)}


def shutdown_launcher(master: DictConfig) -> None:
    """Shut down the workers of joblib.

    joblib would leave them running for its next call, and the fork server of each worker uses half a gigabyte.
    """
    if launcher_name(master) == "joblib":
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor(reuse=True).shutdown(kill_workers=True)


def install_sacct_shim(folder: Path) -> None:
    """Put a substitute for `sacct` on PATH if SLURM has no accounting.

    Without `sacct`, a job that has died would block the launcher forever.
    """
    if shutil.which("sbatch") is None:
        raise InputError(
            "hydra/launcher=submitit_slurm needs the program `sbatch`, which this machine lacks",
            "run the command on a machine that can submit jobs to SLURM",
        )
    if shutil.which("sacct") is not None and subprocess.run(["sacct", "-n"], capture_output=True).returncode == 0:
        return
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "sacct"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m proxlearn.jobs.sacct_shim "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
