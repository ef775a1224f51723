"""The frame around every sampler of block B: rows in, a target to descend, samples out, probabilities from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from proxlearn.baselines.logistic_target import LARGEST, RATE, LogisticTarget, Potential, probability
from proxlearn.baselines.method import FittedMethod, Preset, Request, SettingsOf
from proxlearn.errors import InputError, RunError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SAMPLES = 4096
"""Of the posterior, behind every prediction."""
CLOSE = 1e-6
"""Relative rise of the functional that still counts as none: rounding."""

Plan = TypeVar("Plan", bound="DataclassInstance")
Sampled = tuple[Tensor, dict[str, Any]]
"""Samples, count x D, and notes."""
Sample = Callable[[LogisticTarget, torch.Generator], Sampled]
Ledger = list[dict[str, Any]]
"""The functional after each outer step."""


def fit_sampler(X: np.ndarray, y: np.ndarray, request: Request, sample: Sample) -> FittedMethod:
    """Sample the posterior of these rows; float32, one generator, the requested number of threads."""
    rows = torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32))
    labels = torch.from_numpy(np.asarray(y, dtype=np.float32))
    target = LogisticTarget(-labels[:, None] * rows)
    with _threads(request.threads), torch.no_grad():
        x, notes = sample(target, torch.Generator().manual_seed(request.seed))
    theta = x[:, :-1].contiguous()
    notes |= {
        "samples": len(x),
        "temperature": request.temperature,
        "theta_mean": theta.mean(0).tolist(),
        "theta_std": theta.std(0).tolist(),
        "alpha_mean": float(x[:, -1].exp().mean()),
        "clipped": float((x[:, -1].abs() > LARGEST).double().mean()),
    }

    def answer(new: np.ndarray) -> np.ndarray:
        asked = torch.from_numpy(np.ascontiguousarray(new, dtype=np.float32))
        with _threads(request.threads):
            found: np.ndarray = probability(theta, asked).double().numpy()
        return found

    return FittedMethod(answer, notes)


def choose(request: Request, light: Plan, paper: Mapping[str, Plan] | Plan) -> Plan:
    """The plan of a request's preset."""
    if request.trial:
        lengths = {"steps", "iterations", "between"} & {field.name for field in fields(light)}
        return replace(light, **dict.fromkeys(lengths, 1))
    return sampler_settings(request.preset, request.dataset, light, paper)


def sampler_settings(preset: Preset, dataset: str, light: Plan, paper: Mapping[str, Plan] | Plan) -> Plan:
    """The plan of a preset: ``light`` for any dataset, ``paper`` for any or for those that were published."""
    if preset == "light":
        return light
    if not isinstance(paper, Mapping):
        return paper
    if dataset not in paper:
        raise InputError(
            f"no published settings for dataset={dataset} (only {', '.join(paper)})", "use the preset light"
        )
    return paper[dataset]


def settings_dict(light: Plan, paper: Mapping[str, Plan] | Plan) -> SettingsOf:
    """A sampler module's ``settings``: the preset's plan."""
    return lambda function, preset, dataset: (
        asdict(sampler_settings(preset, dataset, light, paper)) | {"samples": SAMPLES}
    )


def standard_normal(count: int, dim: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Particles of rho_0 = N(0, I), and log rho_0 at them."""
    x = torch.randn(count, dim, generator=generator)
    return x, log_normal(x)


def prior(count: int, dim: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Particles of the prior, rho_0(theta, log alpha), and log rho_0 at them.

    theta uses the clipped log alpha. The particle keeps the other: clipped, 3 % would share one value, without density.
    """
    alpha = torch.empty(count).exponential_(RATE, generator=generator)
    log_alpha = alpha.log()
    clipped = log_alpha.clamp(-LARGEST, LARGEST)
    z = torch.randn(count, dim - 1, generator=generator)
    x = torch.cat((z * (-clipped / 2).exp()[:, None], log_alpha[:, None]), dim=1)
    return x, log_normal(z) + (dim - 1) / 2 * clipped + math.log(RATE) - RATE * alpha + log_alpha


def log_normal(z: Tensor) -> Tensor:
    """log of the density of N(0, I) at each row."""
    return -z.square().sum(1) / 2 - z.shape[1] / 2 * math.log(2 * math.pi)


def whitening(target: LogisticTarget) -> Tensor:
    """Lower triangular L, L L' the inverse Hessian of V at its mode: x = L v has one scale in all coordinates of v."""
    _, covariance = target.laplace()
    L: Tensor = torch.linalg.cholesky(covariance)
    return L.to(target.A.dtype)


def shorten(drift: Tensor) -> Tensor:
    """Rows longer than 1 become 1 long."""
    length: Tensor = torch.linalg.vector_norm(drift, dim=1, keepdim=True)
    return drift / length.clamp(min=1.0)


def ledger_row(target: Potential, x: Tensor, log_rho: Tensor | None, temperature: float, ledger: Ledger) -> None:
    """Enter E[V] + T E[log rho] after an outer step, and whether that step has decreased it.

    A sampler without a density (``log_rho`` is None) gets the entropy of the Gaussian with its particles' covariance,
    which no density of that covariance exceeds: its figure is a lower bound.
    """
    potential = float(target.value(x).double().mean())
    mean_log = -_gaussian_entropy(x) if log_rho is None else float(log_rho.double().mean())
    functional = potential + temperature * mean_log
    if not math.isfinite(functional):
        raise RunError(f"the particles have diverged in step {len(ledger)}", "scale the features, or try another seed")
    row: dict[str, Any] = {"step": len(ledger), "functional": functional, "potential": potential}
    if ledger:
        before = ledger[-1]["functional"]
        row["decreased"] = functional <= before + CLOSE * abs(before)
    ledger.append(row)


def _gaussian_entropy(x: Tensor) -> float:
    covariance = torch.cov(x.double().T)
    return float(torch.logdet(2 * math.pi * math.e * covariance)) / 2


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
