"""Conversions and checks of the neuron and the loss of a Risk.

``check_neuron``, ``check_loss`` and ``check_probabilities`` evaluate a part once before a fit. ``check_properties``
evaluates a loss at thousands of outputs, and is called by the user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from proxlearn.core import options
from proxlearn.core.losses import Loss, find_loss
from proxlearn.core.neurons.activations import ACTIVATIONS
from proxlearn.core.neurons.neuron import Neuron, num_parameters
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.neurons.registry import NEURONS
from proxlearn.core.neurons.softmax import Softmax
from proxlearn.core.samples import Samples
from proxlearn.core.targets import count_outputs
from proxlearn.core.tasks import class_probabilities, propagated_errors
from proxlearn.errors import USER_ERRORS, InputError, did_you_mean, user_function_error
from proxlearn.printable_text import counted

__all__ = [
    "as_loss",
    "as_neuron",
    "check_loss",
    "check_neuron",
    "check_probabilities",
    "check_properties",
]


def as_loss(loss: Any) -> Loss:
    """Return the Loss for an object or a name; raise InputError for anything else."""
    if isinstance(loss, str):
        return find_loss(loss)
    if not isinstance(loss, Loss):
        remedy = f"give an object, {loss.__name__}()" if isinstance(loss, type) else "give a Loss object"
        raise InputError(f"loss is {_describe(loss)}, not a Loss", f"{remedy}, or a name such as loss='logistic'")
    # Closed forms and the encoding of the targets are selected by name.
    if loss.name in get_args(options.Loss) and type(loss).value is not type(find_loss(loss.name)).value:
        raise InputError(f"a loss called `{loss.name}` already exists", "give your loss another value of `name`")
    return loss


def as_neuron(neuron: Any, y: Tensor, loss: Loss) -> Neuron:
    """Return the Neuron for an object or a name; None selects the tanh neuron.

    The name of an activation selects the neuron a sigma(<w, x> + b) with the number of outputs that y and the loss
    need; other names are looked up in the registry.
    """
    if neuron is None or (isinstance(neuron, str) and neuron in ACTIVATIONS):
        return Perceptron(neuron or "tanh", num_outputs=count_outputs(y, loss))
    if isinstance(neuron, str):
        if neuron not in NEURONS:
            raise InputError(f"unknown neuron `{neuron}`", did_you_mean(neuron, {*ACTIVATIONS, *NEURONS}))
        classes = y.shape[1] if y.ndim == 2 else int(y.max()) + 1
        return NEURONS.make(neuron, Neuron, classes)  # type: ignore[type-abstract]
    if not isinstance(neuron, Neuron):
        remedy = "give an object, such as neurons.Tanh() or neurons.FunctionNeuron(phi, blocks)"
        raise InputError(f"neuron is {_describe(neuron)}, not a Neuron", remedy)
    if neuron.name in get_args(options.Neuron) and not isinstance(neuron, Perceptron | Softmax):
        # Compiled functions are selected by name.
        raise InputError(f"a neuron called `{neuron.name}` already exists", "choose another name")
    return neuron


def check_neuron(neuron: Neuron, samples: Samples) -> None:
    """Evaluate a neuron for one particle and one sample; raise InputError if this fails or a shape is wrong."""
    sample = samples.take_rows(torch.arange(1, device=samples.X.device))
    theta = torch.zeros(1, num_parameters(neuron, samples.X.shape[1]), dtype=samples.X.dtype, device=samples.X.device)
    try:
        shape = tuple(neuron.phi(theta, sample).shape)
    except USER_ERRORS as error:
        n_x = samples.X.shape[1]
        problem = f"the neuron `{neuron.name}` cannot be evaluated for one particle and one sample"
        remedy = f"check the blocks of theta and the operations; x has {counted(n_x, 'feature')}"
        raise user_function_error(problem, error, remedy) from error
    if shape != (1, sample.y.numel()):
        expected = (1, sample.y.numel())
        problem = f"the neuron `{neuron.name}` returned a tensor of shape {shape} for one sample, not {expected}"
        raise InputError(problem, "make outputs(theta, X) return a tensor of shape N x outputs x n")


def check_loss(loss: Loss, y: Tensor) -> None:
    """Evaluate a loss once at outputs of 0; raise InputError if this fails or a shape is wrong.

    If ``value`` returned the mean over the samples, the first variation would be too small by a factor of n.
    """
    f = torch.zeros_like(y)
    try:
        value, slope = loss.value(f, y), loss.derivative(f, y)
    except USER_ERRORS as error:
        problem = f"the loss `{loss.name}` cannot be evaluated for outputs of the shape {tuple(f.shape)}"
        remedy = "use only torch operations on f and y, which have the same shape"
        raise user_function_error(problem, error, remedy) from error
    for name, returned, shape in (("value", value, y.shape[-1:]), ("derivative", slope, y.shape)):
        if not isinstance(returned, Tensor) or returned.shape != shape:
            what = (
                f"a tensor of the shape {tuple(returned.shape)}"
                if isinstance(returned, Tensor)
                else _describe(returned)
            )
            remedy = "return one number per sample" + (", summed over the outputs with .sum(0)" if y.ndim == 2 else "")
            problem = f"`{name}` of the loss `{loss.name}` returned {what} for outputs of the shape {tuple(f.shape)}"
            raise InputError(problem, remedy if name == "value" else "return a tensor of the shape of f")


def check_probabilities(loss: Loss, outputs: int) -> None:
    """Evaluate the class probabilities of a loss at seven samples; raise InputError if this fails or a sum is wrong."""
    f = torch.linspace(-3, 3, 7, dtype=torch.float64) * torch.linspace(1, -1, outputs, dtype=torch.float64)[:, None]
    try:
        if class_probabilities(loss, f) is not None:
            propagated_errors(loss, f, torch.ones_like(f))
    except USER_ERRORS as error:
        problem = f"`probabilities` of the loss `{loss.name}` cannot be evaluated for outputs of the shape"
        raise user_function_error(f"{problem} {tuple(f.shape)}", error, "use only torch operations on f") from error


@dataclass(frozen=True)
class Trial:
    """Pairs of outputs, f and g, with targets y, at which the properties of a loss are checked."""

    f: Tensor
    g: Tensor
    y: Tensor
    scale: float
    """The standard deviation of the targets, which is the unit of the outputs."""

    def at(self, i: int, values: Tensor | None = None) -> str:
        """Describe sample i of ``values``, by default of f, and its target."""
        return f"f = {_numbers(self.f if values is None else values, i)} and y = {_numbers(self.y, i)}"


PAIRS = 4096
"""Number of pairs of outputs at which a loss is checked."""
TARGETS_HINT = {
    "binary": "; y contains -1 and +1",
    "multiclass": "; y contains one-hot columns",
    "regression": "; if it is bounded for your targets, give them as y",
}


def check_properties(loss: Loss, task: options.Task, targets: Tensor | None) -> None:
    """Raise InputError if a loss does not have the properties that a fit for ``task`` needs.

    The outputs are drawn at random with a fixed seed, so that none of them is at a kink of the loss.
    """
    trial = _draw_trial(task, targets)
    check_loss(loss, trial.y)
    try:
        _check_derivative(loss, trial)
        _check_convexity(loss, trial)
        _check_tails(loss, trial, TARGETS_HINT[task])
        _check_smoothness(loss, trial)
        if task != "regression":
            _check_classes(loss, trial, TARGETS_HINT[task])
    except USER_ERRORS as error:
        problem = f"the loss `{loss.name}` cannot be evaluated for the task {task!r}"
        remedy = "use only torch operations on f and y, which have the same shape"
        raise user_function_error(problem, error, remedy) from error


def _draw_trial(task: options.Task, targets: Tensor | None) -> Trial:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def distances(low: float, high: float) -> Tensor:
        return 10 ** (low + (high - low) * torch.rand(PAIRS, generator=generator, dtype=torch.float64))

    if task == "regression":
        y = normal(PAIRS) if targets is None else targets.double().repeat(-(-PAIRS // len(targets)))[:PAIRS]
        scale, centre = float(y.std()) or 1.0, y
    else:
        number = torch.arange(PAIRS)
        y = 2.0 * (number % 2) - 1 if task == "binary" else torch.eye(3)[number % 3].T
        y = y.double()
        scale, centre = 1.0, torch.zeros_like(y)
    f = centre + scale * distances(-2, 0.7) * normal(*y.shape)
    return Trial(f, f + scale * distances(-3, 0.7) * normal(*y.shape), y, scale)


def _check_derivative(loss: Loss, trial: Trial) -> None:
    """Raise InputError if the derivative is not between the two one-sided difference quotients of the value."""
    f, y = trial.f, trial.y
    step = 1e-5 * trial.scale
    direction = (trial.g - f) / _norm(trial.g - f)
    value, right, left = (_finite_value(loss, f + shift * direction, y) for shift in (0.0, step, -step))
    quotients = torch.stack(((right - value) / step, (value - left) / step))
    low, high = quotients.amin(dim=0), quotients.amax(dim=0)
    rounding = 1e-15 * torch.maximum(left.abs(), right.abs()) / step
    margin = 1e-4 * quotients.abs().sum(dim=0) + 1e-6 * float(quotients.abs().mean()) + rounding
    slope = _total(loss.derivative(f, y) * direction)

    def errors(slope: Tensor) -> Tensor:
        # NaN, in a derivative that is not finite, counts as an error.
        return torch.where(torch.isfinite(slope), torch.maximum(low - slope, slope - high) - margin, torch.inf)

    error = errors(slope)
    if float(error.max()) <= 0:
        return
    i = int(error.argmax())
    # With one output, the direction is -1 or +1.
    sign, where = (float(direction[i]), "") if f.ndim == 1 else (1.0, f" in the direction {_numbers(direction, i)}")
    quotient = sign * float(low[i] + high[i]) / 2
    fault = "has the wrong sign" if float(errors(-slope).max()) <= 0 else "is wrong"
    problem = f"`derivative` of the loss `{loss.name}` {fault}: at {trial.at(i)}{where}, it is"
    raise InputError(
        f"{problem} {sign * float(slope[i]):.4g}, but the difference quotient of `value` is {quotient:.4g}",
        "use only torch operations on f in `value`, without detach"
        if type(loss).derivative is Loss.derivative
        else "return the derivative of `value` with respect to f, or leave `derivative` out",
    )


def _check_convexity(loss: Loss, trial: Trial) -> None:
    f, g, y = trial.f, trial.g, trial.y
    at_f, at_g, middle = (_finite_value(loss, outputs, y) for outputs in (f, g, (f + g) / 2))
    size = at_f.abs() + at_g.abs()
    excess = middle - (at_f + at_g) / 2 - 1e-9 * size - 1e-12 * float(size.mean())
    if float(excess.max()) > 0:
        i = int(excess.argmax())
        problem = f"the loss `{loss.name}` is not convex in f: for y = {_numbers(y, i)}, it is {_numbers(at_f, i)} at"
        problem = f"{problem} f = {_numbers(f, i)} and {_numbers(at_g, i)} at f = {_numbers(g, i)}, but"
        problem = f"{problem} {_numbers(middle, i)} in the middle between them"
        raise InputError(problem, "define a `value` that is convex in f; with another loss, the fit may be poor")


def _check_tails(loss: Loss, trial: Trial, hint: str) -> None:
    """Raise InputError if the loss decreases without a lower bound along a line.

    A loss with a lower bound decreases less between the distances 1e4 and 1e6 than between 1e2 and 1e4; for
    -log(1 + f), which has no lower bound but decreases slowly, both decreases are equal.
    """
    direction = (trial.g - trial.f) / _norm(trial.g - trial.f) * trial.scale
    near, far, farthest = (loss.value(trial.y + t * direction, trial.y) for t in (1e2, 1e4, 1e6))
    falls = (far - farthest > 0.9 * (near - far)) & (far - farthest > 1e-6 * trial.scale)
    if bool(falls.any()):
        i = int((far - farthest).masked_fill(~falls, 0).argmax())
        numbers = _numbers(trial.y + 1e6 * direction, i)
        problem = f"the loss `{loss.name}` has no lower bound: it is {_numbers(farthest, i)} at f = {numbers} and"
        remedy = f"define a `value` that is bounded below, such as one >= 0{hint}"
        raise InputError(f"{problem} y = {_numbers(trial.y, i)}", remedy)


def _check_smoothness(loss: Loss, trial: Trial) -> None:
    """Raise InputError if the derivative changes by more than ``smoothness`` times the distance of two outputs.

    If the second derivative has no upper bound, ``smoothness`` must have its default value.
    """
    bound: Any = loss.smoothness
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not 0 < bound < torch.inf:
        problem = f"`smoothness` of the loss `{loss.name}` is {bound!r:.100}"
        raise InputError(problem, "give an upper bound on the second derivative, a number > 0")

    def curvature(f: Tensor, g: Tensor, y: Tensor) -> Tensor:
        return _norm(loss.derivative(g, y) - loss.derivative(f, y)) / _norm(g - f)

    f, g, y = trial.f, trial.g, trial.y
    all_curvatures = curvature(f, g, y)
    largest = float(all_curvatures.max())
    if largest <= bound * (1 + 1e-6):
        return
    i = int(all_curvatures.argmax())
    f, g, y = f[..., i : i + 1], g[..., i : i + 1], y[..., i : i + 1]
    farther = float(curvature(4 * f, 4 * g, y))
    for _ in range(10):
        middle = (f + g) / 2
        f, g = max(((f, middle), (middle, g)), key=lambda pair: float(curvature(pair[0], pair[1], y)))
    # The quotient at a kink is doubled by every bisection; a second derivative without a bound grows with f.
    has_bound = float(curvature(f, g, y)) < 10 * largest and farther < 1.5 * largest
    if has_bound:
        problem = f"`smoothness` of the loss `{loss.name}` is {bound:g}, but the second derivative is about"
        remedy = f"set smoothness to an upper bound, at least {largest:.3g}"
        raise InputError(f"{problem} {largest:.3g} at {trial.at(i)}", remedy)
    if bound != Loss.smoothness:
        problem = f"`smoothness` of the loss `{loss.name}` is {bound:g}, but its second derivative has no upper bound"
        raise InputError(problem, f"leave `smoothness` out: the default is {Loss.smoothness:g}")


def _check_classes(loss: Loss, trial: Trial, hint: str) -> None:
    """Raise InputError if the loss or its probabilities prefer a wrong class.

    The loss must be smaller for f = 2 y than for f = -2 y, and the predicted class must have the largest probability.
    """
    y = trial.y
    outputs = len(y) if y.ndim == 2 else 1
    right, wrong = loss.value(2 * y, y), loss.value(-2 * y, y)
    if bool((right >= wrong).any()):
        i = int((right - wrong).argmax())
        problem = f"the loss `{loss.name}` of a correct output is too large: at y = {_numbers(y, i)}, it is"
        problem = f"{problem} {_numbers(right, i)} for f = {_numbers(2 * y, i)} and {_numbers(wrong, i)} for"
        raise InputError(f"{problem} f = {_numbers(-2 * y, i)}", f"make the loss of f = 2 y the smaller one{hint}")
    check_probabilities(loss, outputs)
    f = trial.f.reshape(outputs, -1)
    p = class_probabilities(loss, f)
    if p is None:
        return
    predicted = (f[0] > 0).long() if outputs == 1 else f.argmax(dim=0)
    of_predicted = p.gather(0, predicted[None])[0]
    excess = p.amax(dim=0) - of_predicted
    if float(excess.max()) > 1e-9 or float(p.std(dim=1).max()) == 0:
        i = int(excess.argmax())
        problem = f"`probabilities` of the loss `{loss.name}` disagree with the predicted class: f = {_numbers(f, i)}"
        problem = f"{problem} predicts class {int(predicted[i])}, but the probabilities are {_numbers(p, i)}"
        rule = "row 1 is the class +1, which f > 0 predicts" if outputs == 1 else "row c is the class of output c"
        raise InputError(problem, f"give the predicted class the largest probability; {rule}")


def _finite_value(loss: Loss, f: Tensor, y: Tensor) -> Tensor:
    value = loss.value(f, y)
    bad = (~torch.isfinite(value)).nonzero()
    if len(bad):
        i = int(bad[0])
        problem = f"`value` of the loss `{loss.name}` is {_numbers(value, i)} at f = {_numbers(f, i)} and"
        raise InputError(f"{problem} y = {_numbers(y, i)}", "define a loss that is finite for every f")
    return value


def _total(values: Tensor) -> Tensor:
    return values.sum(dim=0) if values.ndim == 2 else values


def _norm(values: Tensor) -> Tensor:
    return values.norm(dim=0) if values.ndim == 2 else values.abs()


def _numbers(values: Tensor, i: int) -> str:
    """Format the values of sample i."""
    listed = [f"{value + 0.0:.4g}" for value in values[..., i].reshape(-1).tolist()]
    return listed[0] if len(listed) == 1 else f"({', '.join(listed)})"


def _describe(value: Any) -> str:
    """Describe an invalid argument for an error message."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"the function {value.__name__}" if hasattr(value, "__name__") else f"{value!r:.100}"
