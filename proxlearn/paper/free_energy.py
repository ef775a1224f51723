"""Measure the paper's free energy F_beta during a run, from the clouds that the run stored.

F_beta = F - H / beta, where F is the training risk of the unweighted mean of the neurons' outputs, and H is the entropy
of the distribution of the particles, estimated from nearest neighbours. Standard errors are computed with the
jackknife: the particles are divided into groups, and every quantity is recomputed without each group. The groups are
the same in all clouds of a run, so the error of a change takes the correlation between two clouds into account.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud
from proxlearn.core.entropy import entropy, entropy_from_weights, entropy_terms, queried
from proxlearn.core.functionals.functional import Functional
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.metrics import free_energy
from proxlearn.paper.archive_files import TextTable

GROUPS = 20
"""Number of groups of particles in the jackknife."""
COLUMNS = (
    "step",
    "risk",
    "entropy",
    "free_energy",
    "free_energy_error",
    "change",
    "change_error",
    "entropy_from_weights",
    "weights_correlation",
)
"""Columns of the table. Changes are relative to the previous cloud, and errors are standard errors. The last
column is the correlation of log rho with the logarithm of the density estimate at the particles."""
SHOWN_DIGITS = 8


def free_energy_table(risk: Risk, hyper: Hyper, clouds: Iterable[PointCloud]) -> TextTable:
    """Return a table with the columns COLUMNS and one row per cloud."""
    rows: list[tuple[str, ...]] = []
    previous: Tensor | None = None
    for cloud in clouds:
        cloud = cloud.to("cpu", torch.float64)
        loss, spread = _risk_and_entropy(risk, cloud.theta)
        values = free_energies(risk, hyper, cloud.theta)
        change = values - (math.nan if previous is None else previous)
        numbers = (
            loss,
            spread,
            float(values[0]),
            jackknife_error(values[1:]),
            float(change[0]),
            jackknife_error(change[1:]),
            float(entropy_from_weights(cloud.theta, cloud.log_rho, hyper.epsilon)),
            weights_correlation(cloud),
        )
        shown = ("" if not math.isfinite(number) else f"{number:.{SHOWN_DIGITS}g}" for number in numbers)
        rows.append((str(cloud.step), *shown))
        previous = values
    return TextTable(COLUMNS, tuple(rows))


def free_energies(functional: Functional, hyper: Hyper, theta: Tensor) -> Tensor:
    """Return the free energy of all particles, followed by its values with each group of particles left out in turn."""
    numbers = torch.arange(len(theta)) % GROUPS
    kept = [torch.ones_like(numbers, dtype=torch.bool), *(numbers != group for group in range(GROUPS))]
    parts = [_risk_and_entropy(functional, theta[rows]) for rows in kept]
    values = [free_energy(loss, spread, hyper.beta, hyper.noise_scale) for loss, spread in parts]
    return torch.tensor(values, dtype=torch.float64)


def _risk_and_entropy(functional: Functional, theta: Tensor) -> tuple[float, float]:
    equal = torch.full((len(theta),), 1 / len(theta), dtype=theta.dtype)
    return float(functional.value(theta, equal)), float(entropy(theta))


def jackknife_error(values: Tensor) -> float:
    """Return the standard error of an estimate, given its values with each group of particles left out in turn."""
    count = len(values)
    return math.sqrt((count - 1) / count * float((values - values.mean()).square().sum()))


def weights_correlation(cloud: PointCloud) -> float:
    """Return the correlation of log rho with the nearest-neighbour log density; NaN for equal weights."""
    log_density = -entropy_terms(cloud.theta)
    log_rho = cloud.log_rho[queried(len(cloud.theta))]
    if float(log_rho.std()) < 1e-12 * max(1.0, float(log_rho.abs().max())):
        return math.nan
    return float(torch.corrcoef(torch.stack((log_rho, log_density)))[0, 1])
