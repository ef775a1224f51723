"""The selection procedure for every dataset: successive halving on a held-out quarter of the training part.

Every candidate starts from the same seed. In each rung, the remaining candidates are trained for some more steps and
ranked by their lowest validation risk so far; the better ones are kept. The final fit on the whole training part uses
the winner's settings and ends at the step of its lowest validation risk. No test row is used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np
import torch

from proxlearn.core.functionals.risk import Risk
from proxlearn.core.losses import Loss, quadratic
from proxlearn.core.samples import Samples
from proxlearn.errors import RunError
from proxlearn.training.fit import FitState, fit
from proxlearn.training.settings import Settings

CANDIDATES: tuple[dict[str, float], ...] = tuple(
    {"init_scale": s, "h": h, "epsilon": epsilon, "beta": beta}
    for s in (1.0, 2.0, 0.5)
    for h in (0.5, 0.1)
    for epsilon, beta in ((0.1, 1e5), (1.0, 1e4))
)
"""The candidates for the quadratic loss, chosen for standardised features and targets of order 1."""
RUNGS: tuple[tuple[int, int], ...] = ((50, 4), (100, 2), (300, 1))
"""For each rung, the number of further steps per candidate and the number of candidates that are kept afterwards."""
PATIENCE = 12
"""Number of logged steps without a lower validation risk after which a candidate stops.

Logged steps are log-spaced, 20 per decade, so the number of steps quadruples in the meantime."""
MOST_PARTICLES = 200
"""Maximum N of a candidate. In a mean-field model, good settings do not depend on N, so few particles suffice for a
ranking.
"""
FEWEST_ROWS = 8
"""Number of rows below which a held-out part is uninformative; the first candidate and the steps of the first rung are
then chosen.
"""


@dataclass(frozen=True)
class Selection:
    """The chosen settings, and the candidates' results."""

    settings: Settings
    table: tuple[dict[str, Any], ...]
    """One row per candidate and rung: its hyperparameters, its lowest validation risk, and the step of that risk."""
    curve: tuple[tuple[int, float], ...] = ()
    """The winner's logged steps, in order, with its validation risks; empty if no part was held out."""

    @property
    def best_step(self) -> int:
        """The step of the winner's lowest validation risk; the curve must not be empty."""
        return min(self.curve, key=lambda point: point[1])[0]

    def risk_at(self, step: int) -> float | None:
        """Return the winner's validation risk after ``step`` recursions, or None if the curve does not cover that step.

        Between two logged steps, the result is the larger of their risks; after the last logged step, it is the last
        risk.
        """
        before = [risk for logged, risk in self.curve if logged <= step][-1:]
        after = [risk for logged, risk in self.curve if logged >= step][:1]
        return max(before + after) if before else None


class CandidateStore(Protocol):
    """A store of candidates' results from an interrupted selection with the same problem, settings and seed."""

    def load(self, rung: int, candidate: int, settings: Settings) -> FitState | RunError | None:
        """Return the fit of a candidate after a rung, the error that ended it, or None if no result is stored."""

    def save(self, rung: int, candidate: int, settings: Settings, result: FitState | RunError) -> None:
        """Store the result of a candidate after a rung."""


