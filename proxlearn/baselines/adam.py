"""Adam on the same two-layer network: the standard optimiser as a baseline.

f is the mean of N tanh neurons, started from the cloud_0 of the same seed, and the risk is the mean squared error, as
for the recursion; the gradient is exact and over all rows. The scale of the initial cloud, the learning rate and the
number of steps are selected as in training/successive_halving.py: candidates of at most 200 neurons are trained on
three quarters of the training part and compared by their risk on the last quarter; then the full width is trained on
the whole training part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch

from proxlearn.baselines.method import FittedMethod, Preset, Request
from proxlearn.baselines.networks import NEURON, cloud_predictor, make_problem, selection_rules
from proxlearn.core.cloud import PointCloud
from proxlearn.core.problem import Problem
from proxlearn.core.risk import potentials
from proxlearn.core.schedules import is_log_spaced
from proxlearn.training.settings import Settings
from proxlearn.training.successive_halving import MOST_PARTICLES, PATIENCE, RUNGS, hold_out
from proxlearn.training.trainer import LOGGED_PER_DECADE, initial_cloud, risk_of

CANDIDATES = tuple(product((1.0, 2.0), (0.1, 0.03)))
"""Pairs of init_scale and learning rate."""
MAX_STEPS = sum(steps for steps, _ in RUNGS)
"""The most steps that the recursion's own selection can choose."""
DTYPE = torch.float32


def settings(function: str, preset: Preset, dataset: str) -> dict[str, Any]:
    """Return the network's settings, and the candidates and rules of the selection."""
    rules = selection_rules() | {"candidates": list(CANDIDATES), "most_steps": MAX_STEPS}
    return {"N": Settings().N, "neuron": NEURON, "dtype": str(DTYPE), **rules}


@dataclass(frozen=True)
class CandidateResult:
    """A candidate after ``steps`` steps, with its risk on the held-out rows."""

    risk: float
    init_scale: float
    rate: float
    steps: int


def fit(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    """Select the candidate, then train the full width on all rows."""
    problem, N = make_problem(X, y), Settings().N
    best = select_candidate(problem, N, request)
    request.progress(f"{best.steps} steps of {N} neurons")
    cloud = draw_initial_cloud(problem, N, best.init_scale, request.seed)
    samples = problem.samples.to("cpu", DTYPE)
    initial_risk = risk_of(problem.neuron, cloud, samples)
    *_, cloud = descend(problem, cloud, best.rate, best.steps)
    notes = {"N": N, "steps": best.steps, "rate": best.rate, "init_scale": best.init_scale}
    notes |= {"risk_before": initial_risk, "risk_after": risk_of(problem.neuron, cloud, samples)}
    return FittedMethod(cloud_predictor(problem.neuron, cloud), notes)


def select_candidate(problem: Problem, N: int, request: Request) -> CandidateResult:
    """Return the candidate and the step with the least risk on a held-out quarter of the training part."""
    training, held_out = hold_out(problem.samples, request.seed)
    training_problem, held_out = Problem(problem.neuron, training), held_out.to("cpu", DTYPE)
    best_results: list[CandidateResult] = []
    for number, (init_scale, rate) in enumerate(CANDIDATES):
        request.progress(f"selection: candidate {number + 1} of {len(CANDIDATES)}")
        results: list[CandidateResult] = []
        start = draw_initial_cloud(training_problem, min(N, MOST_PARTICLES), init_scale, request.seed)
        for cloud in descend(training_problem, start, rate, MAX_STEPS):
            results.append(CandidateResult(risk_of(problem.neuron, cloud, held_out), init_scale, rate, cloud.step))
            best = min(results, key=lambda result: result.risk)
            if len(results) - 1 - results.index(best) >= PATIENCE:
                break
        best_results.append(best)
    return min(best_results, key=lambda result: result.risk)


def draw_initial_cloud(problem: Problem, N: int, init_scale: float, seed: int) -> PointCloud:
    """Return cloud_0 of the recursion with this seed, in Adam's precision."""
    return initial_cloud(problem.neuron, problem.samples.X.shape[1], N, init_scale, seed).to("cpu", DTYPE)


@torch.no_grad()
def descend(problem: Problem, cloud: PointCloud, rate: float, steps: int) -> Iterator[PointCloud]:
    """Run Adam from a cloud, whose weights rho stay constant; yield it at log-spaced steps and at the last one."""
    problem = problem.to("cpu", cloud.theta.dtype)
    theta = torch.nn.Parameter(cloud.theta.clone())
    adam = torch.optim.Adam([theta], lr=rate)
    for step in range(1, steps + 1):
        # The risk's gradient times N: Adam is invariant to the factor, and its epsilon stays small relative to it.
        theta.grad = potentials(problem, theta.detach(), cloud.rho, "first_variation").gradient
        adam.step()
        if is_log_spaced(step, LOGGED_PER_DECADE) or step == steps:
            yield replace(cloud, theta=theta.detach().clone(), step=step)
