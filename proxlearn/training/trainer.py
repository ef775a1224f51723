"""Fit in memory: from a problem and settings to a trained cloud and its history, with early stopping where asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud, draw_normal
from proxlearn.core.energy import effective_sample_size
from proxlearn.core.neurons.registry import Neuron
from proxlearn.core.problem import Problem, Samples
from proxlearn.core.schedules import is_log_spaced
from proxlearn.training.engine import fused_obstacle
from proxlearn.training.settings import Settings
from proxlearn.training.stepper import Stepper, take_rows

LOGGED_PER_DECADE = 20
MOST_SCORED = 2**14
"""Training rows that the history's risk is taken over."""
PIECE = 2**24
"""Answers of particles to samples that are held at once while scoring."""

Row = dict[str, float]


@dataclass(frozen=True)
class FitState:
    """A fit that can be used, and gone on with."""

    cloud: PointCloud
    """The newest; with early stopping the one of the least validation risk."""
    newest: PointCloud
    generator: Tensor
    """State of the noise generator, bytes."""
    history: tuple[Row, ...] = ()
    """step, train_risk, validation_risk where there is such a part, ess, and h, beta, epsilon of the step
    that led there, at logged steps."""

    @property
    def best(self) -> Row:
        """The row of the least validation risk."""
        return min((row for row in self.history if "validation_risk" in row), key=lambda row: row["validation_risk"])


class FitInterrupted(KeyboardInterrupt):
    """A fit that the user interrupted, with what it had reached."""

    def __init__(self, fitted: FitState) -> None:
        super().__init__(f"interrupted after step {fitted.newest.step}")
        self.fitted = fitted


def split_seed(seed: int) -> tuple[int, int]:
    """Of cloud_0 and of the noise: each has a stream of its own."""
    of_cloud, of_noise = np.random.SeedSequence(seed).generate_state(2, np.uint32).tolist()
    return of_cloud, of_noise


def initial_cloud(neuron: Neuron, n_x: int, N: int, init_scale: float, seed: int) -> PointCloud:
    """cloud_0 of a seed, float64."""
    return draw_normal(neuron.coordinates(n_x), n_x, init_scale, N, torch.Generator().manual_seed(split_seed(seed)[0]))


def initial_fit(problem: Problem, settings: Settings, seed: int) -> FitState:
    """Before the first step."""
    assert settings.init_scale is not None, "selection has not filled in init_scale"
    cloud = initial_cloud(problem.neuron, problem.samples.X.shape[1], settings.N, settings.init_scale, seed)
    cloud = cloud.to("cpu", getattr(torch, settings.dtype))
    return FitState(cloud, cloud, torch.Generator().manual_seed(split_seed(seed)[1]).get_state())


@torch.no_grad()
def fit(
    problem: Problem,
    settings: Settings,
    *,
    seed: int,
    steps: int | None = None,
    start: FitState | None = None,
    threads: int | None = None,
    validation: Samples | None = None,
    patience: int | None = None,
    callback: Callable[[PointCloud, Row], None] = lambda cloud, row: None,
) -> FitState:
    """``steps`` recursions (those of the settings, if not said) from ``start``, or from the cloud_0 of ``seed``.

    Going on from what was fitted gives the bits of one longer fit, also after an ``Interrupted``. With a ``validation``
    part the cloud of its least risk is kept, and ``patience`` logged steps without a new one end the fit. ``callback``
    sees every logged step.
    """
    now = start or initial_fit(problem, settings, seed)
    number = steps if steps is not None else settings.steps
    assert number is not None, "neither the call nor the settings say how many steps"
    generator = torch.Generator()
    generator.set_state(now.generator)
    plan = settings.plan
    engine = "eager" if fused_obstacle(problem.neuron, "cpu") else "fused"
    advance = Stepper(problem, plan, engine, threads or torch.get_num_threads(), generator)
    dtype = now.newest.theta.dtype
    train = take_rows(problem.samples, torch.arange(min(len(problem.samples), MOST_SCORED))).to("cpu", dtype)
    held_out = None if validation is None else validation.to("cpu", dtype)
    cloud, best, history = now.newest, now.cloud, list(now.history)
    last = cloud.step + number
    state = now.generator

    def fitted() -> FitState:
        return FitState(best if held_out is not None else cloud, cloud, state, tuple(history))

    try:
        while cloud.step < last:
            after, _ = advance(cloud)
            # Together: an interrupted step leaves cloud and noise as they were before it.
            cloud, state = after, generator.get_state()
            if not (is_log_spaced(cloud.step, LOGGED_PER_DECADE) or cloud.step == last):
                continue
            hyper = plan.hyper_before(cloud)
            row = {"step": cloud.step, "train_risk": risk_of(problem.neuron, cloud, train)}
            if held_out is not None:
                row["validation_risk"] = risk_of(problem.neuron, cloud, held_out)
            row |= {"ess": float(effective_sample_size(cloud.log_rho))}
            row |= {"h": hyper.h, "beta": hyper.beta, "epsilon": hyper.epsilon}
            history.append(row)
            callback(cloud, row)
            if held_out is not None:
                rows = [each.get("validation_risk", np.inf) for each in history]
                since = len(rows) - 1 - int(np.argmin(rows))
                best = cloud if since == 0 else best
                if patience is not None and since >= patience:
                    break
    except KeyboardInterrupt as error:
        raise FitInterrupted(fitted()) from error
    return fitted()


def risk_of(neuron: Neuron, cloud: PointCloud, samples: Samples) -> float:
    """The risk of the weighted estimate, some rows at a time."""
    shares, total = torch.softmax(cloud.log_rho, dim=0)[:, None], 0.0
    piece = max(1, PIECE // len(cloud.theta))
    for first in range(0, len(samples), piece):
        rows = torch.arange(first, min(first + piece, len(samples)))
        part = take_rows(samples, rows) if len(rows) < len(samples) else samples
        f = neuron.respond(cloud.theta, part).over_particles(shares)[:, 0]
        total += float((part.y.reshape(-1) - f).square().double().sum())
    return total / len(samples)
