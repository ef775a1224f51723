"""The check that a user-defined functional is finite at the cloud from which the steps start.

A function that is not finite there would produce a non-finite cloud in the first step, and a smaller step size would
not help. A risk built from proxlearn's own neurons and losses is not evaluated, because its data have already been
checked.
"""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor

from proxlearn.core import options
from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.energy import Energy
from proxlearn.core.functionals.functional import Functional, NonFiniteGradient
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.neurons.activations import ACTIVATIONS
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.neurons.softmax import Softmax
from proxlearn.errors import USER_ERRORS, InputError, ProxlearnError, user_function_error

__all__ = ["check_start"]

REMEDY = "correct the function, or start from a cloud where it is finite"


@torch.no_grad()
def check_start(functional: Functional, cloud: PointCloud, hyper: Hyper) -> None:
    """Raise InputError if a user-defined functional cannot be evaluated or is not finite at the initial cloud."""
    if isinstance(functional, Risk):
        if not _has_own_parts(functional):
            return
        if hyper.batch_size is not None:
            # With mini-batches, no step evaluates all samples, because they may be too many.
            rows = torch.arange(min(hyper.batch_size, len(functional.samples)), device=functional.samples.X.device)
            functional = functional.with_samples(functional.samples.take_rows(rows))
    functional = functional.to(cloud.theta.device, cloud.theta.dtype)
    try:
        value = functional.value(cloud.theta, cloud.rho)
        potentials = functional.potentials(cloud.theta, cloud.rho, hyper)
    except NonFiniteGradient as error:
        _refuse_non_finite_part(functional, cloud)
        raise InputError(f"{error.problem} of the initial cloud", REMEDY) from error
    except ProxlearnError:
        raise
    except USER_ERRORS as error:
        problem = f"{type(functional).__name__} cannot be evaluated at the initial cloud"
        raise user_function_error(problem, error, "check the shapes and operations of its functions") from error
    quantities = {"value": value, "first variation": potentials.w, "gradient": potentials.gradient}
    for quantity, numbers in quantities.items():
        if not bool(torch.isfinite(torch.as_tensor(numbers)).all()):
            _refuse_non_finite_part(functional, cloud)
            problem = f"the {quantity} of {type(functional).__name__} is not finite at the initial cloud"
            raise InputError(problem, REMEDY)


def _has_own_parts(risk: Risk) -> bool:
    """Return whether the neuron, the activation or the loss of a risk is user-defined."""
    neuron = risk.neuron
    own_activation = isinstance(neuron, Perceptron) and neuron.activation.name not in ACTIVATIONS
    own_neuron = not isinstance(neuron, Perceptron | Softmax)
    return own_activation or own_neuron or risk.loss.name not in get_args(options.Loss)


def _refuse_non_finite_part(functional: Functional, cloud: PointCloud) -> None:
    """Raise an InputError that names the function and a particle if V, W or the neuron is not finite."""
    theta, rho = cloud.theta, cloud.rho
    values: dict[str, Tensor] = {}
    if isinstance(functional, Energy):
        if functional.V is not None:
            values["V"] = Energy(V=functional.V, blocks=functional.blocks).first_variation(theta, rho)
        if functional.W is not None:
            values["W"] = Energy(W=functional.W, blocks=functional.blocks).first_variation(theta, rho)
    elif isinstance(functional, Risk):
        response = functional.neuron.respond(theta, functional.samples)
        ones = torch.ones(functional.samples.y.numel(), 1, dtype=theta.dtype, device=theta.device)
        values[f"the output of the neuron `{functional.neuron.name}`"] = response.over_samples(ones)[:, 0]
    for name, numbers in values.items():
        bad = (~torch.isfinite(numbers)).nonzero()
        if len(bad):
            problem = f"{name} is not finite at particle {int(bad[0])} of the initial cloud"
            raise InputError(problem, f"correct {name}, or start from a cloud where it is finite")
