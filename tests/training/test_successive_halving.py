"""Selection uses only the training part, is deterministic, and chooses only the open settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from proxlearn.core.functionals.risk import Risk
from proxlearn.core.losses import Loss, logistic, quadratic
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.samples import Samples
from proxlearn.errors import RunError
from proxlearn.training import successive_halving
from proxlearn.training.candidates import CANDIDATES, scaled_candidates
from proxlearn.training.fit import fit
from proxlearn.training.settings import Settings
from proxlearn.training.successive_halving import (
    NEAR_END,
    RUNGS,
    SelectionInterrupted,
    hold_out,
    limit_rows,
    select,
)

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
    likelihood = problem.with_parts(loss=logistic)
    assert select(likelihood, BASE, seed=3).link_slope is None


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
