"""One selection procedure for every dataset: successive halving on a held-out quarter of the training part.

Every candidate starts from the same seed. In each rung all that are left go on for some more steps, and are then
ranked by the least validation risk they have met so far; the better ones stay. The winner's settings, and the step of
its least validation risk, are what the final fit on the whole training part is made with. No test row is ever seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np
import torch

from proxlearn.core.problem import Problem, Samples
from proxlearn.errors import RunError
from proxlearn.training.settings import Settings
from proxlearn.training.stepper import take_rows
from proxlearn.training.trainer import FitState, fit

CANDIDATES: tuple[dict[str, float], ...] = tuple(
    {"init_scale": s, "h": h, "epsilon": epsilon, "beta": beta}
    for s in (1.0, 2.0, 0.5)
    for h in (0.5, 0.1)
    for epsilon, beta in ((0.1, 1e5), (1.0, 1e4))
)
"""What is tried: values that serve standardised features and targets of the size 1, whatever the data."""
RUNGS: tuple[tuple[int, int], ...] = ((50, 4), (100, 2), (300, 1))
"""Steps that each one left goes on for, and how many are left after them."""
PATIENCE = 12
"""Logged steps without a lower validation risk after which a candidate goes no further: four times as many steps."""
MOST_PARTICLES = 200
"""Of a candidate: settings of a mean field do not depend on N, and their order is seen with fewer."""
FEWEST_ROWS = 8
"""With less a held-out part says nothing: the first candidate is taken, and trained for the first rung."""


@dataclass(frozen=True)
class Selection:
    """What was chosen, and from what."""

    settings: Settings
    table: tuple[dict[str, Any], ...]
    """A row for each candidate and rung: its numbers, the step and the value of its least validation risk."""
    curve: tuple[tuple[int, float], ...] = ()
    """The winner's logged steps, in order, and its validation risk at each; empty where nothing was held out."""

    @property
    def best_step(self) -> int:
        """Where the winner's validation risk is least; the curve must not be empty."""
        return min(self.curve, key=lambda point: point[1])[0]

    def risk_at(self, step: int) -> float | None:
        """The winner's validation risk after ``step`` recursions; None where the curve says nothing of them.

        Between two logged steps it is the larger risk of both, and after the last one the last.
        """
        before = [risk for logged, risk in self.curve if logged <= step][-1:]
        after = [risk for logged, risk in self.curve if logged >= step][:1]
        return max(before + after) if before else None


class CandidateStore(Protocol):
    """What is known of candidates from an interrupted selection of the same problem, settings and seed."""

    def load(self, rung: int, candidate: int, settings: Settings) -> FitState | RunError | None:
        """The fit of a candidate after a rung, or the error that ended it; None where it is not known."""

    def save(self, rung: int, candidate: int, settings: Settings, result: FitState | RunError) -> None:
        """Keep it."""


def select(
    problem: Problem,
    base: Settings,
    *,
    seed: int,
    threads: int | None = None,
    candidates: tuple[dict[str, Any], ...] = CANDIDATES,
    fixed: Collection[str] = (),
    rungs: tuple[tuple[int, int], ...] = RUNGS,
    progress: Callable[[str], None] = lambda text: None,
    store: CandidateStore | None = None,
) -> Selection:
    """Choose the fields of ``candidates`` that ``base`` leaves at their defaults, from the training samples alone.

    A field whose value in ``base`` is not its default keeps that value, and so does one named in ``fixed``. Steps that
    are given replace those that would be chosen, and change nothing else: more of them continue a run.
    What ``store`` holds of an interrupted selection is not computed again.
    """
    tried = _distinct(base, candidates, fixed)
    names = tuple(dict.fromkeys(name for candidate in candidates for name in candidate))
    if len(problem.samples) < FEWEST_ROWS:
        return Selection(replace(tried[0], steps=rungs[0][0] if base.steps is None else base.steps), ())
    training, held_out = hold_out(problem.samples, seed)
    part = Problem(problem.neuron, training)
    alive: dict[int, FitState | None] = dict.fromkeys(range(len(tried)))
    table: list[dict[str, Any]] = []
    done = 0
    for rung, (more, keep) in enumerate(rungs):
        done += more
        scores: dict[int, float] = {}
        for i, fitted in list(alive.items()):
            progress(f"selection: rung {rung + 1} of {len(rungs)}, {len(alive)} candidates to step {done}")
            settings = replace(tried[i], N=min(base.N, MOST_PARTICLES))
            made = None if store is None else store.load(rung, i, settings)
            if made is None:
                try:
                    made = fit(
                        part,
                        settings,
                        seed=seed,
                        steps=more,
                        start=fitted,
                        threads=threads,
                        validation=held_out,
                        patience=PATIENCE,
                    )
                except RunError as error:
                    made = error
                if store is not None:
                    store.save(rung, i, settings, made)
            if isinstance(made, RunError):
                # A step size too large for the data is a candidate that lost.
                scores[i] = np.inf
                table.append(_row(rung, i, tried[i], names, None, str(made)))
                continue
            alive[i] = made
            scores[i] = made.best["validation_risk"]
            table.append(_row(rung, i, tried[i], names, made))
        ranked = sorted(scores, key=lambda i: (scores[i], i))
        alive = {i: alive[i] for i in ranked[:keep] if np.isfinite(scores[i])}
        if not alive:
            raise RunError("no candidate of the selection stayed finite", "scale the features and the target")
    winner, fitted = next(iter(alive.items()))
    assert fitted is not None
    steps = base.steps if base.steps is not None else int(fitted.best["step"])
    curve = tuple((int(row["step"]), row["validation_risk"]) for row in fitted.history if "validation_risk" in row)
    return Selection(replace(tried[winner], steps=steps), tuple(table), curve)


def hold_out(samples: Samples, seed: int) -> tuple[Samples, Samples]:
    """Three quarters to train on and one to look at, each class in proportion."""
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(seed))
    if samples.labels is not None:
        order = order[torch.argsort(samples.labels[order], stable=True)]
    held = torch.zeros(len(samples), dtype=torch.bool)
    held[order[1::4]] = True
    return take_rows(samples, (~held).nonzero()[:, 0]), take_rows(samples, held.nonzero()[:, 0])


def _distinct(base: Settings, candidates: tuple[dict[str, Any], ...], fixed: Collection[str]) -> list[Settings]:
    """The candidates with what the base has fixed; each different one once."""
    defaults = Settings()
    kept = {field.name for field in fields(base) if getattr(base, field.name) != getattr(defaults, field.name)}
    kept.update(fixed)
    made = [replace(base, **{k: v for k, v in each.items() if k not in kept}) for each in candidates]
    return list(dict.fromkeys(made))


def _row(
    rung: int, i: int, settings: Settings, names: tuple[str, ...], fitted: FitState | None, error: str = ""
) -> dict[str, Any]:
    best = fitted.best if fitted is not None else {"step": None, "validation_risk": None}
    return {
        "rung": rung + 1,
        "candidate": i + 1,
        **{name: getattr(settings, name) for name in names},
        "step": best["step"],
        "validation_risk": best["validation_risk"],
        "error": error,
    }
