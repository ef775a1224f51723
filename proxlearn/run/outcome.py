"""The outcome of one session of a run; torch is not imported, so that commands that report an outcome start fast."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """The final state of a session."""

    folder: Path
    state: str
    step: int
    signal: int | None = None
    """The signal that stopped the session, if one did."""
    already_finished: bool = False
    longest_steps: int = 0
    """The largest number of steps that the run was ever given."""
