"""Estimates of the differential entropy of the distribution from which the particles of a cloud are drawn.

The entropy is H(p) = -int p log p, in nats, and the paper's free energy is F_beta = F - H / beta. The particles are
drawn from p, so ``entropy`` uses only their locations; the weights of a cloud affect neither the distribution of its
particles nor ``entropy``. ``entropy_from_weights`` is an estimate for weights that are proportional to the density
at the particles.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

__all__ = ["MOST_DIMENSIONS", "MOST_QUERIES", "entropy", "entropy_from_weights", "entropy_terms"]

NEIGHBOURS = 3
"""Rank of the neighbour whose distance is used. Compared with the first neighbour, the third halves the variance in one
dimension and increases the bias in 32 dimensions by a quarter.
"""
MOST_QUERIES = 1000
"""Maximum number of particles whose nearest neighbours are computed. In a larger cloud, a sample of particles with
equally spaced indices is used; their neighbours are taken from all particles, so that the bias is that of the whole
cloud.
"""
MOST_DIMENSIONS = 64
"""Number of dimensions above which the entropy cannot be estimated from a cloud of typical size: with N = 1000 draws
from a standard normal distribution, the bias is 3.2 nats in 32 dimensions and 10 in 64.
"""
TILE = 2**20
"""Number of entries per tile of the distance matrix; a tile takes up 8 MB."""
AT_ONCE = 2**14
"""Maximum number of particles that are converted to float64 at once."""


def entropy(theta: Tensor, neighbours: int = NEIGHBOURS) -> Tensor:
    """Return the Kozachenko-Leonenko estimate of the entropy, based on distances to nearest neighbours.

    With s_j the standard deviation of coordinate j, r_i the distance of theta_i to its k-th neighbour in the
    coordinates divided by s, and V_d the volume of the unit ball, the estimate is the mean over the particles of

        psi(N) - psi(k) + log V_d + d log r_i + sum_j log s_j.

    The coordinates are divided by s, because the estimate assumes a constant density on balls: without the division,
    the error for the paper's initial box, whose sides are 0.2 and 2, would be 12.6 nats instead of 9.5. The bias grows
    with the dimension d: with N = 1000 draws from a normal distribution, it is at most 0.11 nats for d <= 10, 3.2 nats
    in 32 dimensions and 10 nats in 64. The bias is nearly the same for clouds of the same N and shape, so differences
    between the clouds of a run are more accurate than the values themselves.

    Parameters
    ----------
    theta : Tensor, shape (N, d)
        Locations of the particles. Above ``MOST_QUERIES`` particles, the mean is over a sample of them.
    neighbours : int, default=3
        Rank k of the neighbour.

    Returns
    -------
    Tensor
        The entropy in nats, a scalar in float64. NaN if N <= k or if a location is not finite; -inf if more than k
        particles have the same location, or if a coordinate is the same for all particles, because such a
        distribution has no density.
    """
    return entropy_terms(theta, neighbours).mean()


def entropy_terms(theta: Tensor, neighbours: int = NEIGHBOURS) -> Tensor:
    """Return the terms whose mean is ``entropy``: the negative logarithms of a density estimate.

    The density is estimated at the particles ``queried(N)``, and the result has one entry per such particle.
    """
    N, d = theta.shape
    rows = queried(N, theta.device)
    if neighbours >= N or not bool(torch.isfinite(theta).all()):
        return torch.full((len(rows),), math.nan, dtype=torch.float64, device=theta.device)
    # A float64 copy of a large cloud would take up much memory, so it is copied in parts.
    parts = torch.split(theta, AT_ONCE)
    mean = _column_sums(part.double() for part in parts) / N
    deviations = (_column_sums((part - mean).square() for part in parts) / N).sqrt()
    if not bool((deviations > 0).all()):
        return torch.full((len(rows),), -math.inf, dtype=torch.float64, device=theta.device)
    radii = []
    for tile in torch.split(rows, max(1, TILE // min(N, AT_ONCE))):
        # Rounding may change the order of the neighbours, so accurate distances are computed for two extra candidates.
        candidates = _nearest(theta, tile, mean, deviations, min(neighbours + 2, N - 1))
        points, queries = theta[candidates].double() / deviations, theta[tile].double() / deviations
        distances = (points - queries[:, None]).square().sum(dim=2).sqrt()
        radii.append(distances.kthvalue(neighbours, dim=1).values)
    log_ball = 0.5 * d * math.log(math.pi) - math.lgamma(0.5 * d + 1)
    digammas = torch.digamma(torch.tensor([N, neighbours], dtype=torch.float64))
    constant = float(digammas[0] - digammas[1]) + log_ball + float(deviations.log().sum())
    return constant + d * torch.cat(radii).log()


def _column_sums(parts: Iterable[Tensor]) -> Tensor:
    """Return the sums over the rows of all parts of a matrix."""
    return torch.stack([part.sum(dim=0) for part in parts]).sum(dim=0)


def _nearest(theta: Tensor, tile: Tensor, mean: Tensor, deviations: Tensor, count: int) -> Tensor:
    """Return the indices of the ``count`` nearest other particles of each particle in ``tile``, up to rounding.

    The squared distances are computed from squared norms. The mean is subtracted from the locations, because this
    method loses less precision for centred points.
    """
    queries = (theta[tile] - mean) / deviations
    nearest, indices = queries.new_empty(len(tile), 0), tile.new_empty(len(tile), 0)
    for first in range(0, len(theta), AT_ONCE):
        points = (theta[first : first + AT_ONCE] - mean) / deviations
        squared = torch.addmm(points.square().sum(dim=1), queries, points.T, alpha=-2)
        own = torch.nonzero((tile >= first) & (tile < first + len(points)))[:, 0]
        squared[own, tile[own] - first] = math.inf
        best = squared.topk(min(count, len(points)), largest=False)
        nearest = torch.cat((nearest, best.values), dim=1)
        indices = torch.cat((indices, best.indices + first), dim=1)
        kept = nearest.topk(min(count, nearest.shape[1]), largest=False)
        nearest, indices = kept.values, indices.gather(1, kept.indices)
    return indices


def queried(N: int, device: torch.device | None = None) -> Tensor:
    """Return the indices of the particles whose nearest neighbours are computed: all particles, or a sample of them."""
    count = min(N, MOST_QUERIES)
    return torch.arange(count, device=device) * N // count


def entropy_from_weights(theta: Tensor, log_rho: Tensor, epsilon: float) -> Tensor:
    """Estimate the entropy of the particles' distribution from weights that are proportional to the density.

    If w_i = rho_i / sum rho = p(theta_i) / (N int p^2), then

        H(p) = -log int p^2 - (1/N) sum_i log(N w_i),

    where the first term is the Renyi entropy of order 2, which the weights do not determine, because they are known
    only up to a factor. The integral int p^2 is estimated by the mean, over all pairs of particles, of a Gaussian
    kernel whose variance epsilon is that of the proximal step.

    Parameters
    ----------
    theta : Tensor, shape (N, d)
        Locations of the particles.
    log_rho : Tensor, shape (N,)
        Logarithms of the weights, up to a constant.
    epsilon : float
        Variance of the kernel, in each coordinate.

    Returns
    -------
    Tensor
        The entropy in nats, a scalar in float64; inf if there is only one particle, or if a particle has no mass.
    """
    N, d = theta.shape
    points = theta.double()
    size = max(1, TILE // N)
    sums = []
    for first in range(0, N, size):
        rows = torch.arange(first, min(first + size, N), device=theta.device)
        exponents = torch.cdist(points[rows], points, compute_mode="donot_use_mm_for_euclid_dist").square()
        exponents /= -2 * epsilon
        exponents[rows - first, rows] = -math.inf
        sums.append(torch.logsumexp(exponents, dim=1).logsumexp(dim=0))
    log_pairs = torch.stack(sums).logsumexp(dim=0) - math.log(N) - math.log(max(N - 1, 1))
    log_integral = log_pairs - 0.5 * d * math.log(2 * math.pi * epsilon)
    log_shares = torch.log_softmax(log_rho.double(), dim=0) + math.log(N)
    return -log_integral - log_shares.mean()
