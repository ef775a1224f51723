"""Which steps are logged and stored: functions of the step alone, so that a longer run does what a shorter one did."""

from __future__ import annotations

from proxlearn.core.schedules import is_log_spaced

LOGGED_PER_DECADE = 20
FILMED_PER_DECADE = 5


def is_logged(step: int, log_every: int | None) -> bool:
    """Whether ``step`` is on the schedule; a run's last step is logged besides."""
    return is_log_spaced(step, LOGGED_PER_DECADE) if log_every is None else step % log_every == 0


def is_film(step: int) -> bool:
    """Whether the checkpoint of ``step`` is kept for good: films and curves are log-spaced too."""
    return is_log_spaced(step, FILMED_PER_DECADE)


def is_stored(step: int, checkpoint_every: int, films: bool) -> bool:
    """Whether a checkpoint is written at ``step``; one is at a run's last step besides."""
    return (films and is_film(step)) or step % checkpoint_every == 0
