"""The Hydra launchers that can run a sweep, and the plugin defaults that proxlearn changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from omegaconf import DictConfig, OmegaConf


@dataclass(frozen=True)
class LauncherInfo:
    """The properties of a launcher, which a user selects with hydra/launcher=NAME."""

    here: bool
    """Whether the jobs run on this machine; if so, its device and memory are checked before the start."""
    extra: str = ""
    """The optional dependency group of proxlearn that installs the launcher."""
    defaults: dict[str, Any] = field(default_factory=dict)
    """Settings that differ from the plugin's defaults."""


SUBMITIT = {"submitit_folder": "submitit/%j", "stderr_to_stdout": True}
"""Defaults of both submitit launchers; a relative folder is inside the sweep folder."""
LAUNCHERS = {
    "basic": LauncherInfo(here=True),
    # By default, joblib passes several short jobs at once to one worker, while other workers are idle.
    "joblib": LauncherInfo(here=True, extra="joblib", defaults={"batch_size": "1"}),
    # The limit is one year, because a run on this machine should have no time limit.
    "submitit_local": LauncherInfo(here=True, extra="slurm", defaults={**SUBMITIT, "timeout_min": 525_600}),
    # A run resumes exactly, so a job that exceeds its time limit is submitted again until it is finished.
    "submitit_slurm": LauncherInfo(
        here=False, extra="slurm", defaults={**SUBMITIT, "cpus_per_task": 1, "max_num_timeout": 1000}
    ),
    # A running Ray cluster rejects the launcher's default value of object_store_memory (hydra #2893).
    "ray": LauncherInfo(
        here=False,
        extra="ray",
        defaults={
            "ray": {
                "init": {"address": None, "object_store_memory": None, "log_to_driver": False},
                "remote": {"num_cpus": 1, "max_retries": 3},
            }
        },
    ),
}


def register_defaults() -> None:
    """Register proxlearn's defaults for the installed launchers; their other settings are not changed."""
    Plugins.instance()
    store = ConfigStore.instance()
    installed = set(store.list("hydra/launcher"))
    for name, launcher in LAUNCHERS.items():
        if launcher.defaults and f"{name}.yaml" in installed:
            plugin = store.load(f"hydra/launcher/{name}.yaml")
            node = OmegaConf.merge(OmegaConf.structured(plugin.node), launcher.defaults)
            store.store(group="hydra/launcher", name=name, node=node, provider="proxlearn")


def launcher_name(master: DictConfig) -> str:
    """Return the name of the launcher that the config of a sweep selects."""
    return str(master.hydra.runtime.choices["hydra/launcher"])
