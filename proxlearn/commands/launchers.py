"""Who runs the jobs of a sweep: how many at a time, with how many threads each, and what a launcher needs first."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from proxlearn.errors import InputError


@dataclass(frozen=True)
class Launcher:
    """What is known of a launcher by its class."""

    extra: str
    """Of proxlearn's own, that installs it."""
    here: bool
    """Whether its jobs run on this machine, so that its device and memory are theirs."""


KNOWN = {
    "BasicLauncher": Launcher("", here=True),
    "JoblibLauncher": Launcher("joblib", here=True),
    "LocalLauncher": Launcher("slurm", here=True),
    "SlurmLauncher": Launcher("slurm", here=False),
    "RayLauncher": Launcher("ray", here=False),
}


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


def launcher_of(master: DictConfig) -> tuple[str, Launcher]:
    """The class of the chosen launcher; refused where it is not installed."""
    target = str(master.hydra.launcher["_target_"])
    name = target.rpartition(".")[2]
    known = KNOWN.get(name, Launcher("", here=False))
    package = ".".join(target.split(".")[:2])
    if importlib.util.find_spec(package.split(".")[0]) is None or importlib.util.find_spec(package) is None:
        choice = master.hydra.runtime.choices.get("hydra/launcher")
        remedy = f"pip install 'proxlearn[{known.extra}]'" if known.extra else "install its package"
        raise InputError(f"hydra/launcher={choice} is not installed", remedy)
    return name, known


def at_a_time(master: DictConfig, jobs: int) -> int:
    """How many of ``jobs`` jobs are handed to the launcher at once: all, but where it would start them all at once."""
    name, _ = launcher_of(master)
    asked = master.hydra.sweeper.get("max_batch_size") or (cores() if name == "LocalLauncher" else jobs)
    return max(1, min(int(asked), jobs))


def threads_of_a_job(master: DictConfig, jobs: int) -> int | None:
    """Cores / jobs, so that jobs side by side do not get in each other's way; None leaves it to torch."""
    name, _ = launcher_of(master)
    settings: Any = OmegaConf.to_container(master.hydra.launcher, resolve=True)
    if name == "SlurmLauncher":
        return settings.get("cpus_per_task")
    if name == "RayLauncher":
        return max(1, int(settings["ray"]["remote"].get("num_cpus", 1)))
    if name == "JoblibLauncher":
        asked = int(settings.get("n_jobs") or 1)
        # joblib counts from the other end too: -1 is every core, -2 all but one.
        side_by_side = asked if asked > 0 else max(1, cores() + 1 + asked)
    elif name == "LocalLauncher":
        side_by_side = at_a_time(master, jobs)
    else:
        return None
    return max(1, cores() // min(side_by_side, jobs))


def prepare(master: DictConfig, sweep: Path) -> None:
    """What a launcher needs to be told for it to work as one expects."""
    name, _ = launcher_of(master)
    if name in ("LocalLauncher", "SlurmLauncher") and master.hydra.launcher.submitit_folder is None:
        with open_dict(master.hydra.launcher):
            master.hydra.launcher.submitit_folder = str(sweep / "submitit" / "%j")
    if name == "SlurmLauncher":
        answer_for_sacct(sweep / "bin")
    if name == "RayLauncher":
        # What Ray 2.60 starts its own nodes with; a cluster's nodes must have been started so too.
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def answer_for_sacct(folder: Path) -> None:
    """Without SLURM's accounting, `sacct` says nothing, and a job that died is waited for for ever: answer for it."""
    if shutil.which("sbatch") is None:
        raise InputError("this machine has no `sbatch`", "give the command on a machine that submits to SLURM")
    if shutil.which("sacct") is not None and subprocess.run(["sacct", "-n"], capture_output=True).returncode == 0:
        return
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "sacct"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m proxlearn.commands.sacct "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
