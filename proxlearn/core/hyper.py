"""The hyperparameters of a step and of a run, each declared once with its default value and its validator.

To add a hyperparameter, add a field to ``Hyperparameters`` and a value to configs/recipe/*.yaml; the config schema, the
settings of a fit and the step use the field. This module does not import torch, so that a config can be checked without
it; values that depend on the cloud (a measured epsilon, the hyperparameters of one step) are in core/schedules.py.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Generic, Literal, TypeVar

from proxlearn.core import options
from proxlearn.core.registry import WEIGHTS_GROUP, registered
from proxlearn.validators import Check, choice, integer, optional, optional_or_auto, real

__all__ = ["Hyper", "Hyperparameters", "blind_step_notice", "energy_share", "kappa_sentence"]

Number = TypeVar("Number", float, float | None)
NOISE_SCALE: Check = real(at_least=0, example=1.0)
BATCH_SIZE: Check = integer(at_least=1, example=256)


def hyperparameter(check: Check, default: Any = MISSING, *, selectable: bool = False) -> Any:
    """Return a dataclass field with a validator; a ``selectable`` field may be None until selection sets it."""
    return field(default=default, metadata={"check": check, "selectable": selectable})


class DefaultReading(str):
    """A string that marks the default value of an option; it compares equal to the same string set by the user.

    For a functional for which "paper" is not defined, a default "paper" is replaced by "first_variation", whereas
    "paper" set by the user raises InputError (``Functional.with_readings``).
    """

    __slots__ = ()


PAPER_BY_DEFAULT = DefaultReading("paper")


@dataclass(frozen=True, kw_only=True)
class Hyperparameters(Generic[Number]):
    """All hyperparameters of the recursion; the default options are those of the paper.

    ``Number`` is the type of beta, h and epsilon: ``float`` in ``Hyper``, and ``float | None`` in a config or in the
    settings of a fit, where None means that selection chooses the value.
    """

    beta: Number = hyperparameter(real(above=0, example=0.05), selectable=True)
    """Inverse temperature: the standard deviation of a step's noise is ``noise_scale * sqrt(2 h / beta)``."""
    h: Number = hyperparameter(real(above=0, example=1e-3), selectable=True)
    """Step size."""
    epsilon: Number = hyperparameter(real(above=0, example=1.0), selectable=True)
    """Entropic regularisation of the proximal step."""
    epsilon_quantile: float | None = hyperparameter(optional(real(at_least=0, below=1, example=0.5)), None)
    """If given, epsilon is in units of this quantile of the particles' squared distances to their nearest neighbours;
    otherwise, epsilon is absolute."""
    delta: float = hyperparameter(real(at_least=0, example=1e-3), 1e-3)
    """Tolerance of the proximal fixed point; with 0, all L rounds are run."""
    L: int = hyperparameter(integer(at_least=1, example=300), 300)
    """Maximum number of rounds of the proximal fixed point."""
    drift: options.Drift = hyperparameter(choice(options.Drift), PAPER_BY_DEFAULT)
    """Gradient that moves the particles. The default "paper" becomes "first_variation" for functionals for which
    "paper" is not defined: a Risk whose loss is not quadratic, and a user-defined Functional."""
    kernel: options.Kernel = hyperparameter(choice(options.Kernel), "auto")
    orientation: options.Orientation = hyperparameter(choice(options.Orientation), "paper")
    prox_potential: options.Potential = hyperparameter(choice(options.Potential), PAPER_BY_DEFAULT)
    """Linear potential of the proximal step; its default follows the same rule as the default of ``drift``."""
    tolerance: options.Tolerance = hyperparameter(choice(options.Tolerance), "paper")
    weights: str = hyperparameter(registered(options.Weights, WEIGHTS_GROUP), "proximal")
    resample: options.Resample = hyperparameter(choice(options.Resample), "none")
    ess_threshold: float = hyperparameter(real(above=0, example=0.5), 0.5)
    """Resample if the effective sample size is below this share of N."""
    h_schedule: options.Schedule = hyperparameter(choice(options.Schedule), "constant")
    beta_schedule: options.Schedule = hyperparameter(choice(options.Schedule), "constant")
    """Schedule of the temperature 1/beta, with the same options as ``h_schedule``."""
    horizon: int | None = hyperparameter(integer(at_least=1, example=1000), 1000, selectable=True)
    """Step at which the cosine schedule ends and the power law has fallen to a tenth; None, in a config or in the
    settings of a fit, means that selection chooses the step."""
    batch_size: int | Literal["auto"] | None = hyperparameter(optional_or_auto(BATCH_SIZE), None)
    """Number of samples per step, drawn with replacement; None means all samples. "auto", in a config or in the
    settings of a fit, means a number that depends on the number of samples."""


