"""A baseline that uses Adam to train the two-layer network that the recursion trains.

The network f is the mean of N tanh neurons, initialised with the cloud that the recursion draws for the same seed. The
loss is the same as in the recursion, and the gradient of the risk is computed exactly from all rows. The scale of the
initial cloud, the learning rate and the number of steps are selected on held-out rows: candidates with at most 200
neurons are trained on three quarters of the training part and compared by their risk on the remaining quarter. Then the
network with all N neurons is trained on the whole training part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch

from proxlearn.baselines.proxlearn_networks import cloud_predictor, make_problem, network_settings
from proxlearn.baselines.registry import FittedMethod, Preset, Request
from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.samples import hold_out
from proxlearn.core.schedules import is_log_spaced
from proxlearn.training.fit import LOGGED_PER_DECADE, initial_cloud, risk_of
from proxlearn.training.settings import Settings
from proxlearn.training.successive_halving import MOST_PARTICLES, PATIENCE

CANDIDATES = tuple(product((1.0, 2.0), (0.1, 0.03)))
"""Candidate pairs of init_scale and learning rate."""
RUNGS = ((50, 4), (100, 2), (300, 1))
"""Number of steps per candidate and number of candidates in each round of successive halving, as the recursion used
them up to revision 3. Adam runs no rounds; only the total number of steps affects its fit."""
MAX_STEPS = sum(steps for steps, _ in RUNGS)
"""Largest number of steps that the selection can choose."""
DTYPE = torch.float32
READINGS = Hyper(beta=1.0, h=1.0, epsilon=1.0, drift="first_variation", prox_potential="first_variation")
"""Hyperparameters for which the drift is the gradient of the risk; beta, h and epsilon do not affect it."""


def settings(function: str, preset: Preset, dataset: str) -> dict[str, Any]:
    """Return all settings that affect the fit: those of the network, and the candidates and rules of the selection."""
    rules = network_settings() | {"rungs": RUNGS, "candidates": list(CANDIDATES), "most_steps": MAX_STEPS}
    return {"N": Settings().N, "dtype": str(DTYPE), **rules}


@dataclass(frozen=True)
class CandidateResult:
    """The hyperparameters of a candidate, and its risk on the held-out rows after ``steps`` steps of Adam."""

    risk: float
    init_scale: float
    rate: float
    steps: int


def fit(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    """Select the hyperparameters with held-out rows, then train the network with all N neurons on all rows."""
    problem, N = make_problem(X, y), Settings().N
    best = select_candidate(problem, N, request)
    request.progress(f"training: steps={best.steps}, N={N}")
    cloud = draw_initial_cloud(problem, N, best.init_scale, request.seed)
    samples = problem.samples.to("cpu", DTYPE)
    initial_risk = risk_of(problem, cloud, samples)
    *_, cloud = descend(problem, cloud, best.rate, best.steps)
    notes = {"N": N, "steps": best.steps, "rate": best.rate, "init_scale": best.init_scale}
    notes |= {"risk_before": initial_risk, "risk_after": risk_of(problem, cloud, samples)}
    return FittedMethod(cloud_predictor(problem.neuron, cloud), notes)


def select_candidate(problem: Risk, N: int, request: Request) -> CandidateResult:
    """Return the candidate and the number of steps with the lowest risk on a held-out quarter of the rows."""
    training, held_out = hold_out(problem.samples, request.seed)
    training_problem, held_out = problem.with_samples(training), held_out.to("cpu", DTYPE)
    best_results: list[CandidateResult] = []
    for number, (init_scale, rate) in enumerate(CANDIDATES):
        request.progress(f"selection: candidate {number + 1} of {len(CANDIDATES)}")
        results: list[CandidateResult] = []
        start = draw_initial_cloud(training_problem, min(N, MOST_PARTICLES), init_scale, request.seed)
        for cloud in descend(training_problem, start, rate, MAX_STEPS):
            results.append(CandidateResult(risk_of(problem, cloud, held_out), init_scale, rate, cloud.step))
            best = min(results, key=lambda result: result.risk)
            if len(results) - 1 - results.index(best) >= PATIENCE:
                break
        best_results.append(best)
    return min(best_results, key=lambda result: result.risk)


def draw_initial_cloud(problem: Risk, N: int, init_scale: float, seed: int) -> PointCloud:
    """Return the initial cloud that the recursion draws for this seed, converted to float32."""
    return initial_cloud(problem.neuron, problem.samples.X.shape[1], N, init_scale, seed).to("cpu", DTYPE)


@torch.no_grad()
def descend(problem: Risk, cloud: PointCloud, rate: float, steps: int) -> Iterator[PointCloud]:
    """Run Adam from ``cloud`` with constant weights rho; yield the cloud at log-spaced steps and at the last step."""
    problem = problem.to("cpu", cloud.theta.dtype)
    theta = torch.nn.Parameter(cloud.theta.clone())
    adam = torch.optim.Adam([theta], lr=rate)
    for step in range(1, steps + 1):
        # The gradient of the risk is multiplied by N. Adam is invariant to this factor, and its epsilon stays
        # negligible.
        theta.grad = problem.potentials(theta.detach(), cloud.rho, READINGS).gradient
        adam.step()
        if is_log_spaced(step, LOGGED_PER_DECADE) or step == steps:
            yield replace(cloud, theta=theta.detach().clone(), step=step)
