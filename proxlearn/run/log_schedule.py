"""Schedules of the logged and stored steps: functions of the step alone, so that a longer run repeats a shorter one."""

from __future__ import annotations

from proxlearn.core.schedules import is_log_spaced

LOGGED_PER_DECADE = 20
FILMED_PER_DECADE = 5


def is_logged(step: int, log_every: int | None) -> bool:
    """Whether ``step`` is on the logging schedule; a run also logs its last step."""
    return is_log_spaced(step, LOGGED_PER_DECADE) if log_every is None else step % log_every == 0


def is_film(step: int) -> bool:
    """Whether the checkpoint of ``step`` is kept for films; these steps are log-spaced, like those of the curves."""
    return is_log_spaced(step, FILMED_PER_DECADE)


def is_stored(step: int, checkpoint_every: int, films: bool) -> bool:
    """Whether a checkpoint is written at ``step``; a run also stores its last step."""
    return (films and is_film(step)) or step % checkpoint_every == 0