@dataclass(frozen=True, kw_only=True)
class Hyper(Hyperparameters[float]):
    """The hyperparameters of a step; the default options are those of the paper.

    ``beta``, ``h`` and ``epsilon`` are the symbols of equations :eq:`motion` and :eq:`objective` in
    :doc:`/theory/recursion`. :doc:`/theory/readings` explains the options whose default is "paper".

    Parameters
    ----------
    beta : float
        Inverse temperature: the standard deviation of a step's noise is ``noise_scale * sqrt(2 h / beta)``.
    h : float
        Step size.
    epsilon : float
        Entropic regularisation of the proximal step, in units of squared distances between particles.
    epsilon_quantile : float, optional
        If given, ``epsilon`` is in units of this quantile (>= 0 and < 1) of the particles' squared distances to their
        nearest neighbours; ``iterate`` measures these distances. By default, ``epsilon`` is absolute.
    delta : float, default=1e-3
        Threshold of the stopping criterion ``tolerance``; with 0, all ``L`` rounds are run.
    L : int, default=300
        Maximum number of rounds of the proximal fixed point.
    drift : {"paper", "first_variation"}
        Gradient that moves particle i. "first_variation" is the gradient of the first variation phi_rho at theta_i,
        with the weights and the other particles frozen; phi_rho is v + 2 u for the quadratic loss and V + 2 W rho for
        an Energy. "paper" is the gradient with respect to theta_i of sum_k (v_k + u_k), as printed in Algorithm 2, or,
        for an Energy, of sum_k (V + W rho)(theta_k); theta_i enters every term of the sum. "paper" is defined for the
        quadratic loss and for Energy, and is the default for both; otherwise, the default is "first_variation".
    prox_potential : {"paper", "first_variation"}
        Linear potential w_i of the proximal step. "first_variation" is phi_rho(theta_i). "paper" is the printed formula
        with half the interaction: v_i + u_i for the quadratic loss and (V + W rho)(theta_i) for an Energy. The default
        follows the same rule as that of ``drift``. Each of the two defaults depends on the functional, and a printed
        Hyper shows it as 'paper' in either case; set both options if you compare losses.
    orientation : {"paper", "consistent"}, default="paper"
        "paper" assigns row i of the transport cost to the new position of particle i, as printed; "consistent" assigns
        it to the old position, whose mass row i distributes.
    tolerance : {"paper", "log"}, default="paper"
        Stopping criterion of the proximal fixed point: "paper" uses the norms of the changes of z and q, and "log" a
        bound on the error of log rho.
    kernel : {"auto", "log", "dense"}, default="auto"
        Storage of the Gibbs kernel: "auto" stores only the relevant pairs, "log" the logarithm of the matrix, and
        "dense" the matrix itself, which may underflow.
    weights : str, default="proximal"
        Update of the particles' weights: "proximal" (the proximal step), "uniform" (none), "fisher_rao" (a
        multiplicative update), or the name of an update that an installed package adds.
    resample : {"none", "systematic"}, default="none"
        "systematic" resamples the particles when the effective sample size falls below ``ess_threshold`` N.
    ess_threshold : float, default=0.5
        Threshold of ``resample``, as a share of N.
    h_schedule, beta_schedule : {"constant", "cosine", "power"}, default="constant"
        Schedules of the step size and of the temperature 1 / beta, which ``iterate`` applies.
    horizon : int, default=1000
        Step at which the cosine schedule ends and the power law has fallen to a tenth.
    batch_size : int, optional
        Number of samples per step, drawn with replacement; it applies to a Risk only. By default, each step uses all
        samples.
    noise_scale : float, default=1.0
        Factor by which the noise is multiplied; 0 makes the motion deterministic.

    Examples
    --------
    >>> import proxlearn as pl
    >>> hyper = pl.Hyper(beta=0.05, h=1e-3, epsilon=1.0)
    >>> round(hyper.diffusion, 6), hyper.drift
    (0.2, 'paper')
    """

    horizon: int = hyperparameter(integer(at_least=1, example=1000), 1000)
    """Step at which the cosine schedule ends and the power law has fallen to a tenth."""
    batch_size: int | None = hyperparameter(optional(BATCH_SIZE), None)
    """Number of samples per step; "auto" has already been replaced by a number."""
    noise_scale: float = hyperparameter(NOISE_SCALE, 1.0)
    """Factor by which the noise is multiplied; in a config, it is a setting of the dataset (1/100 for the paper's SHD).
    """

    @property
    def kappa(self) -> float:
        """The ratio kappa = beta epsilon / h.

        Near equilibrium, the weights follow the density of the particles if kappa is large, and the functional if it is
        small (see ``energy_share``).
        """
        return self.beta * self.epsilon / self.h

    @property
    def diffusion(self) -> float:
        """Standard deviation of one Euler-Maruyama increment."""
        return self.noise_scale * math.sqrt(2 * self.h / self.beta)

    @property
    def varies(self) -> bool:
        """Whether h, beta or epsilon changes from step to step."""
        return self.epsilon_quantile is not None or {self.h_schedule, self.beta_schedule} != {"constant"}

    def check(self) -> None:
        """Raise InputError if a hyperparameter has an invalid value."""
        for entry in fields(self):
            entry.metadata["check"](entry.name, getattr(self, entry.name))


