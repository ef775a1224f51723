"""The selection of hyperparameters by successive halving on a held-out quarter of the training set.

Every candidate starts from the same seed. In each rung, the remaining candidates are trained for more steps than before
and ranked by their lowest validation score, which is the log-loss for classes and otherwise the risk. The candidates
with the lowest scores continue in the next rung. With h_schedule=cosine and horizon=null, the candidates start again in
each rung, and their step size falls over the steps of the rung. Only the scores near the end of the rung then count,
because a fit with a large step size oscillates, and the step of its lowest score would be random. The final fit on the
whole training set uses the winner's settings and ends at the step of the winner's lowest score. Test rows are not used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from proxlearn.core.functionals.risk import Risk
from proxlearn.core.samples import hold_out, limit_rows
from proxlearn.errors import RunError
from proxlearn.training.candidates import candidates_of, distinct_settings, kept_fields
from proxlearn.training.fit import FitInterrupted, FitState, Row, fit, validation_score
from proxlearn.training.selection_progress import SelectionProgress
from proxlearn.training.settings import Settings

RUNGS: tuple[tuple[int, int], ...] = ((40, 2), (120, 1), (440, 1), (1800, 1), (7200, 1))
"""For each rung: the number of further steps per candidate, and the number of candidates that continue afterwards."""
THOROUGH_RUNGS: tuple[tuple[int, int], ...] = ((40, 3), (120, 2), (440, 1))
"""Rungs that keep more candidates, for comparisons of methods; they cost about 1.6 times as many steps."""
USUAL_RUNGS = 3
"""Number of rungs after which a selection ends, unless the target is almost without noise (see LARGE_GAIN)."""
LARGE_GAIN = 0.5
"""Relative decrease of the lowest risk from one rung to the next that indicates a real target almost without noise.

The selection for such a target continues with the rungs after USUAL_RUNGS, and STEPS_PER_ROW does not limit it."""
STEPS_PER_ROW = 3
"""Maximum number of steps per training row from the third rung on; more steps would fit the noise of a small table."""
LEAST_GAIN = 0.03
"""Minimum relative decrease of the lowest score from one rung to the next; below it, the selection ends."""
NEAR_END = 0.7
"""Share of the horizon after which the scores count; the step size has then fallen to a fifth."""
PATIENCE = 12
"""Number of logged steps without a lower validation score after which a candidate stops.

Logged steps are log-spaced, 20 per decade, so the step number quadruples over 12 logged steps."""
FEWEST_STEPS = 5
"""If the lowest score occurs before this step, h is too large for early stopping, and smaller values are tried."""
REFINED_H = 0.2
"""Factor by which h is multiplied if the lowest score occurs before step FEWEST_STEPS."""
MOST_PARTICLES = 200
"""Maximum N of a candidate; in a mean field, good settings do not depend on N, so a small N is enough."""
FEWEST_ROWS = 8
"""Minimum number of rows of a selection; for fewer rows, the first candidate and the first rung's steps are used."""
MOST_ROWS = 20_000
"""Default maximum number of rows of a selection; more rows hardly change the ranking."""


@dataclass(frozen=True)
class Selection:
    """The chosen settings, and the candidates' results."""

    settings: Settings
    table: tuple[dict[str, Any], ...]
    """One row per candidate and rung: the hyperparameters, the step and validation risk of the lowest score, and the
    error that ended the candidate, if any."""
    curve: tuple[tuple[int, float], ...] = ()
    """Pairs (logged step, validation risk) of the winner, in order; empty if no rows were held out."""
    link_slope: float | None = None
    """Slope of the link that converts outputs to class probabilities at the selected step; None if no link was fitted,
    for example for a real target."""
    end: str = "minimum"
    """Position of the winner's lowest score: "step cap" (near the last possible step), "fewest steps" (before step
    FEWEST_STEPS), or "minimum" (between these)."""

    @property
    def best_step(self) -> int:
        """The step of the winner's lowest validation risk; the curve must not be empty.

        If the curve has steps from NEAR_END of the horizon on, only these steps count.
        """
        horizon = self.settings.horizon
        late = [point for point in self.curve if horizon is not None and point[0] >= NEAR_END * horizon]
        return min(late or self.curve, key=lambda point: point[1])[0]

    def risk_at(self, step: int) -> float | None:
        """Return the winner's validation risk after ``step`` steps, or None before the first logged step.

        Between two logged steps, the result is the larger of their risks; after the last logged step, it is the last
        risk.
        """
        before = [risk for logged, risk in self.curve if logged <= step][-1:]
        after = [risk for logged, risk in self.curve if logged >= step][:1]
        return max(before + after) if before else None


class SelectionInterrupted(KeyboardInterrupt):
    """Raised if the user interrupts a selection; ``selection`` and ``fitted`` describe the best candidate so far."""

    def __init__(self, selection: Selection, fitted: FitState) -> None:
        super().__init__("interrupted during the selection")
        self.selection, self.fitted = selection, fitted