def select(
    problem: Risk,
    base: Settings,
    *,
    seed: int,
    engine: str | None = None,
    threads: int | None = None,
    candidates: tuple[dict[str, Any], ...] | None = None,
    fixed: Collection[str] = (),
    rungs: tuple[tuple[int, int], ...] = RUNGS,
    progress: Callable[[str], None] = lambda text: None,
    store: CandidateStore | None = None,
) -> Selection:
    """Choose a candidate for the fields that ``base`` leaves at their defaults, using only the training samples.

    By default, the candidates are those of the loss. A field of ``base`` keeps its value if this value is not its
    default or if the field is named in ``fixed``. If ``base.steps`` is given, it replaces the selected number of steps
    and changes nothing else, so that a run can be extended. ``engine`` and ``threads`` have the same meaning as in
    ``iterate``. Results that ``store`` holds from an interrupted selection are not computed again.
    """
    candidates = candidates_of(problem.loss) if candidates is None else candidates
    candidate_settings = _distinct(base, candidates, fixed)
    names = tuple(dict.fromkeys(name for candidate in candidates for name in candidate))
    if len(problem.samples) < FEWEST_ROWS:
        return Selection(replace(candidate_settings[0], steps=rungs[0][0] if base.steps is None else base.steps), ())
    training, held_out = hold_out(problem.samples, seed)
    part = problem.with_samples(training)
    alive: dict[int, FitState | None] = dict.fromkeys(range(len(candidate_settings)))
    table: list[dict[str, Any]] = []
    last_step = 0
    for rung, (more, keep) in enumerate(rungs):
        last_step += more
        risks: dict[int, float] = {}
        for i, fitted in list(alive.items()):
            progress(f"selection: rung {rung + 1} of {len(rungs)}, {len(alive)} candidates to step {last_step}")
            settings = replace(candidate_settings[i], N=min(base.N, MOST_PARTICLES))
            result = None if store is None else store.load(rung, i, settings)
            if result is None:
                try:
                    result = fit(
                        part,
                        settings,
                        seed=seed,
                        steps=more,
                        start=fitted,
                        engine=engine,
                        threads=threads,
                        validation=held_out,
                        patience=PATIENCE,
                    )
                except RunError as error:
                    result = error
                if store is not None:
                    store.save(rung, i, settings, result)
            if isinstance(result, RunError):
                # A candidate that diverges, because its step size is too large for the data, is dropped.
                risks[i] = np.inf
                table.append(_row(rung, i, candidate_settings[i], names, None, str(result)))
                continue
            alive[i] = result
            risks[i] = result.best["validation_risk"]
            table.append(_row(rung, i, candidate_settings[i], names, result))
        ranked = sorted(risks, key=lambda i: (risks[i], i))
        alive = {i: alive[i] for i in ranked[:keep] if np.isfinite(risks[i])}
        if not alive:
            raise RunError("every candidate of the selection diverged", "scale the features and the target")
    winner, fitted = next(iter(alive.items()))
    assert fitted is not None
    steps = base.steps if base.steps is not None else int(fitted.best["step"])
    curve = tuple((int(row["step"]), row["validation_risk"]) for row in fitted.history if "validation_risk" in row)
    return Selection(replace(candidate_settings[winner], steps=steps), tuple(table), curve)


def candidates_of(loss: Loss, candidates: tuple[dict[str, float], ...] = CANDIDATES) -> tuple[dict[str, float], ...]:
    """Return the candidates for a loss, with h and beta scaled in inverse proportion to its smoothness.

    Dividing a loss by c leaves the trajectories unchanged if h and beta are multiplied by c. With this scaling, losses
    that differ only by a factor have equivalent candidates.
    """
    factor = quadratic.smoothness / loss.smoothness
    scaled = {"h", "beta"}
    return tuple(
        {name: factor * value if name in scaled else value for name, value in values.items()} for values in candidates
    )


def hold_out(samples: Samples, seed: int) -> tuple[Samples, Samples]:
    """Return three quarters of the samples for training and one quarter for validation, stratified by class."""
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(seed))
    if samples.labels is not None:
        order = order[torch.argsort(samples.labels[order], stable=True)]
    held = torch.zeros(len(samples), dtype=torch.bool)
    held[order[1::4]] = True
    training = samples.take_rows((~held).nonzero()[:, 0])
    # The weights of each part are rescaled to mean 1; otherwise, they would change the effective step size.
    return training.with_weights(training.weights), samples.take_rows(held.nonzero()[:, 0])


def _distinct(base: Settings, candidates: tuple[dict[str, Any], ...], fixed: Collection[str]) -> list[Settings]:
    """Return the settings of the candidates, with the fixed fields of the base and without duplicates."""
    defaults = Settings()
    kept = {field.name for field in fields(base) if getattr(base, field.name) != getattr(defaults, field.name)}
    kept.update(fixed)
    return list(
        dict.fromkeys(replace(base, **{k: v for k, v in values.items() if k not in kept}) for values in candidates)
    )


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
