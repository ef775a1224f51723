"""The Hydra launchers that can run a sweep, and the settings in which proxlearn differs from each plugin's defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from omegaconf import DictConfig, OmegaConf


@dataclass(frozen=True)
class LauncherInfo:
    """What is known of a launcher by its name in hydra/launcher=NAME."""

    here: bool
    """Whether its jobs run on this machine, so that its device and memory are theirs."""
    extra: str = ""
    """Of proxlearn's own, that installs it."""
    defaults: dict[str, Any] = field(default_factory=dict)
    """Where ours differ from the plugin's."""


SUBMITIT = {"submitit_folder": "submitit/%j", "stderr_to_stdout": True}
"""A relative folder is one below the sweep's."""
LAUNCHERS = {
    "basic": LauncherInfo(here=True),
    # joblib's own choice hands a worker several short jobs at once, and leaves the others idle.
    "joblib": LauncherInfo(here=True, extra="joblib", defaults={"batch_size": "1"}),
    # A year: a run is not to be cut short where nobody asked for it.
    "submitit_local": LauncherInfo(here=True, extra="slurm", defaults={**SUBMITIT, "timeout_min": 525_600}),
    # A run goes on exactly where it was: one that needs more time is submitted again, as often as it takes.
    "submitit_slurm": LauncherInfo(
        here=False, extra="slurm", defaults={**SUBMITIT, "cpus_per_task": 1, "max_num_timeout": 1000}
    ),
    # The launcher's own object_store_memory is refused by a cluster that runs already (hydra #2893).
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
    """Our defaults for the installed plugins; their other settings stay as their version has them."""
    Plugins.instance()
    store = ConfigStore.instance()
    known = set(store.list("hydra/launcher"))
    for name, launcher in LAUNCHERS.items():
        if launcher.defaults and f"{name}.yaml" in known:
            plugin = store.load(f"hydra/launcher/{name}.yaml")
            node = OmegaConf.merge(OmegaConf.structured(plugin.node), launcher.defaults)
            store.store(group="hydra/launcher", name=name, node=node, provider="proxlearn")


def launcher_name(master: DictConfig) -> str:
    """Of the chosen launcher."""
    return str(master.hydra.runtime.choices["hydra/launcher"])
