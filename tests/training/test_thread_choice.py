"""The choice of threads: one on a busy machine, all on an idle one, and few trials of the other choice."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn.training.thread_choice import LONG_STEP, ThreadChoice


def simulate(choice: ThreadChoice, seconds_of: Callable[[int], float], total: float) -> dict[int, float]:
    """Record steps of the given durations for ``total`` simulated seconds; return the seconds per number of threads."""
    spent = dict.fromkeys((1, choice.all_threads), 0.0)
    while sum(spent.values()) < total:
        seconds = seconds_of(choice.threads)
        spent[choice.threads] += seconds
        choice.record(seconds)
    return spent


@given(step=st.floats(1e-4, 0.05), ratio=st.floats(1.2, 2.0), threads=st.integers(2, 32))
@settings(max_examples=50, deadline=None)
def test_an_idle_machine_uses_all_threads_nearly_always(step: float, ratio: float, threads: int) -> None:
    choice = ThreadChoice(threads)
    spent = simulate(choice, lambda n: step if n > 1 else ratio * step, 120.0)
    assert spent[1] < 0.05 * 120


@given(step=st.floats(1e-4, 0.05), penalty=st.floats(1.5, 10.0))
@settings(max_examples=50, deadline=None)
def test_in_company_one_thread_is_used_nearly_always(step: float, penalty: float) -> None:
    choice = ThreadChoice(2)
    spent = simulate(choice, lambda n: step if n == 1 else penalty * step, 120.0)
    assert spent[2] < 0.03 * 120 * penalty


@given(step=st.floats(1e-4, 0.01))
@settings(max_examples=30, deadline=None)
def test_a_change_of_the_machine_is_noticed_soon(step: float) -> None:
    """The machine becomes busy after a minute; the slow choice is left within a second, despite rare trials."""
    choice = ThreadChoice(2)
    simulate(choice, lambda n: step if n == 2 else 1.6 * step, 60.0)
    alone = simulate(choice, lambda n: 10 * step if n == 2 else 2 * step, 60.0)
    assert alone[2] < 3.0
    after = simulate(choice, lambda n: step if n == 2 else 1.6 * step, 60.0)
    assert after[1] < 15.0


def test_long_steps_and_single_threads_are_never_tried_otherwise() -> None:
    choice = ThreadChoice(2)
    spent = simulate(choice, lambda n: 2 * LONG_STEP, 60.0)
    assert spent[1] == 0
    single = ThreadChoice(1)
    single.record(1.0)
    assert single.threads == 1
