"""The record of a run's earlier sessions in status.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proxlearn.config.schema import THREADS, Engine, TrainConfig
from proxlearn.validators import choice, integer, optional, real

COUNT = integer(at_least=0, example=0)


@dataclass(frozen=True)
class PreviousSession:
    """The record of the earlier sessions of a run; the defaults describe a run without earlier sessions."""

    finished_at: int | None = None
    """The last step of the run if it has finished, otherwise None."""
    seconds: float = 0.0
    threads: int | None = None
    data_sha256: str | None = None
    engine: str | None = None
    step: int = 0
    steps: int = 0
    """The largest number of steps that any command requested for the run."""
    run: str | None = None
    """Identity of the run (Experiment.identity)."""
    settings: dict[str, Any] | None = None
    """The settings that determine the trajectory, stored at the start of the run to detect later edits."""
    figures_step: int | None = None
    """The step of the scores in accuracy.csv and confusion.csv, or None if it is unknown."""
    retention: dict[str, Any] | None = None
    """The ``retention_settings`` of the newest session, or None if they are unknown."""
    protected: frozenset[int] = frozenset()
    """Steps of the checkpoints that were stored under other retention settings; no session deletes them."""

    @classmethod
    def from_status(cls, status: Mapping[str, Any], retention: dict[str, Any] | None) -> PreviousSession:
        """Create the record from the values of status.json.

        ``retention`` contains the retention settings, which the values of version 0.1.0 lack. Raise KeyError, TypeError
        or InputError if the values do not describe a run.
        """
        return cls(
            finished_at=COUNT("step", status["step"]) if status["state"] == "finished" else None,
            seconds=real(at_least=0, example=0)("seconds", status["seconds"]),
            threads=THREADS("threads", status["threads"]),
            data_sha256=str(status["data_sha256"]),
            engine=choice(Engine)("engine", status["engine"]),
            step=COUNT("step", status["step"]),
            steps=COUNT("steps", status.get("longest_steps", status["steps"])),
            run=str(status["run"]) if "run" in status else None,
            settings=status["settings"] if isinstance(status.get("settings"), dict) else None,
            figures_step=figures_step(status),
            retention=status.get("retention", retention),
            protected=frozenset(COUNT("step", step) for step in status.get("protected", ())),
        )


def retention_settings(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that determine which checkpoints are written and deleted."""
    return {key: getattr(config, key) for key in ("checkpoint_every", "keep_checkpoints", "films")}


def figures_step(status: Mapping[str, Any]) -> int | None:
    """Return the step of the scores in accuracy.csv and confusion.csv, or None if it is unknown.

    Both files are written at the end of a session. While the next session runs, or after it was killed, the scores
    belong to a step before the newest one. Earlier versions did not store this step; if a session of an earlier version
    has ended, the scores belong to the newest step of the run.
    """
    has_ended = status.get("state") in ("finished", "stopped")
    step = status.get("figures_step", status.get("step") if has_ended else None)
    checked: int | None = optional(COUNT)("figures_step", step)
    return checked
