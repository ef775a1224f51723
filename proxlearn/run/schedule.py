"""Which steps are logged: a function of the step alone, so that a longer run logs what a shorter one did."""

from __future__ import annotations

PER_DECADE = 20


def is_log_spaced(step: int) -> bool:
    """Whether ``step`` is the rounded power 10^(j/20) of some j; steps 0 to 10 all are."""
    if step <= 10:
        return True
    digits = len(str(step)) - 1
    return step in {round(10 ** (digits + j / PER_DECADE)) for j in range(PER_DECADE)}


def is_logged(step: int, log_every: int | None) -> bool:
    """Whether ``step`` is on the schedule; a run's last step is logged besides."""
    return is_log_spaced(step) if log_every is None else step % log_every == 0
