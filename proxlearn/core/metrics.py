"""Metrics of class probabilities and of weights; the risk is in core/functionals/risk.py."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from proxlearn.errors import InputError

LEAST_PROBABILITY = 1e-6
"""Lower bound of every predicted probability: a finite cloud cannot show that a class is impossible, and a probability
of 0 for the true class would make the log-loss infinite."""
CALIBRATION_BINS = 15
"""Number of bins of equal width into which the probability of the predicted class is divided."""

PROBABILITY_TOLERANCE = 1e-4
"""Largest accepted difference between 1 and the sum of the probabilities of a sample."""

LINK_SLOPES = (1e-3, 1e3)
"""Bounds of a fitted slope; the targets of the outputs are of order 1."""
LINK_ROUNDS = 24
"""Number of bisections of the logarithm of a slope, after which the slope's relative error is below 1e-6."""


def accuracy_share(hits: Tensor) -> Tensor:
    """Return the share of entries that are True."""
    return hits.double().mean()


def apply_probability_floor(probabilities: Tensor) -> Tensor:
    """Return probabilities (C x n) that are at least ``LEAST_PROBABILITY``, with the same order within each column.

    Entries below ``low`` are raised to ``low``, and each column is divided by its new sum. The sum is at most
    1 + (C - 1) low, so ``low`` is chosen such that no entry is below the bound after the division.
    """
    low = LEAST_PROBABILITY / (1 - (len(probabilities) - 1) * LEAST_PROBABILITY)
    raised = probabilities.clamp_min(low)
    return raised / raised.sum(dim=0)


def check_columns(source: str, probabilities: Any, output: Tensor) -> Tensor:
    """Return class probabilities (C x n) in float64; raise InputError if a shape, a sum or a sign is wrong.

    Columns for outputs that are not finite are not checked. ``source`` names the object that defines the probabilities.
    """
    classes, n = max(2, len(output)), output.shape[1]
    shape = (classes, n)
    problem = f"`probabilities` of {source} returned"
    if not isinstance(probabilities, Tensor) or probabilities.shape != shape:
        is_tensor = isinstance(probabilities, Tensor)
        what = f"a tensor of the shape {tuple(probabilities.shape)}" if is_tensor else f"{probabilities!r:.100}"
        rows = "the rows 1 - p and p, where p is the probability of the class +1" if classes == 2 else "a row per class"
        remedy = f"return {rows}, for example with torch.stack: a tensor of the shape {shape}"
        raise InputError(f"{problem} {what} for outputs of the shape {tuple(output.shape)}", remedy)
    p = probabilities.double()
    valid = ((p.sum(dim=0) - 1).abs() <= PROBABILITY_TOLERANCE) & (p >= -PROBABILITY_TOLERANCE).all(dim=0)
    wrong = (~valid & torch.isfinite(output).all(dim=0)).nonzero()
    if len(wrong):
        returned, f = (
            ", ".join(f"{value:.4g}" for value in values[:, int(wrong[0])].tolist()[:10]) for values in (p, output)
        )
        remedy = "return numbers >= 0 that sum to 1 in every column"
        raise InputError(f"{problem} the column ({returned}) for the output f = ({f})", remedy)
    return p


def probability_scores(probabilities: Tensor, labels: Tensor, estimate: str) -> dict[str, Tensor]:
    """Return a dict with the log-loss and the calibration error of probabilities that are bounded from below."""
    of_labels = probabilities.gather(0, labels[None])[0]
    return {
        f"log_loss_{estimate}": -of_labels.log().mean(),
        f"calibration_error_{estimate}": calibration_error(probabilities, labels),
    }


