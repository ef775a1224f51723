"""Code shared by the samplers, which draw samples from a posterior and average the predictions over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from proxlearn.baselines.logistic_target import (
    ALPHA_RATE,
    MAX_LOG_ALPHA,
    LogisticTarget,
    Potential,
    positive_probability,
)
from proxlearn.baselines.registry import FittedMethod, Preset, Request, SettingsFunction
from proxlearn.errors import InputError, RunError

if TYPE_CHECKING:
    # The module _typeshed exists only for type checkers, not at run time.
    from _typeshed import DataclassInstance

NUM_SAMPLES = 4096
"""Number of posterior samples over which a prediction averages."""
RELATIVE_TOLERANCE = 1e-6
"""Largest relative increase of the functional that is attributed to rounding."""

SettingsT = TypeVar("SettingsT", bound="DataclassInstance")
SampleResult = tuple[Tensor, dict[str, Any]]
"""Samples (count x D), and notes about the sampling."""
SampleFunction = Callable[[LogisticTarget, torch.Generator], SampleResult]
Ledger = list[dict[str, Any]]
"""Values of the functional E[V] + T E[log rho], with one row per outer step."""


def fit_sampler(X: np.ndarray, y: np.ndarray, request: Request, sample: SampleFunction) -> FittedMethod:
    """Sample the posterior given the rows, and return a predictor that averages over the samples.

    The computation uses float32, one random generator and the requested number of threads.
    """
    features = torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32))
    labels = torch.from_numpy(np.asarray(y, dtype=np.float32))
    target = LogisticTarget(-labels[:, None] * features)
    with _thread_count(request.threads), torch.no_grad():
        x, notes = sample(target, torch.Generator().manual_seed(request.seed))
    theta = x[:, :-1].contiguous()
    notes |= {
        "samples": len(x),
        "temperature": request.temperature,
        "theta_mean": theta.mean(0).tolist(),
        "theta_std": theta.std(0).tolist(),
        "alpha_mean": float(x[:, -1].exp().mean()),
        "clipped": float((x[:, -1].abs() > MAX_LOG_ALPHA).double().mean()),
    }

    def predict(X: np.ndarray) -> np.ndarray:
        features = torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32))
        with _thread_count(request.threads):
            probabilities: np.ndarray = positive_probability(theta, features).double().numpy()
        return probabilities

    return FittedMethod(predict, notes)


def request_settings(request: Request, light: SettingsT, paper: Mapping[str, SettingsT] | SettingsT) -> SettingsT:
    """Return the settings of the requested preset or, for a trial, the light settings with one step of each kind."""
    if request.trial:
        lengths = {"steps", "iterations", "between"} & {field.name for field in fields(light)}
        return replace(light, **dict.fromkeys(lengths, 1))
    return preset_settings(request.preset, request.dataset, light, paper)


def preset_settings(
    preset: Preset, dataset: str, light: SettingsT, paper: Mapping[str, SettingsT] | SettingsT
) -> SettingsT:
    """Return the settings of a preset; raise InputError if ``paper`` has no settings for the dataset."""
    if preset == "light":
        return light
    if not isinstance(paper, Mapping):
        return paper
    if dataset not in paper:
        raise InputError(
            f"there are no published settings for the dataset {dataset} (only for {', '.join(paper)})",
            "choose --preset light",
        )
    return paper[dataset]


def make_settings_function(light: SettingsT, paper: Mapping[str, SettingsT] | SettingsT) -> SettingsFunction:
    """Return the function ``settings`` for a sampler's module; it returns the settings of a preset as plain values."""
    return lambda function, preset, dataset: (
        asdict(preset_settings(preset, dataset, light, paper)) | {"samples": NUM_SAMPLES}
    )


def draw_standard_normal(count: int, dim: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw ``count`` particles from rho_0 = N(0, I), and return them with the values of log rho_0."""
    x = torch.randn(count, dim, generator=generator)
    return x, log_normal_density(x)


def draw_prior(count: int, dim: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw ``count`` particles from the prior rho_0(theta, log alpha), and return them with the values of log rho_0.

    theta is drawn given the clipped log alpha, but the particle keeps the unclipped value. Otherwise, 3 % of the
    particles would share one value of log alpha, and the distribution would have no density.
    """
    alpha = torch.empty(count).exponential_(ALPHA_RATE, generator=generator)
    log_alpha = alpha.log()
    clipped = log_alpha.clamp(-MAX_LOG_ALPHA, MAX_LOG_ALPHA)
    z = torch.randn(count, dim - 1, generator=generator)
    x = torch.cat((z * (-clipped / 2).exp()[:, None], log_alpha[:, None]), dim=1)
    log_rho = log_normal_density(z) + (dim - 1) / 2 * clipped + math.log(ALPHA_RATE) - ALPHA_RATE * alpha + log_alpha
    return x, log_rho


def log_normal_density(z: Tensor) -> Tensor:
    """Return the log density of N(0, I) at each row of z."""
    return -z.square().sum(1) / 2 - z.shape[1] / 2 * math.log(2 * math.pi)


def whitening_factor(target: LogisticTarget) -> Tensor:
    """Return the lower triangular L such that L L' is the inverse Hessian of V at the mode.

    In the coordinates v with x = L v, the posterior has about the same scale in all directions.
    """
    _, covariance = target.laplace()
    L: Tensor = torch.linalg.cholesky(covariance)
    return L.to(target.A.dtype)


def clip_rows(drift: Tensor) -> Tensor:
    """Return ``drift`` with every row that is longer than 1 scaled to length 1."""
    length: Tensor = torch.linalg.vector_norm(drift, dim=1, keepdim=True)
    return drift / length.clamp(min=1.0)


def append_ledger_row(target: Potential, x: Tensor, log_rho: Tensor | None, temperature: float, ledger: Ledger) -> None:
    """Append a row with the functional E[V] + T E[log rho] to the ledger, and record whether the functional decreased.

    If ``log_rho`` is None, the density is unknown. The entropy is then replaced by an upper bound, the entropy of the
    Gaussian with the same covariance, so the row contains a lower bound of the functional. Raise RunError if the
    functional is not finite.
    """
    potential = float(target.value(x).double().mean())
    mean_log_rho = -_gaussian_entropy(x) if log_rho is None else float(log_rho.double().mean())
    functional = potential + temperature * mean_log_rho
    if not math.isfinite(functional):
        raise RunError(
            f"the particles diverged at step {len(ledger)}",
            "standardise the features (--protocol matched), or choose another --preset or --temperature",
        )
    row: dict[str, Any] = {"step": len(ledger), "functional": functional, "potential": potential}
    if ledger:
        previous = ledger[-1]["functional"]
        row["decreased"] = functional <= previous + RELATIVE_TOLERANCE * abs(previous)
    ledger.append(row)


def _gaussian_entropy(x: Tensor) -> float:
    covariance = torch.cov(x.double().T)
    return float(torch.logdet(2 * math.pi * math.e * covariance)) / 2


@contextmanager
def _thread_count(count: int) -> Iterator[None]:
    """Set the number of torch threads to ``count`` inside the ``with`` block."""
    previous = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(previous)
