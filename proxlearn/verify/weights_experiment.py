"""The design of the experiment on whether weights lower the risk of a network, and the fits of one of its jobs."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proxlearn import flow as recursion
from proxlearn.config.compose import compose, parse
from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.schedules import neighbour_quantile
from proxlearn.data import registry
from proxlearn.errors import RunError
from proxlearn.run.config_validation import validate_config
from proxlearn.verify.pieces import rounded

DESIGN = """\
**Question.** Is there a setting in which proximal weights lower the test risk of a small network in low dimension?

**Problems.** teacher-1, teacher-2, teacher-4: x ~ N(0, I) with 1, 2 or 4 features, a teacher of five tanh neurons, 200
training rows with noise of standard deviation 0.1, 1000 test rows without noise; sine: sin(x) on [-pi, pi], 100
training rows with the same noise, 1000 without; banana: 500 training and 500 test rows drawn from its 5300,
standardised, targets -1 and +1. For each seed, the first four problems draw new data, a new cloud and new noise, and
the first three also draw a new teacher; banana draws new rows, a new cloud and new noise.

**Fits.** N = 20, 50, 200 tanh neurons, a ~ N(0, 1), b ~ N(0, 4), w ~ N(0, 4 / n_x), quadratic loss, h = 0.2,
400 recursions, drift and prox_potential = first_variation, orientation = consistent, tolerance = log. The noise has
the temperature 1e-4 in all fits (set by noise_scale). epsilon is 1 or 4 times the median squared distance to the
nearest particle in the initial cloud; kappa = beta epsilon / h is 0.1, 1, 10 or 100; and beta follows from h, epsilon
and kappa. Four updates start from the same cloud and use the same noise: uniform, proximal, fisher_rao, and resampling
(fisher_rao with systematic resampling at half the effective sample size). Only the update, epsilon and beta differ
between the fits.

**Measurement.** log(test risk / test risk with uniform weights), for the weighted estimate: (a) at equal recursions,
after 400 recursions of both; (b) at equal time, after 400 recursions of the update and as many recursions of uniform
weights as take the same processor time (one thread, same process, without compilation, at most 1600).

**Test.** A cell has 20 paired seeds; Student's t tests the mean of the logarithms. Each update and comparison is one
family of 5 x 3 x 2 x 4 = 120 cells (problems, N, epsilon, kappa), with simultaneous intervals (Bonferroni, 95 % per
family). The seeds of banana share rows, so its variance is Nadeau and Bengio's with test/training = 1. A cell counts as
*helps* (*hurts*) if its whole interval is below (above) 0. A fit whose risk is above 100 or not finite has diverged; a
cell with such a fit has no interval and is counted separately. No cell is left out, and no setting is added afterwards.
"""
REVISION = 1
"""Revision of the experiment, increased whenever the design or the results of a fit change."""
PROBLEMS = ("teacher-1", "teacher-2", "teacher-4", "sine", "banana")
SIZES = (20, 50, 200)
MULTIPLES = (1.0, 4.0)
KAPPAS = (0.1, 1.0, 10.0, 100.0)
SEEDS = 20
UPDATES = ("proximal", "fisher_rao", "resampling")
h, STEPS, TEMPERATURE, INITIAL_SCALE = 0.2, 400, 1e-4, 2.0
LONGEST = 4
"""Length of the fit with uniform weights, as a multiple of STEPS."""
DIVERGED = 100.0
TEACHER_NEURONS, NOISE, BANANA_ROWS = 5, 0.1, 500


def make_problem(name: str, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return X and y of the training rows, then of the test rows."""
    rng = np.random.default_rng((seed, PROBLEMS.index(name)))
    if name == "banana":
        return _banana_rows(rng)
    if name == "sine":
        X, X_test = rng.uniform(-math.pi, math.pi, (100, 1)), np.linspace(-math.pi, math.pi, 1000)[:, None]
        y, y_test = np.sin(X[:, 0]), np.sin(X_test[:, 0])
    else:
        n_x = int(name.partition("-")[2])
        a, b = rng.normal(size=TEACHER_NEURONS), rng.normal(size=TEACHER_NEURONS)
        w = rng.normal(size=(n_x, TEACHER_NEURONS)) * 2 / math.sqrt(n_x)
        X, X_test = rng.normal(size=(200, n_x)), rng.normal(size=(1000, n_x))
        y, y_test = (np.tanh(rows @ w + b) @ a / math.sqrt(TEACHER_NEURONS) for rows in (X, X_test))
    y = y + NOISE * rng.normal(size=len(y))
    return torch.from_numpy(X), torch.from_numpy(y), torch.from_numpy(X_test), torch.from_numpy(y_test)


