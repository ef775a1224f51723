"""Definitions of the metrics of a run: the columns of metrics.csv and the values of accuracy.csv.

The reference page of the documentation is generated from these tables, and a test compares them with real runs.
"""

from __future__ import annotations

import re

PARTS = {
    "train": "the training part, without the validation part if there is one",
    "validation": "the held-out training rows, with `validation_fraction`",
    "test": "the test part",
}
"""Parts of the data; their names are the prefixes of the score columns."""

ESTIMATES = {
    "weighted": "f is the mean of the neurons under the weights rho / sum rho",
    "unweighted": "f is the plain mean of the neurons",
}
"""Estimates of f; their names are the suffixes of the score columns."""

SCORES = {
    "risk": "mean of the loss. For the quadratic loss, it is the mean of (y - f)^2, the paper's unregularised F; for "
    "the paper's softmax neuron, it is the mean of (1 - f)^2, where f is the probability of the true class",
    "accuracy": "share of correct predictions; the predicted class is the sign of f, or the class with the largest "
    "output",
    "log_loss": "mean of -log p, where p (at least 1e-6) is the predicted probability of the true class",
    "calibration_error": "expected calibration error: the gap between accuracy and mean probability of the predicted "
    "class in each of 15 bins of equal width, averaged over the bins with weights equal to their shares of the samples",
    "risk_paper": "quantity in the paper's curves, a norm and not its square. For two classes, it is (0.5/n) "
    "||label - g|| with the labels 0 and 1. For the weighted estimate, g is 1 if f > 0 and 0 otherwise; for the "
    "unweighted one, g is logistic(f), replaced by 0 or 1 if it is within 1e-3 of that value. For more classes, it is "
    "||1 - f|| / n",
    "rmse": "square root of the mean of (y - f)^2 (a real target)",
    "r2": "coefficient of determination, 1 - mean (y - f)^2 / variance of y (a real target)",
}
"""Scores that are computed per part and estimate."""

SINGLE_SCORES = {
    "accuracy_unweighted_saturated": "two classes: a prediction counts as correct only if logistic(f) is within 1e-3 "
    "of the label; the paper's unweighted columns for WDBC",
    "accuracy_particle": "more classes: accuracy of each particle alone, averaged over the particles; the paper's "
    "accuracy for SHD",
}
"""Scores that are computed once per part."""

CLOUD = {
    "step": "number of recursions",
    "h": "step size of the step that led to the row; the column exists if h, beta or epsilon varies",
    "beta": "inverse temperature of the step that led to the row",
    "epsilon": "entropic regularisation of the step that led to the row",
    "discrete_free_energy": "weighted training risk + (1/beta) sum w log(N w), where w = rho / sum rho; it depends on "
    "the weights and not on the spread of the cloud, is not the paper's F_beta and need not decrease",
    "entropy": "entropy in nats of the distribution of the particles, by nearest neighbours (Kozachenko and Leonenko); "
    "with N = 1000 its bias is at most 0.11 for up to 10 parameters per particle, and 3.2 for 32; with more than 1000 "
    "particles, it is estimated from a sample of 1000; empty for more than 64 parameters per particle",
    "free_energy": "the paper's F_beta: unweighted training risk - entropy / beta; with dataset.noise_scale s, beta / "
    "s^2 replaces beta. It has no lower bound if nothing confines the particles",
    "ess": "effective sample size (sum rho)^2 / sum rho^2: the number of particles on which the weighted estimate "
    "is effectively based",
    "mass": "sum rho, which the proximal step conserves",
}
"""Metrics of the cloud."""

PROXIMAL_STEP = {
    "prox_objective_before": "objective of the proximal step if every particle keeps its mass",
    "prox_objective_after": "objective of the proximal step at its solution",
    "kernel_offdiag": "largest share of a particle's mass that is sent to other particles; with more than 20000 "
    "particles, the largest share in a sample",
    "weights_change": "largest |change of log rho| in the step; 0 if the step leaves all weights as they are",
    "sinkhorn_rounds": "number of rounds of the fixed point; 0 if no particle has a neighbour",
    "sinkhorn_error": "2 max |change of log z| in the last round, a bound on the error of every log rho",
    "sinkhorn_contraction": "change of log z in the second round divided by the change in the first, at most "
    "1/(1 + kappa); nan with fewer than two rounds",
    "converged": "whether the chosen tolerance was met within L rounds and sinkhorn_error is at most delta",
}
"""Metrics of the proximal step that led to the row; empty at step 0 and with weights=uniform."""


def definition(column: str) -> str | None:
    """Return the definition of a column of metrics.csv, or None if the column is unknown."""
    if column in CLOUD or column in PROXIMAL_STEP:
        return (CLOUD | PROXIMAL_STEP)[column]
    name = re.sub(rf"^({'|'.join(PARTS)})_", "", column)
    if name in SINGLE_SCORES:
        return SINGLE_SCORES[name]
    return SCORES.get(re.sub(rf"_({'|'.join(ESTIMATES)})$", "", name))
