"""Selection uses only the training part, is deterministic, and chooses only the open settings."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from proxlearn.core.functionals.risk import Risk
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.samples import Samples
from proxlearn.errors import RunError
from proxlearn.training.settings import Settings
from proxlearn.training.successive_halving import CANDIDATES, RUNGS, hold_out, select

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
    assert rungs == [len(CANDIDATES), *(keep for _, keep in RUNGS[:-1])]
    last = [row for row in first.table if row["rung"] == len(RUNGS)]
    winner = min(last, key=lambda row: row["validation_risk"])
    assert (winner["init_scale"], winner["h"], winner["step"]) == (
        first.settings.init_scale,
        first.settings.h,
        first.settings.steps,
    )


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
