"""Adam on the same two-layer network: what anybody would try first.

f is the mean of N tanh neurons, started from the cloud_0 of the same seed, and the risk is the mean squared error, as
for the recursion; the gradient is exact and over all rows. The scale of the initial cloud, the learning rate and the
number of steps are chosen as in training/successive_halving.py: candidates of at most 200 neurons are trained on three
quarters of the training part and compared by their risk on the last quarter; then the full width is trained on all of
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch

from proxlearn.baselines.method import FittedMethod, Preset, Request
from proxlearn.baselines.networks import NEURON, predictor, problem_of, selection_rules
from proxlearn.core.cloud import PointCloud
from proxlearn.core.problem import Problem
from proxlearn.core.risk import potentials
from proxlearn.core.schedules import is_log_spaced
from proxlearn.training.settings import Settings
from proxlearn.training.successive_halving import MOST_PARTICLES, PATIENCE, RUNGS, hold_out
from proxlearn.training.trainer import LOGGED_PER_DECADE, initial_cloud, risk_of

CANDIDATES = tuple(product((1.0, 2.0), (0.1, 0.03)))
"""init_scale, learning rate."""
MOST_STEPS = sum(steps for steps, _ in RUNGS)
"""What the recursion's own selection may come to."""
DTYPE = torch.float32


def settings(function: str, preset: Preset, dataset: str) -> dict[str, Any]:
    rules = selection_rules() | {"candidates": list(CANDIDATES), "most_steps": MOST_STEPS}
    return {"N": Settings().N, "neuron": NEURON, "dtype": str(DTYPE), **rules}


@dataclass(frozen=True)
class Choice:
    """A candidate after some steps, with its risk on the held-out rows."""

    risk: float
    init_scale: float
    rate: float
    steps: int


def fit(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    problem, N = problem_of(X, y), Settings().N
    chosen = choose(problem, N, request)
    request.progress(f"{chosen.steps} steps of {N} neurons")
    cloud = begin(problem, N, chosen.init_scale, request.seed)
    samples = problem.samples.to("cpu", DTYPE)
    before = risk_of(problem.neuron, cloud, samples)
    *_, cloud = descend(problem, cloud, chosen.rate, chosen.steps)
    notes = {"N": N, "steps": chosen.steps, "rate": chosen.rate, "init_scale": chosen.init_scale}
    notes |= {"risk_before": before, "risk_after": risk_of(problem.neuron, cloud, samples)}
    return FittedMethod(predictor(problem.neuron, cloud), notes)


def choose(problem: Problem, N: int, request: Request) -> Choice:
    """The candidate and the step of the least risk on a held-out quarter of the training part."""
    training, held_out = hold_out(problem.samples, request.seed)
    part, unseen = Problem(problem.neuron, training), held_out.to("cpu", DTYPE)
    best: list[Choice] = []
    for number, (init_scale, rate) in enumerate(CANDIDATES):
        request.progress(f"selection: candidate {number + 1} of {len(CANDIDATES)}")
        met: list[Choice] = []
        start = begin(part, min(N, MOST_PARTICLES), init_scale, request.seed)
        for cloud in descend(part, start, rate, MOST_STEPS):
            met.append(Choice(risk_of(problem.neuron, cloud, unseen), init_scale, rate, cloud.step))
            least = min(met, key=lambda each: each.risk)
            if len(met) - 1 - met.index(least) >= PATIENCE:
                break
        best.append(least)
    return min(best, key=lambda each: each.risk)


def begin(problem: Problem, N: int, init_scale: float, seed: int) -> PointCloud:
    return initial_cloud(problem.neuron, problem.samples.X.shape[1], N, init_scale, seed).to("cpu", DTYPE)


@torch.no_grad()
def descend(problem: Problem, cloud: PointCloud, rate: float, steps: int) -> Iterator[PointCloud]:
    """Adam from a cloud whose weights stay: the cloud at log-spaced steps, and after the last."""
    problem = problem.to("cpu", cloud.theta.dtype)
    theta = torch.nn.Parameter(cloud.theta.clone())
    adam = torch.optim.Adam([theta], lr=rate)
    for step in range(1, steps + 1):
        # The risk's gradient times N, which makes no difference to Adam but that its own epsilon stays small beside it.
        theta.grad = potentials(problem, theta.detach(), cloud.rho, "first_variation").gradient
        adam.step()
        if is_log_spaced(step, LOGGED_PER_DECADE) or step == steps:
            yield replace(cloud, theta=theta.detach().clone(), step=step)
