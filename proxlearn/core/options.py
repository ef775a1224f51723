"""The allowed values of the algorithm's options; torch is not imported, so that configs can be checked without it."""

from typing import Literal

Drift = Literal["paper", "first_variation"]
"""Function whose gradient moves the particles: ``sum(u + v)``, as printed in Algorithm 2, or the first variation.
"""

Kernel = Literal["auto", "dense", "log"]
"""Storage of the Gibbs kernel: "auto" stores only the relevant pairs (exact to 2^-53; the same as "log" with the eager
engine), "dense" the matrix itself (which may underflow, as in the paper's code), and "log" its logarithm."""

Orientation = Literal["paper", "consistent"]
"""Meaning of row i of the cost: "paper" assigns it to the new position of particle i, as printed, and "consistent" to
the old position, whose mass row i distributes.
"""

Potential = Literal["paper", "first_variation"]
"""Potential of the proximal step: ``v + u`` (as printed), or the first variation ``v + 2 u`` of the risk."""

Tolerance = Literal["paper", "log"]
"""Stopping criterion of the fixed-point iteration: absolute norms of the changes in z and q, or a bound on the
error of log rho."""

Loss = Literal["quadratic", "logistic", "cross_entropy", "huber"]
"""proxlearn's own losses; installed packages add others through entry points of the group ``proxlearn.losses``."""

Neuron = Literal["tanh", "softmax_intercept", "softmax", "tanh_outputs"]
"""proxlearn's own neurons; installed packages add others through entry points of the group ``proxlearn.neurons``."""

Activation = Literal["tanh", "relu", "gelu", "softplus", "sigmoid", "cos"]
"""Activations sigma of the neurons a sigma(<w, x> + b)."""

Rho0 = Literal["pdf", "uniform"]
"""Initial weights: values of the initial density, or 1/N."""

Weights = Literal["proximal", "uniform", "fisher_rao"]
"""Weight update: "proximal" is Algorithm 1, "uniform" no update, and "fisher_rao" the multiplicative update, whose
objective is that of Algorithm 1 with the relative entropy instead of the transport cost. Installed packages add others
through entry points of the group ``proxlearn.weights``.
"""

Resample = Literal["none", "systematic"]
"""Remedy for a cloud in which few particles carry most of the mass: none, or systematic resampling."""

Schedule = Literal["constant", "cosine", "power"]
"""Schedule of the step size or of the temperature over a run."""

Init = Literal["box", "normal"]
"""Distribution of the initial cloud: uniform on a box (dataset.initial), or normal with the scale init_scale."""

Task = Literal["binary", "multiclass", "regression"]
"""Learning task: two classes given by the sign of f, C classes given by the largest output, or real targets."""