BLIND_KAPPA = 18.0
"""Value of kappa above which the energy accounts for less than a tenth of log rho near equilibrium."""


def energy_share(kappa: float, noise_scale: float = 1.0) -> float:
    """Return the share of the energy in log rho near equilibrium; the density of the particles accounts for the rest.

    The share is 2 / (2 + kappa), where kappa is first divided by noise_scale^2, the temperature of the particles in
    units of 1/beta. Without noise, there is no equilibrium, and kappa is not divided. The formula holds in the limit of
    many particles and small h and epsilon; `proxlearn verify` derives and tests it. Far from equilibrium, the share can
    be larger: for every large kappa, a step multiplies the weights by about exp(-h w / epsilon) before it averages
    them.
    """
    return 2 / (2 + (kappa / noise_scale**2 if noise_scale else kappa))


def kappa_sentence(kappa: float, noise_scale: float = 1.0) -> str:
    """Return a sentence that explains the effect of kappa on the weights of a run."""
    share = energy_share(kappa, noise_scale)
    if share < energy_share(BLIND_KAPPA):
        meaning = "the proximal step averages the weights within about sqrt(epsilon)"
    else:
        meaning = "the risk and the density within about sqrt(epsilon) affect the weights"
    near = f"near equilibrium, the share of the risk in log rho is about {share:.2g}"
    return f"kappa = beta epsilon / h = {kappa:.4g}: {meaning}; {near}."


def blind_step_notice(kappa: float, noise_scale: float = 1.0) -> str | None:
    """Return a notice if the energy hardly affects the weights near equilibrium, and None otherwise."""
    share = energy_share(kappa, noise_scale)
    if share >= energy_share(BLIND_KAPPA):
        return None
    remedy = f"choose kappa <= {noise_scale**2 or 1:.4g} to increase it"
    meaning = f"near equilibrium, the weights hardly depend on the risk (share in log rho: about {share:.2g}; {remedy})"
    return f"kappa = beta epsilon / h = {kappa:.4g}: {meaning}"