def _banana_rows(rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    table = banana_table()
    order = torch.from_numpy(rng.permutation(len(table.X)))
    X, y = torch.as_tensor(table.X).double(), 2 * torch.as_tensor(table.target).double() - 1
    train, test = order[:BANANA_ROWS], order[BANANA_ROWS : 2 * BANANA_ROWS]
    mean, deviation = X[train].mean(0), X[train].std(0)
    return (X[train] - mean) / deviation, y[train], (X[test] - mean) / deviation, y[test]


def banana_table() -> Any:
    """Return the table of the dataset banana; raise InputError with the remedy if its file is absent."""
    return registry.load(validate_config(compose(parse(["dataset=banana"]))).dataset)


def measure(problem: str, N: int, seed: int) -> dict[str, Any]:
    """Return the results for one problem, N and seed: the risks of all updates, and the processor times of a step.

    The results of a cell have the key "MULTIPLE KAPPA" and contain the risk and the time per step of every update, in
    the order of UPDATES.
    """
    X, y, X_test, y_test = make_problem(problem, seed)
    risk = Risk(X, y)
    cloud = recursion.init(risk, N, seed, scale=INITIAL_SCALE, dtype=torch.float64)
    distance = neighbour_quantile(cloud.theta, 0.5)
    assert distance is not None

    def fit(update: str, epsilon: float, beta: float, recorded: list[int]) -> dict[str, Any]:
        hyper = Hyper(
            beta=beta,
            h=h,
            epsilon=epsilon,
            drift="first_variation",
            prox_potential="first_variation",
            orientation="consistent",
            tolerance="log",
            weights="fisher_rao" if update == "resampling" else update,
            resample="systematic" if update == "resampling" else "none",
            noise_scale=math.sqrt(beta * TEMPERATURE),
        )
        return _timed_fit(risk, cloud, hyper, recorded, seed, X_test, y_test)

    later = sorted({round(STEPS * 2 ** (j / 8)) for j in range(8 * round(math.log2(LONGEST)) + 1)})
    uniform = fit("uniform", 1.0, 1.0, later)
    cells = {}
    for multiple, kappa in itertools.product(MULTIPLES, KAPPAS):
        epsilon = multiple * distance
        fits = [fit(update, epsilon, kappa * h / epsilon, [STEPS]) for update in UPDATES]
        cells[f"{multiple:g} {kappa:g}"] = [[one["risks"][0], one["seconds"]] for one in fits]
    return dict(rounded({"uniform": uniform | {"steps": later}, "cells": cells}))


def _timed_fit(
    risk: Risk, cloud: PointCloud, hyper: Hyper, recorded: list[int], seed: int, X: Tensor, y: Tensor
) -> dict[str, Any]:
    """Return the test risks at the recorded steps (None if the fit has diverged) and the processor time per step."""
    for _ in recursion.iterate(risk, cloud, hyper, 3, seed=seed, threads=1):
        pass
    risks: list[float | None] = []
    seconds, last = 0.0, cloud
    iterates = recursion.iterate(risk, cloud, hyper, recorded[-1], seed=seed, threads=1)
    try:
        for step in recorded:
            start = time.thread_time()
            while last.step < step:
                last, _ = next(iterates)
            seconds += time.thread_time() - start
            error = float((risk.predict(last, X) - y).square().mean())
            risks.append(error if error <= DIVERGED else None)
    except RunError:
        risks += [None] * (len(recorded) - len(risks))
    return {"risks": risks, "seconds": seconds / max(last.step, 1)}
