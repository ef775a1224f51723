"""The training loop: its iterates depend only on the cloud and the generator.

The choice of threads: one on a busy machine, all on an idle one, and few trials of the other choice.

Selection uses only the training part, is deterministic, and chooses only the open settings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from proxlearn.core.cloud import PointCloud, draw_normal
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.losses import Loss, logistic, quadratic
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.samples import Samples, hold_out, limit_rows
from proxlearn.core.step import Info
from proxlearn.errors import InputError, RunError
from proxlearn.training import successive_halving
from proxlearn.training.candidates import CANDIDATES, scaled_candidates
from proxlearn.training.fit import fit, initial_fit
from proxlearn.training.iterate import iterate
from proxlearn.training.settings import Settings
from proxlearn.training.successive_halving import (
    NEAR_END,
    RUNGS,
    THOROUGH_RUNGS,
    USUAL_RUNGS,
    SelectionInterrupted,
    select,
)
from proxlearn.training.thread_choice import LONG_STEP, ThreadChoice

HYPER = Hyper(beta=1e3, h=0.1, epsilon=0.5, L=50, tolerance="log", epsilon_quantile=0.5, h_schedule="cosine")


@pytest.fixture(scope="module")
def wave() -> Risk:
    x = torch.linspace(-2, 2, 40, dtype=torch.float64)
    return Risk.from_samples(Perceptron(), Samples(x[:, None], torch.sin(2 * x)))


@pytest.fixture
def cloud(wave: Risk) -> PointCloud:
    return draw_normal(
        wave.neuron.coordinates(1), wave.neuron.initial_deviations(1, 1.0), 20, torch.Generator().manual_seed(1)
    ).to("cpu", torch.float32)


@pytest.mark.parametrize("engine", ["fused", "eager"])
def test_it_continues_exactly_from_a_cloud_and_a_state_of_the_generator(
    wave: Risk, cloud: PointCloud, engine: str
) -> None:
    generator = torch.Generator().manual_seed(3)
    clouds, states = [], []
    for after, info in iterate(wave, cloud, HYPER, generator=generator, until=12, engine=engine):
        assert isinstance(info, Info)
        clouds.append(after)
        states.append(generator.get_state())
    assert [after.step for after in clouds] == list(range(1, 13))
    again = torch.Generator()
    again.set_state(states[4])
    continued = [after for after, _ in iterate(wave, clouds[4], HYPER, generator=again, until=12, engine=engine)]
    for ours, theirs in zip(continued, clouds[5:], strict=True):
        assert torch.equal(ours.theta, theirs.theta)
        assert torch.equal(ours.log_rho, theirs.log_rho)
    assert torch.equal(again.get_state(), states[-1])


def test_a_fit_is_this_loop(wave: Risk) -> None:
    settings = Settings(N=15, steps=9, init_scale=1.0, h=0.1, beta=1e3, epsilon=0.5)
    start, generator = initial_fit(wave, settings, seed=2), torch.Generator()
    generator.set_state(start.generator)
    *_, (last, _) = iterate(wave, start.cloud, settings.hyper, generator=generator, until=9)
    fitted = fit(wave, settings, seed=2)
    assert torch.equal(fitted.newest.theta, last.theta)
    assert torch.equal(fitted.generator, generator.get_state())


def test_without_an_end_it_goes_on_and_past_the_end_it_yields_nothing(wave: Risk, cloud: PointCloud) -> None:
    steps = iterate(wave, cloud, HYPER, generator=torch.Generator().manual_seed(0))
    for step in range(1, 30):
        after, _ = next(steps)
        assert after.step == step
    later = replace(cloud, step=5)
    assert list(iterate(wave, later, HYPER, generator=torch.Generator(), until=5)) == []


def test_a_wrong_hyperparameter_is_refused_before_the_first_step(wave: Risk, cloud: PointCloud) -> None:
    with pytest.raises(InputError, match="beta must be a finite number > 0, got -1"):
        next(iterate(wave, cloud, replace(HYPER, beta=-1.0), generator=torch.Generator()))


def test_the_fallback_precision_takes_over_for_good(wave: Risk, cloud: PointCloud) -> None:
    wild = replace(HYPER, h=1e30, epsilon_quantile=None, weights="uniform", h_schedule="constant", drift="paper")
    with pytest.raises(RunError, match="not finite"):
        list(iterate(wave, cloud, wild, generator=torch.Generator().manual_seed(0), until=3))
    switched: list[int] = []
    steps = iterate(
        wave,
        cloud,
        wild,
        generator=torch.Generator().manual_seed(0),
        until=3,
        fallback=torch.float64,
        on_switch=lambda bad: switched.append(bad.step),
    )
    dtypes = [after.theta.dtype for after, _ in steps]
    assert len(switched) == 1
    assert dtypes[switched[0] - 1 :] == [torch.float64] * (4 - switched[0])


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


BASE = Settings(N=20)


@pytest.fixture(scope="module")
def problem() -> Risk:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(80, 2, generator=generator, dtype=torch.float64)
    labels = (X[:, 0] * X[:, 1] > 0).long()
    neuron = Perceptron()
    return Risk.from_samples(neuron, Samples(X, neuron.targets(labels), labels))


def test_it_is_the_same_every_time_and_every_candidate_is_accounted_for(problem: Risk) -> None:
    first, again = (select(problem, BASE, seed=3) for _ in range(2))
    assert first == again
    assert None not in (getattr(first.settings, key) for key in ("init_scale", "h", "beta", "epsilon", "steps"))
    rungs = [sum(row["rung"] == i + 1 for row in first.table) for i in range(len(RUNGS))]
    # A selection may end before the last rung, but never within one.
    complete = [len(CANDIDATES), *(keep for _, keep in RUNGS[:-1])]
    assert [count for count in rungs if count] == complete[: sum(count > 0 for count in rungs)]
    winner = min(first.table, key=lambda row: row["validation_log_loss"])
    assert (winner["confinement"], winner["h"], winner["step"]) == (
        first.settings.confinement,
        first.settings.h,
        first.settings.steps,
    )


def test_the_step_size_falls_over_the_steps_of_a_rung_and_only_its_last_steps_count(problem: Risk) -> None:
    settings = select(problem, BASE, seed=3).settings
    horizons = [sum(more for more, _ in RUNGS[: i + 1]) for i in range(len(RUNGS))]
    assert settings.horizon in horizons
    assert settings.horizon is not None
    assert settings.steps is not None
    assert NEAR_END * settings.horizon <= settings.steps <= settings.horizon
    constant = select(problem, replace(BASE, h_schedule="constant"), seed=3)
    assert constant.settings.horizon is None


def test_the_winner_has_the_lowest_log_loss_and_its_link_is_kept(problem: Risk) -> None:
    """The quadratic loss has no probabilities of its own: a link is fitted to the rows that are held out."""
    selection = select(problem, BASE, seed=3)
    assert selection.link_slope is not None
    assert selection.link_slope > 0


def test_the_slope_of_a_likelihood_loss_is_one_up_to_what_the_held_out_rows_show(problem: Risk) -> None:
    selection = select(problem.with_parts(loss=logistic), BASE, seed=3)
    assert selection.link_slope is not None
    assert 0.6 < selection.link_slope < 1.6
    assert all("validation_log_loss" not in row for row in selection.table)


def test_a_real_target_without_noise_is_trained_for_longer_than_one_with_noise() -> None:
    X = torch.linspace(-1.7, 1.7, 60, dtype=torch.float64)[:, None]
    exact = 1.4 * torch.sin(1.8 * X[:, 0])
    noise = torch.randn(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    base, last_rungs = Settings(N=100), []
    for y, rungs in ((exact, RUNGS), (exact + noise, RUNGS), (exact, THOROUGH_RUNGS)):
        selection = select(Risk.from_samples(Perceptron(), Samples(X, y)), base, seed=0, rungs=rungs)
        last_rungs.append((max(row["rung"] for row in selection.table), selection.curve[-1][1] < 0.01))
    assert [risk for _, risk in last_rungs] == [True, False, False]
    assert last_rungs[0][0] >= USUAL_RUNGS > max(last_rungs[1][0], last_rungs[2][0])


def test_an_interrupt_leaves_the_best_candidate_so_far(problem: Risk, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return fit(*args, **kwargs)

    monkeypatch.setattr(successive_halving, "fit", interrupted)
    with pytest.raises(SelectionInterrupted) as error:
        select(problem, BASE, seed=3)
    scores = [row["validation_log_loss"] for row in error.value.selection.table]
    assert len(scores) == 3
    assert error.value.fitted.newest.step == RUNGS[0][0]
    calls.clear()
    calls.extend([()] * 3)
    with pytest.raises(KeyboardInterrupt) as nothing:
        select(problem, BASE, seed=3)
    assert not isinstance(nothing.value, SelectionInterrupted)


def test_a_limited_number_of_rows_has_each_class_in_proportion(problem: Risk) -> None:
    labels = torch.tensor([0] * 900 + [1] * 100)
    samples = Samples(torch.arange(1000.0)[:, None], labels.double(), labels)
    limited = limit_rows(samples, 100, seed=1)
    assert limited.labels is not None
    assert torch.bincount(limited.labels).tolist() == [90, 10]
    assert len(limited.X.unique()) == 100
    assert limit_rows(samples, None, seed=1) is samples
    assert limit_rows(samples, 1000, seed=1) is samples


def test_candidates_of_a_loss_and_of_a_multiple_of_it_are_equivalent() -> None:
    class Half(Loss):
        smoothness = quadratic.smoothness / 2

        def value(self, f: Tensor, y: Tensor) -> Tensor:
            return quadratic.value(f, y) / 2

    for one, other in zip(CANDIDATES, scaled_candidates(Half()), strict=True):
        assert (other["h"], other["beta"]) == (2 * one["h"], 2 * one["beta"])
        assert other["confinement"]["w"] == one["confinement"]["w"] / 2
        assert (other["epsilon"], other["init_scale"]) == (one["epsilon"], one["init_scale"])


def test_what_is_given_is_kept_and_given_steps_change_nothing_else(problem: Risk) -> None:
    chosen = select(problem, replace(BASE, h=0.2, epsilon=0.3), seed=3)
    assert (chosen.settings.h, chosen.settings.epsilon) == (0.2, 0.3)
    assert {row["h"] for row in chosen.table} == {0.2}
    longer = select(problem, replace(BASE, h=0.2, epsilon=0.3, steps=777), seed=3)
    assert longer.settings == replace(chosen.settings, steps=777)


def test_a_candidate_that_leaves_the_finite_range_loses(problem: Risk) -> None:
    wild = {"init_scale": 1.0, "h": 1e30, "epsilon": 0.1, "beta": 1e5}
    selection = select(problem, BASE, seed=0, candidates=(wild, CANDIDATES[0]))
    assert selection.settings.h == CANDIDATES[0]["h"]
    assert "not finite" in selection.table[0]["error"]
    with pytest.raises(RunError, match="every candidate of the selection diverged"):
        select(problem, BASE, seed=0, candidates=(wild,))


def test_a_quarter_is_held_out_with_each_class_in_proportion(problem: Risk) -> None:
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 4, (200,), generator=generator)
    X = torch.arange(200, dtype=torch.float64)[:, None]
    training, held_out = hold_out(Samples(X, labels.double(), labels), seed=5)
    assert sorted(torch.cat((training.X, held_out.X))[:, 0].tolist()) == list(range(200))
    assert len(held_out) == 50
    assert held_out.labels is not None
    counts = torch.bincount(held_out.labels, minlength=4) - torch.bincount(labels, minlength=4) / 4
    assert float(counts.abs().max()) <= 1


def test_too_few_rows_to_hold_out_any_get_the_first_candidate(problem: Risk) -> None:
    few = Risk.from_samples(problem.neuron, Samples(problem.samples.X[:7], problem.samples.y[:7]))
    selection = select(few, BASE, seed=0)
    assert selection.table == ()
    assert selection.settings.steps == RUNGS[0][0]


def test_candidates_of_any_field_are_tried_and_stored_by_their_own_names(problem: Risk) -> None:
    base = replace(BASE, h=0.5, epsilon=1.0, beta=1e4, init_scale=1.0)
    candidates = ({"L": 5, "delta": 1e-3}, {"L": 50, "delta": 1e-3})
    rungs = ((2, 1),)
    selection = select(problem, base, seed=0, candidates=candidates, rungs=rungs)
    assert [(row["L"], row["delta"]) for row in selection.table] == [(5, 1e-3), (50, 1e-3)]
    assert "h" not in selection.table[0]
    given = select(problem, replace(base, L=7), seed=0, candidates=candidates, rungs=rungs)
    assert [row["L"] for row in given.table] == [7]
    fixed = select(problem, base, seed=0, candidates=candidates, rungs=rungs, fixed=("L",))
    assert [row["L"] for row in fixed.table] == [Settings().L]