class CandidateStore(Protocol):
    """The interface of a store for candidates' results, from which an interrupted selection can be continued.

    A store belongs to a single selection: one problem, one set of base settings and one seed.
    """

    def load(self, rung: int, candidate: int, settings: Settings) -> FitState | RunError | None:
        """Return the fit of a candidate after a rung, or the error that ended it; None if no result is stored."""

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
    rows: int | None = MOST_ROWS,
    progress: Callable[[str], None] = lambda text: None,
    store: CandidateStore | None = None,
) -> Selection:
    """Choose a candidate for the fields that ``base`` leaves at their defaults, using only the training samples.

    The default candidates are those of the loss. A field of ``base`` keeps its value if this value is not its
    default or if the field is named in ``fixed``. If ``base.steps`` is given, it replaces the selected number of steps
    and changes nothing else, so that a run can be extended. ``engine`` and ``threads`` have the same meaning as in
    ``iterate``. At most ``rows`` samples are used, drawn at random and stratified by class. Results of an interrupted
    selection that are in ``store`` are not computed again. A KeyboardInterrupt is converted to SelectionInterrupted
    once a candidate has a score.
    """
    base = base.for_rows(len(problem.samples))
    candidates = candidates_of(problem) if candidates is None else candidates
    settings = distinct_settings(base, candidates, fixed)
    if len(problem.samples) < FEWEST_ROWS:
        return Selection(replace(settings[0], steps=rungs[0][0] if base.steps is None else base.steps), ())
    names = tuple(dict.fromkeys(name for candidate in candidates for name in candidate))
    search = _Search(problem.with_samples(limit_rows(problem.samples, rows, seed)), base, names, settings, rungs)
    search.run(seed, engine, threads, SelectionProgress(progress), store, "h" not in kept_fields(base, fixed))
    return search.selection()


Train = Callable[[int, int, int, int], None]
"""Function of (rung, candidate, further steps, last step) that trains a candidate in a rung."""


