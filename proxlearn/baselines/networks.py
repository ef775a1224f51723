"""Two-layer tanh networks of the same width, trained by the recursion with each of its weight updates.

Each is what `proxlearn train recipe=tuned weights=...` fits: the selection sees the training part alone, for each
update by itself, and the fit goes over the whole training part from the same cloud_0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, get_args

import numpy as np
import torch

from proxlearn.baselines.method import FittedMethod, Predictor, Preset, Request
from proxlearn.config import schema
from proxlearn.core.cloud import PointCloud
from proxlearn.core.metrics import effective_sample_size
from proxlearn.core.neurons.neuron import Neuron
from proxlearn.core.neurons.registry import NEURONS
from proxlearn.core.options import Weights
from proxlearn.core.problem import Problem
from proxlearn.core.samples import Samples
from proxlearn.core.tasks import TASKS
from proxlearn.data.scaling import none
from proxlearn.predict.model import Model
from proxlearn.training import trainer as recursion
from proxlearn.training.settings import Settings
from proxlearn.training.successive_halving import CANDIDATES, FEWEST_ROWS, MOST_PARTICLES, PATIENCE, RUNGS, select

CLASSES = ("-1", "+1")
NEURON = "tanh_outputs"


def problem_of(X: np.ndarray, y: np.ndarray) -> Problem:
    """Rows and their classes, -1 and +1, with the neuron that recipe=tuned takes for two classes."""
    neuron = NEURONS[NEURON](len(CLASSES))
    labels = torch.from_numpy(y > 0).long()
    return Problem(neuron, Samples(torch.from_numpy(X), neuron.targets(labels), labels))


def predictor(neuron: Neuron, cloud: PointCloud) -> Predictor:
    """The weighted estimate's probabilities, in float64, as `proxlearn predict` gives them."""

    def probability(X: np.ndarray) -> np.ndarray:
        # The rows come scaled, and a class has no units.
        scaler, target_scaler = none(X), none(np.empty((0, 1)))
        whole = cloud.to("cpu", torch.float64)
        model = Model(neuron, TASKS["binary"], whole, scaler, target_scaler, columns=(), classes=CLASSES)
        found: np.ndarray = model.predict(X).probabilities[:, 1]
        return found

    return probability


def _by(weights: Weights) -> Callable[[np.ndarray, np.ndarray, Request], FittedMethod]:
    def fit(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
        problem, base = problem_of(X, y), Settings(weights=weights)
        found = select(problem, base, seed=request.seed, threads=request.threads, progress=request.progress)
        request.progress(f"{found.settings.steps} recursions of {base.N} particles")
        cloud = recursion.fit(problem, found.settings, seed=request.seed, threads=request.threads).cloud
        chosen = asdict(found.settings)
        notes = {name: chosen[name] for name in ("N", "steps", *CANDIDATES[0])}
        notes["effective_sample_size"] = float(effective_sample_size(cloud.log_rho))
        return FittedMethod(predictor(problem.neuron, cloud), notes)

    return fit


def settings(function: str, preset: Preset, dataset: str) -> dict[str, Any]:
    """The fit's settings, and the candidates and rules of the selection that fills in what is None."""
    (weights,) = (each for each in get_args(Weights) if each == function)
    base = {
        name: value
        for name, value in asdict(Settings(weights=weights)).items()
        # A setting that was added later has a value that changes nothing, under which earlier results stand.
        if name not in schema.ADDED_KEYS or value != schema.ADDED_KEYS[name]
    }
    return base | {"neuron": NEURON, "candidates": list(CANDIDATES), **selection_rules()}


def selection_rules() -> dict[str, Any]:
    """What the selections of all networks share."""
    return {"rungs": RUNGS, "patience": PATIENCE, "most_particles": MOST_PARTICLES, "fewest_rows": FEWEST_ROWS}


proximal = _by("proximal")
uniform = _by("uniform")
fisher_rao = _by("fisher_rao")
