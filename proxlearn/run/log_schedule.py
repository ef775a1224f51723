"""Schedules of logged and stored steps; they depend only on the step, so that a longer run repeats a shorter one."""

from __future__ import annotations

from proxlearn.core.schedules import is_log_spaced

LOGGED_PER_DECADE = 20
FILMED_PER_DECADE = 5


def is_logged(step: int, log_every: int | None) -> bool:
    """Return whether ``step`` is on the logging schedule; a run also logs its last step."""
    return is_log_spaced(step, LOGGED_PER_DECADE) if log_every is None else step % log_every == 0


def is_film(step: int) -> bool:
    """Return whether the checkpoint of ``step`` is kept for films; these steps are log-spaced."""
    return is_log_spaced(step, FILMED_PER_DECADE)


def is_stored(step: int, checkpoint_every: int, films: bool) -> bool:
    """Return whether a checkpoint is written at ``step``; a run also stores its last step."""
    return (films and is_film(step)) or step % checkpoint_every == 0
