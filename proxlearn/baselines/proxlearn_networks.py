"""Two-layer tanh networks of the same width, trained by the recursion with each of the three weight updates.

Each network is fitted in the same way as by `proxlearn train recipe=tuned weights=...`: the hyperparameters are
selected on the training part, separately for each update, and the network is then trained on the whole training part.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, get_args

import numpy as np
import torch

from proxlearn.baselines.registry import FitFunction, FittedMethod, Predictor, Preset, Request
from proxlearn.config import schema
from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.losses import RECOMMENDED_LOSSES, find_loss, with_link
from proxlearn.core.metrics import effective_sample_size
from proxlearn.core.neurons.neuron import Neuron
from proxlearn.core.neurons.registry import make_neuron
from proxlearn.core.options import Weights
from proxlearn.core.samples import Samples
from proxlearn.core.tasks import TASKS
from proxlearn.data.scaling import none
from proxlearn.predict.model import Model
from proxlearn.training import fit as recursion
from proxlearn.training.candidates import CANDIDATES, scaled_candidates
from proxlearn.training.settings import Settings
from proxlearn.training.successive_halving import (
    FEWEST_ROWS,
    FEWEST_STEPS,
    LEAST_GAIN,
    MOST_PARTICLES,
    NEAR_END,
    PATIENCE,
    REFINED_H,
    RUNGS,
    STEPS_PER_ROW,
    select,
)

CLASSES = ("-1", "+1")
NEURON = "tanh_outputs"
LOSS = RECOMMENDED_LOSSES["binary"]


def make_problem(X: np.ndarray, y: np.ndarray) -> Risk:
    """Return the learning problem for rows X and labels -1 and +1, with the neuron that recipe=tuned uses."""
    neuron = make_neuron(NEURON, len(CLASSES), None)
    labels = torch.from_numpy(y > 0).long()
    return Risk.from_samples(neuron, Samples(torch.from_numpy(X), neuron.targets(labels), labels), find_loss(LOSS))


def cloud_predictor(neuron: Neuron, cloud: PointCloud, link_slope: float | None = None) -> Predictor:
    """Return a predictor that evaluates the network of ``cloud`` in float64, as `proxlearn predict` does."""
    task = TASKS["binary"](with_link(find_loss(LOSS), link_slope))

    def probability(X: np.ndarray) -> np.ndarray:
        # The rows are already scaled, and class labels need no scaling.
        scaler, target_scaler = none(X), none(np.empty((0, 1)))
        cloud64 = cloud.to("cpu", torch.float64)
        model = Model(neuron, task, cloud64, scaler, target_scaler, columns=(), classes=CLASSES)
        probabilities: np.ndarray = model.predict(X).probabilities[:, 1]
        return probabilities

    return probability


def _make_fit(weights: Weights) -> FitFunction:
    def fit(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
        problem, base = make_problem(X, y), Settings(weights=weights)
        selection = select(
            problem, base, seed=request.seed, threads=request.threads, rungs=RUNGS, progress=request.progress
        )
        request.progress(f"training: steps={selection.settings.steps}, N={base.N}")
        cloud = recursion.fit(problem, selection.settings, seed=request.seed, threads=request.threads).cloud
        selected = asdict(selection.settings)
        notes = {name: selected[name] for name in ("N", "steps", *CANDIDATES[0])}
        notes["effective_sample_size"] = float(effective_sample_size(cloud.log_rho))
        return FittedMethod(cloud_predictor(problem.neuron, cloud, selection.link_slope), notes)

    return fit


def settings(function: str, preset: Preset, dataset: str) -> dict[str, Any]:
    """Return all settings that affect the fit.

    Settings that are None are chosen by the selection, whose candidates and rules are included in the result.
    """
    (weights,) = (update for update in get_args(Weights) if update == function)
    base = {
        name: value
        for name, value in asdict(Settings(weights=weights)).items()
        # A setting that was added later is left out if it has its default value, so that earlier results keep their
        # key.
        if name not in schema.ADDED_KEYS or value != schema.ADDED_KEYS[name]
    }
    rules = {"rungs": RUNGS, "least_gain": LEAST_GAIN, "fewest_steps": FEWEST_STEPS, "refined_h": REFINED_H}
    rules |= {"steps_per_row": STEPS_PER_ROW, "near_end": NEAR_END}
    return base | network_settings() | rules | {"candidates": list(scaled_candidates(find_loss(LOSS), CANDIDATES))}


def network_settings() -> dict[str, Any]:
    """Return the neuron, the loss and the selection rules that the recursion and Adam have in common."""
    rules = {"patience": PATIENCE, "most_particles": MOST_PARTICLES, "fewest_rows": FEWEST_ROWS}
    return {"neuron": NEURON, "loss": LOSS, **rules}


proximal = _make_fit("proximal")
uniform = _make_fit("uniform")
fisher_rao = _make_fit("fisher_rao")
