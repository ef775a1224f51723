"""The floor: a lower bound for the time of a recursion that uses only torch's own functions.

*Drift*: the two matrix products, one sigmoid in place over N x n (for the softmax neuron, an exponential) and the
noise, in preallocated memory. No recursion that uses torch's dense products has a faster drift, unless it omits
products (saturated neurons).

*Kernel*, if particles exchange mass: the distances of the pairs, one exponential per pair, and (rounds + 1) x 2
products with the resulting matrix, where ``rounds`` is the number of rounds that the compiled step needs at the same
cloud. ``torch.cdist`` computes the distances with a matrix product; this is several times faster than computing
differences, but not accurate enough for every cloud. If the compiled step uses all pairs, the matrix is N x N. With a
neighbour list, the matrix has as many entries as there are pairs that matter, arranged as full rows, on which torch is
faster than on any sparse matrix. If no two particles exchange mass, there is no kernel.

A *pair matters* if its entry of the coupling diag(q) Gamma diag(z) is larger than 2^-53 of the mass of its row or of
its column. The pair of a particle with itself also counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from proxlearn.bench.timing import Call
from proxlearn.core.cloud import PointCloud
from proxlearn.core.fused.screening import LOG_TOLERANCE
from proxlearn.core.kernels.kernel import squared_distances
from proxlearn.core.step import Info
from proxlearn.core.weight_updates import cost_rows_columns
from proxlearn.run.experiment import Experiment

SMALLEST_EXPONENT = -80.0
"""Smallest exponent in the floor's kernel, because products with denormal numbers would be many times slower."""


@dataclass(frozen=True)
class KernelUse:
    """How a step of the compiled engine uses the kernel."""

    regime: str
    """``identity`` (no two particles exchange mass), ``list`` (a neighbour list is used) or ``all pairs``."""
    rounds: int
    share: float
    """Number of pairs in the floor's matrix, divided by N^2."""


def regime_of(after: PointCloud, info: Info | None) -> str:
    """Return the regime (see KernelUse) of the step that produced ``after`` and ``info``."""
    if info is None or info.solution.rounds == 0:
        return "identity"
    # A step over all pairs already returns the list for the next step if a list is possible.
    return "all pairs" if after.screen is None else "list"


LONGEST_LIST = 1 / 20
"""Largest share of the pairs that a neighbour list of the compiled step contains, for up to 8192 particles."""


def kernel_use(after: PointCloud, info: Info | None) -> KernelUse:
    """Return how the step that produced ``after`` and ``info`` used the kernel."""
    regime = regime_of(after, info)
    if info is None or regime == "identity":
        return KernelUse("identity", 0, 0.0)
    share = share_that_matters(info)
    # A list that is built for a single step is not stored in ``after.screen``, and no list has a larger share of the
    # pairs.
    if regime == "all pairs" and share <= LONGEST_LIST:
        regime = "list"
    return KernelUse(regime, info.solution.rounds, 1.0 if regime == "all pairs" else share)


def share_that_matters(info: Info) -> float:
    """Return the number of pairs that matter in a step, divided by N^2."""
    rows, columns = cost_rows_columns(info.previous.theta.double(), info.theta.double(), info.hyper.orientation)
    log_z, log_q = info.solution.log_z.double(), info.solution.log_q.double()
    log_rho, next_log_rho = info.previous.log_rho.double(), info.solution.log_rho.double()
    N, count = len(rows), 0
    block = max(1, 2**22 // N)
    for first in range(0, N, block):
        part = slice(first, first + block)
        exponents = squared_distances(rows[part], columns) / (-2 * info.hyper.epsilon)
        log_M = log_q[part, None] + exponents + log_z
        count += int((log_M - torch.minimum(log_rho[part, None], next_log_rho) > LOG_TOLERANCE).sum())
    return count / N**2


def drift_floor(experiment: Experiment, cloud: PointCloud, generator: torch.Generator) -> Call:
    """Return a function that runs the floor's drift operations on arrays with the shapes of an experiment."""
    X = experiment.problem.samples.X
    softmax = experiment.problem.neuron.name.startswith("softmax")
    rows = cloud.theta.numel() // X.shape[1] if softmax else len(cloud.theta)
    W, Xt = torch.randn(rows, X.shape[1]), X.T.contiguous()
    Z, out, noise = X.new_empty(rows, len(X)), X.new_empty(rows, X.shape[1]), torch.empty_like(cloud.theta)
    in_place = torch.exp_ if softmax else torch.sigmoid_

    def floor() -> None:
        torch.mm(W, Xt, out=Z)
        in_place(Z)
        torch.mm(Z, X, out=out)
        torch.randn(noise.shape, out=noise, generator=generator)

    return floor


def kernel_floor(cloud: PointCloud, use: KernelUse, epsilon: float) -> Call:
    """Return a function that runs the floor's kernel operations; it does nothing in the regime ``identity``."""
    if use.rounds == 0:
        return lambda: None
    theta = cloud.theta
    rows = theta[: math.ceil(use.share * len(theta))]
    exponents = (squared_distances(rows, theta) / (-2 * epsilon)).clamp_min_(SMALLEST_EXPONENT)
    Gamma, z, q = torch.empty_like(exponents), torch.ones_like(theta[:, 0]), torch.ones_like(rows[:, 0])
    Gz, Gq = torch.empty_like(q), torch.empty_like(z)

    def floor() -> None:
        torch.cdist(rows, theta, compute_mode="use_mm_for_euclid_dist")
        torch.exp(exponents, out=Gamma)
        for _ in range(use.rounds + 1):
            torch.mv(Gamma, z, out=Gz)
            torch.mv(Gamma.T, q, out=Gq)

    return floor


def floor_of(experiment: Experiment, cloud: PointCloud, use: KernelUse, generator: torch.Generator) -> Call:
    """Return a function that runs all operations of the floor at a cloud."""
    drift = drift_floor(experiment, cloud, generator)
    kernel = kernel_floor(cloud, use, experiment.hyper.epsilon)

    def floor() -> None:
        drift()
        kernel()

    return floor