class _Search:
    """Successive halving of candidates: the settings and fits of all candidates, and the table of their results."""

    def __init__(
        self,
        problem: Risk,
        base: Settings,
        names: tuple[str, ...],
        settings: list[Settings],
        rungs: tuple[tuple[int, int], ...],
    ) -> None:
        self.problem, self.base, self.names, self.settings, self.rungs = problem, base, names, settings, rungs
        self.restarts = base.h_schedule == "cosine" and base.horizon is None
        """Whether the candidates start again in each rung, with a step size that decreases over the steps of the
        rung."""
        self.fits: dict[int, FitState] = {}
        self.horizons: dict[int, int | None] = {}
        """For each candidate, the horizon of its fit with the lowest score."""
        self.scores: dict[int, float] = {}
        self.table: list[dict[str, Any]] = []
        self.last_step = 0
        """Last step of the newest rung."""

    def run(
        self,
        seed: int,
        engine: str | None,
        threads: int | None,
        progress: SelectionProgress,
        store: CandidateStore | None,
        may_refine: bool,
    ) -> None:
        training, held_out = hold_out(self.problem.samples, seed)
        part = self.problem.with_samples(training)

        def train(rung: int, i: int, more: int, last_step: int) -> None:
            settings = replace(self.settings[i], N=min(self.base.N, MOST_PARTICLES))
            start, steps = self.fits.get(i), more
            if self.restarts:
                start, steps, settings = None, last_step, replace(settings, horizon=last_step)
            result = None if store is None else store.load(rung, i, settings)
            if result is None:
                try:
                    result = fit(
                        part,
                        settings,
                        seed=seed,
                        steps=steps,
                        start=start,
                        engine=engine,
                        threads=threads,
                        validation=held_out,
                        patience=None if self.restarts else PATIENCE,
                        callback=progress.step,
                        link_from=round(NEAR_END * last_step) if self.restarts else 0,
                        scores_training=False,
                    )
                except FitInterrupted as error:
                    self._keep(i, error.fitted, settings.horizon)
                    raise
                except RunError as error:
                    result = error
                if store is not None:
                    store.save(rung, i, settings, result)
            self._record(rung, i, settings.horizon, result)

        try:
            self._halve(train, progress)
            if may_refine:
                self._refine(train, progress)
        except KeyboardInterrupt as error:
            if not self.fits:
                raise
            raise SelectionInterrupted(self.selection(), self.fits[self.winner]) from error

    def _halve(self, train: Train, progress: SelectionProgress) -> None:
        alive: Sequence[int] = range(len(self.settings))
        progress.plan(self._planned_steps())
        lowest, has_large_gain = np.inf, False
        for rung, (more, keep) in enumerate(self.rungs):
            last_step = self.last_step + more
            is_long = rung >= USUAL_RUNGS or (rung > 1 and last_step > STEPS_PER_ROW * len(self.problem.samples))
            if is_long and not has_large_gain:
                break
            self.last_step, steps = last_step, last_step if self.restarts else more
            if rung >= USUAL_RUNGS:
                progress.plan(len(alive) * steps)
            for place, i in enumerate(alive):
                progress.start(
                    rung, max(rung + 1, min(len(self.rungs), USUAL_RUNGS)), place, len(alive), last_step, steps
                )
                train(rung, i, more, last_step)
            alive = sorted(alive, key=lambda i: (self.scores[i], i))[:keep]
            if not np.isfinite(self.scores[alive[0]]):
                raise RunError("every candidate of the selection diverged", "standardise the features and the target")
            alive = [i for i in alive if np.isfinite(self.scores[i])]
            score = self.scores[alive[0]]
            if rung and lowest - score < LEAST_GAIN * abs(lowest):
                break
            may_be_noiseless = len(self.rungs) > USUAL_RUNGS and self.problem.samples.labels is None
            has_large_gain = may_be_noiseless and rung > 0 and lowest - score > LARGE_GAIN * lowest
            lowest = score

    def _refine(self, train: Train, progress: SelectionProgress) -> None:
        """Try smaller values of h while the lowest score belongs to one of the first steps."""
        steps = sum(more for more, _ in self.rungs[:2])
        while self._best_row(self.fits[self.winner], self.horizons[self.winner])["step"] < FEWEST_STEPS:
            h, i = self.settings[self.winner].h, len(self.settings)
            assert h is not None
            if any(settings.h == h * REFINED_H for settings in self.settings):
                return
            self.settings.append(replace(self.settings[self.winner], h=h * REFINED_H))
            progress.plan(steps)
            progress.start(0, 1, 0, 1, steps, steps)
            train(0, i, steps, steps)

    def _record(self, rung: int, i: int, horizon: int | None, result: FitState | RunError) -> None:
        if isinstance(result, RunError):
            # A candidate whose step size is too large for the data diverges and ranks last.
            self.scores[i] = np.inf
            self.fits.pop(i, None)
            self.table.append(_row(rung, i, self.settings[i], self.names, None, str(result)))
        else:
            self._keep(i, result, horizon)
            self.table.append(_row(rung, i, self.settings[i], self.names, self._best_row(result, horizon)))

    def _keep(self, i: int, fitted: FitState, horizon: int | None) -> None:
        """Store the fit and the lowest score of a candidate, unless the fit has no score or an earlier fit was better.

        Fits are compared only if the candidates start again in each rung.
        """
        if not any("validation_risk" in row for row in fitted.history):
            return
        score = validation_score(self._best_row(fitted, horizon))
        if not self.restarts or score < self.scores.get(i, np.inf):
            self.fits[i], self.scores[i], self.horizons[i] = fitted, score, horizon

    def _best_row(self, fitted: FitState, horizon: int | None) -> Row:
        """Return the row of a fit with the lowest score; if the candidates restart, only the last steps count."""
        rows = [row for row in fitted.history if "validation_risk" in row]
        late = [row for row in rows if self.restarts and horizon is not None and row["step"] >= NEAR_END * horizon]
        return min(late or rows, key=validation_score)

    @property
    def winner(self) -> int:
        """Index of the candidate with the lowest score."""
        return min(self.fits, key=lambda i: (self.scores[i], i))

    def _planned_steps(self) -> int:
        """Return the total number of steps of all candidates in the first USUAL_RUNGS rungs."""
        total, count, last_step = 0, len(self.settings), 0
        for more, keep in self.rungs[:USUAL_RUNGS]:
            last_step += more
            total += count * (last_step if self.restarts else more)
            count = min(count, keep)
        return total

    def selection(self) -> Selection:
        fitted, base = self.fits[self.winner], self.base
        best = self._best_row(fitted, self.horizons[self.winner])
        last_step = max(self.last_step, sum(more for more, _ in self.rungs[:USUAL_RUNGS]))
        steps = base.steps if base.steps is not None else int(best["step"])
        end = "minimum"
        if best["step"] >= NEAR_END * last_step:
            end = "step cap"
        elif best["step"] < FEWEST_STEPS:
            end = "fewest steps"
        curve = tuple((int(row["step"]), row["validation_risk"]) for row in fitted.history if "validation_risk" in row)
        return Selection(
            replace(self.settings[self.winner], steps=steps, horizon=self.horizons[self.winner]),
            tuple(self.table),
            curve,
            best.get("link_slope"),
            end,
        )


def _row(
    rung: int, i: int, settings: Settings, names: tuple[str, ...], best: Row | None, error: str = ""
) -> dict[str, Any]:
    best = best or {}
    return {
        "rung": rung + 1,
        "candidate": i + 1,
        **{name: getattr(settings, name) for name in names},
        "step": best.get("step"),
        "validation_risk": best.get("validation_risk"),
        **({"validation_log_loss": best["validation_log_loss"]} if "validation_log_loss" in best else {}),
        "error": error,
    }
