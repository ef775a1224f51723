"""The outcome of one session of a run; this module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """The state of a run at the end of a session."""

    folder: Path
    state: str
    step: int
    signal: int | None = None
    """The signal that stopped the session, if one did."""
    already_finished: bool = False
    longest_steps: int = 0
    """The largest number of steps that the run was ever given."""