def fit_link_slope(
    output: Tensor, labels: Tensor, weights: Tensor | None = None, log_deviation: float | None = None
) -> float:
    """Return the slope s that minimises the log-loss of softmax(s f), or of 1 / (1 + exp(-s f)) for one output f.

    ``output`` contains the mean outputs f of held-out rows, C x n, or 1 x n for two classes. The log-loss is convex in
    s. It is regularised, so that s is finite even if the classes are perfectly separated: as in Platt's method, C
    pseudo-counts are spread over the classes. With ``log_deviation``, the penalty is instead that of a normal prior of
    log s with mean 0 and this standard deviation, for outputs that define probabilities with s = 1.
    """
    f = output.double()
    # Two classes with one output f are equivalent to two classes with the outputs 0 and f.
    f = torch.cat((torch.zeros_like(f), f)) if len(f) == 1 else f
    C, n = f.shape
    w = torch.ones(n, dtype=torch.float64) if weights is None else weights.double() * (n / weights.double().sum())
    # The derivative of the log-loss is the mean of f under the predicted probabilities minus that under the targets.
    of_targets = f.gather(0, labels[None])[0]
    if log_deviation is None:
        of_targets = (n * of_targets + f.sum(dim=0)) / (n + C)
    low, high = (math.log(bound) for bound in LINK_SLOPES)
    for _ in range(LINK_ROUNDS):
        middle = (low + high) / 2
        predicted = (torch.softmax(math.exp(middle) * f, dim=0) * f).sum(dim=0)
        derivative = float((w * (predicted - of_targets)).sum())
        if log_deviation is not None:
            derivative = math.exp(middle) * derivative + middle / log_deviation**2
        if derivative > 0:
            high = middle
        else:
            low = middle
    return math.exp((low + high) / 2)


ROUNDING = 2.0**-50
"""Calibration error below which the result is rounded to 0, because only rounding errors are as small."""


def calibration_error(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return the expected calibration error: the mean gap between accuracy and the probability of the predicted class.

    The gap is computed in each bin of the probability, and the gaps are weighted by the bins' shares of the samples.
    The contribution of a bin is therefore |sum(correct - probability)| / n.
    """
    confidence, predicted = probabilities.max(dim=0)
    # A probability of 1 belongs to the last bin. NaN is put into an arbitrary bin, so that the result is NaN instead of
    # an IndexError.
    bins = (confidence * CALIBRATION_BINS).long().clamp(0, CALIBRATION_BINS - 1)
    gaps = torch.zeros(CALIBRATION_BINS, dtype=confidence.dtype, device=confidence.device)
    error = gaps.index_add(0, bins, (predicted == labels).double() - confidence).abs().sum() / len(labels)
    # The gap of a constant prediction of the class frequencies is zero up to rounding.
    return torch.where(error < ROUNDING, torch.zeros_like(error), error)


def weight_entropy(log_rho: Tensor) -> Tensor:
    """Return sum w log(N w), the entropy of w = rho / sum rho relative to uniform weights, between 0 and log N."""
    log_w = torch.log_softmax(log_rho, dim=0)
    # exp(-inf) * -inf is NaN: a particle without mass contributes nothing.
    terms = torch.where(log_w.isneginf(), torch.zeros_like(log_w), log_w.exp() * log_w)
    return terms.sum() + math.log(len(log_rho))


def discrete_free_energy(train_risk: Tensor, log_rho: Tensor, beta: float) -> Tensor:
    """Return the training risk plus (1/beta) sum w log(N w), where w = rho / sum rho.

    This is not the paper's F_beta: the entropy in F_beta depends on the locations of the particles, whereas the entropy
    here depends only on their weights.
    """
    return train_risk + weight_entropy(log_rho) / beta


def free_energy(train_risk: float, entropy: float, beta: float, noise_scale: float) -> float:
    """Return the paper's free energy F_beta = F - H / beta of the distribution of the particles.

    H is the entropy of the particles' locations, so the training risk must be that of the unweighted estimate. The
    temperature of the locations is noise_scale^2 / beta, because ``noise_scale`` multiplies the noise; the proximal
    step uses beta itself.
    """
    return train_risk - entropy * noise_scale**2 / beta


def effective_sample_size(log_rho: Tensor) -> Tensor:
    """Return (sum rho)^2 / sum rho^2, the number of equally weighted particles that give an equivalent estimate."""
    log_w = torch.log_softmax(log_rho, dim=0)
    return torch.exp(-torch.logsumexp(2 * log_w, dim=0))
