"""A user's loss and neuron: what a Risk accepts, how it interprets y, and what it rejects in one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import proxlearn as pl
from proxlearn.core.options import Task

X, LABELS = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64), torch.arange(6) % 3


def make_loss(
    function: Callable[[Tensor, Tensor], Any], tasks: tuple[Task, ...] = pl.losses.Loss.tasks, name: str = "own"
) -> pl.losses.Loss:
    members = {"value": lambda self, f, y: function(f, y), "tasks": tasks, "name": name}
    loss: pl.losses.Loss = type("Own", (pl.losses.Loss,), members)()
    return loss


ONE_STEP: dict[str, Any] = {"N": 5, "steps": 1, "beta": 1.0, "h": 0.1, "epsilon": 1.0, "random_state": 0}
REDUCTIONS: dict[str, tuple[Callable[[Tensor, Tensor], Any], int, str]] = {
    "mean": (
        lambda f, y: (f - y).abs().mean(),
        1,
        r"returned a tensor of the shape \(\) for outputs of the shape \(6,\)",
    ),
    "sum of one output": (lambda f, y: (f - y).abs().sum(0), 1, r"returned a tensor of the shape \(\)"),
    "outputs": (
        lambda f, y: (f - y).abs(),
        3,
        r"returned a tensor of the shape \(3, 6\) .* per sample, summed over the outputs with .sum\(0\)",
    ),
    "samples": (
        lambda f, y: (f - y).abs().sum(1),
        3,
        r"returned a tensor of the shape \(3,\) for outputs of the shape \(3, 6\)",
    ),
    "number": (lambda f, y: 1.0, 1, "cannot be evaluated|returned 1.0"),
    "constant": (lambda f, y: y.abs(), 1, "cannot be evaluated for outputs"),
    "error": (lambda f, y: f.no_such_name, 1, "cannot be evaluated .* no attribute"),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_loss_returns_one_number_per_sample(name: str) -> None:
    function, outputs, message = REDUCTIONS[name]
    targets = torch.randn(6, outputs, dtype=torch.float64)
    with pytest.raises(pl.InputError, match=message):
        pl.Risk(X, targets, loss=make_loss(function))
    X_rows, y = X.numpy(), targets.numpy()
    with pytest.raises(ValueError, match=message):
        pl.ProxLearnRegressor(N=5, steps=1, beta=1.0, h=0.1, epsilon=1.0, loss=make_loss(function)).fit(X_rows, y)


def test_a_closed_derivative_has_the_shape_of_the_outputs() -> None:
    loss = make_loss(lambda f, y: (f - y).abs())
    type(loss).derivative = lambda self, f, y: (f - y).sign().sum()  # type: ignore[method-assign]
    with pytest.raises(
        pl.InputError, match=r"`derivative` of the loss `own` returned a tensor of the shape \(\) .* shape of f"
    ):
        pl.Risk(X, LABELS, loss=loss)


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_sum_over_the_outputs_has_the_first_variation_of_the_mean_loss(outputs: int) -> None:
    loss = make_loss(lambda f, y: (f - y).square().sum(0) if f.ndim == 2 else (f - y).square())
    y = torch.randn(6, outputs, dtype=torch.float64)
    own, ours = pl.Risk(X, y, loss=loss), pl.Risk(X, y)
    cloud = pl.init(own, N=7)
    for method in ("value", "first_variation"):
        torch.testing.assert_close(
            getattr(own, method)(cloud.theta, cloud.rho), getattr(ours, method)(cloud.theta, cloud.rho)
        )


def test_the_default_neuron_has_an_output_per_column_and_per_class_of_a_loss_for_classes() -> None:
    soft = np.full((6, 3), 1 / 3)
    for y, loss, outputs in (
        (LABELS, "quadratic", 1),
        (LABELS, "huber", 1),
        (LABELS, "cross_entropy", 3),
        (LABELS > 0, "logistic", 1),
        (soft, "quadratic", 3),
        (soft, "cross_entropy", 3),
        (LABELS, make_loss(lambda f, y: (f * y).sum(0), ("multiclass",)), 3),
        (LABELS > 0, make_loss(lambda f, y: f * y, ("binary", "multiclass")), 1),
    ):
        risk = pl.Risk(X, y, loss=loss)
        assert risk.neuron.num_outputs == outputs, loss
    assert pl.Risk(X, LABELS).samples.y.tolist() == LABELS.tolist(), "labels are numbers where the loss is quadratic"


@pytest.mark.parametrize("labels", [[1, 2, 3, 1, 2, 3], [0, 0, 2, 2, 0, 2], [10**12, 0, 0, 0, 0, 0]])
def test_a_class_without_samples_is_refused_unless_the_neuron_is_given(labels: list[int]) -> None:
    with pytest.raises(pl.InputError, match=r"no sample of class [01]; encode the classes .* neuron with outputs="):
        pl.Risk(X, labels, loss=pl.losses.cross_entropy)
    if max(labels) < 10:
        risk = pl.Risk(X, labels, pl.neurons.Tanh(outputs=4), pl.losses.cross_entropy)
        assert risk.samples.y.shape == (4, 6)


@pytest.mark.parametrize("tasks", [("binary",), ("binary", "multiclass")])
def test_an_own_loss_for_two_classes_gets_the_targets_of_the_logistic_loss(tasks: tuple[Task, ...]) -> None:
    hinge = make_loss(lambda f, y: (1 - y * f).clamp_min(0), tasks, "hinge")
    for y in ((LABELS > 0).long(), LABELS > 0, 2.0 * (LABELS > 0) - 1):
        expected = pl.Risk(X, y, loss="logistic").samples.y
        assert torch.equal(pl.Risk(X, y, loss=hinge).samples.y, expected)
        assert set(expected.tolist()) == {-1.0, 1.0}
    with pytest.raises(pl.InputError, match=r"with the hinge loss, y must contain -1 and \+1"):
        pl.Risk(X, X[:, 0], pl.neurons.Tanh(), loss=hinge)


def test_names_stand_for_losses_and_neurons() -> None:
    assert pl.Risk(X, LABELS > 0, loss="logistic").loss.name == "logistic"
    assert pl.Risk(X, LABELS, "relu", "cross_entropy").neuron == pl.neurons.Relu(outputs=3)
    assert pl.Risk(X, LABELS, "softmax").neuron == pl.neurons.Softmax(3)
    assert pl.Risk(X, LABELS, "tanh").neuron == pl.neurons.Tanh()


PROBABILITIES: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "one row": (
        torch.sigmoid,
        r"returned a tensor of the shape \(1, \d+\) for outputs .*; return the rows 1 - p and p",
    ),
    "transposed": (lambda f: torch.stack((1 - f[0].sigmoid(), f[0].sigmoid()), 1), r"returned a tensor of the shape"),
    "twice the same": (lambda f: torch.sigmoid(f).expand(2, -1), r"the column \(0.04743, 0.04743\) for .* f = \(-3\)"),
    "negative": (lambda f: torch.cat((1.5 + 0 * f, 0 * f - 0.5)), r"the column \(1.5, -0.5\) .*; return numbers >= 0"),
    "not finite": (lambda f: torch.cat((f, 1 - f)) * torch.nan, r"the column \(nan, nan\)"),
    "number": (lambda f: 0.5, "returned 0.5 for outputs"),
    "error": (lambda f: torch.stack((1 - f, f[5])), "cannot be evaluated for outputs of the shape"),
    "branch": (
        lambda f: torch.cat((-f, f)).softmax(0) if f.max() < 9 else f,
        "cannot .*; use torch.where instead of if",
    ),
}


@pytest.mark.parametrize("name", PROBABILITIES)
def test_wrong_probabilities_are_refused_before_the_fit_and_in_predictions(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    function, message = PROBABILITIES[name]
    hinge = make_loss(lambda f, y: (1 - y * f).clamp_min(0).square(), ("binary",), "hinge")
    options: dict[str, Any] = {**ONE_STEP, "loss": hinge}
    fitted = pl.ProxLearnClassifier(**options).fit(X.numpy(), (LABELS > 0).numpy())
    type(hinge).probabilities = lambda self, f: function(f)  # type: ignore[assignment, method-assign, return-value]
    with pytest.raises(ValueError, match=f"`probabilities` of the loss `hinge` .*{message}"):
        pl.ProxLearnClassifier(**options).fit(X.numpy(), (LABELS > 0).numpy())
    if name not in ("error", "branch"):
        with pytest.raises(ValueError, match="`probabilities` of the loss `hinge` returned"):
            fitted.predict_proba(X.numpy())
    pl.losses.register("hinge", hinge)
    try:
        with pytest.raises(pl.InputError, match=message):
            pl.train("dataset=banana", "loss=hinge", "N=5", "steps=1", verbose=False, plots=False)
    finally:
        pl.losses.unregister("hinge")


def test_probabilities_in_single_precision_are_accepted() -> None:
    hinge = make_loss(lambda f, y: (1 - y * f).clamp_min(0), ("binary",), "hinge")
    options: dict[str, Any] = {**ONE_STEP, "loss": hinge}
    type(hinge).probabilities = lambda self, f: torch.cat((-f, f)).float().softmax(0)  # type: ignore[method-assign]
    p = pl.ProxLearnClassifier(**options).fit(X.numpy(), (LABELS > 0).numpy()).predict_proba(X.numpy())
    assert p.dtype == np.float64
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)


FIXED_FORMS = {
    "if": (lambda theta, x: theta["w"][0] if x[0] > 0 else theta["w"][1], "use torch.where instead of if"),
    "max": (
        lambda theta, x: max(theta["w"][0], x[0]),
        "use torch.where instead of if, and torch.maximum instead of max",
    ),
    "float": (lambda theta, x: theta["w"][0] * float(x[0]), "such as torch.sin instead of math.sin"),
    "math": (lambda theta, x: theta["w"][0] * math.sin(x[0]), "such as torch.sin instead of math.sin"),
    "numpy": (lambda theta, x: theta["w"][0] * x.numpy()[0], "use functions of torch instead of NumPy"),
    "mask": (lambda theta, x: theta["w"] @ x[x > 0], "use torch.where instead of a mask"),
}


@pytest.mark.parametrize("name", FIXED_FORMS)
def test_an_operation_that_torch_cannot_vectorise_is_answered_with_another_operation(name: str) -> None:
    function, remedy = FIXED_FORMS[name]
    with pytest.raises(
        pl.InputError, match=rf"cannot be evaluated .*: it (decides|converts|selects) .*; .*{remedy}"
    ) as error:
        pl.Risk(X, X[:, 0], pl.neurons.FunctionNeuron(function, {"w": 2}))
    assert "issue" not in str(error.value)
    assert "report" not in str(error.value)
    if name in ("if", "max"):
        energy = pl.Energy(V=lambda theta: function({"w": theta}, theta), p=2)
        with pytest.raises(pl.InputError, match=rf"V\(theta\) cannot be evaluated .*; {remedy}"):
            energy.first_variation(torch.zeros(1, 2), torch.ones(1))


def test_a_name_registered_twice_is_answered_with_the_way_to_replace_it() -> None:
    for module, part in ((pl.losses, pl.losses.Huber()), (pl.neurons, pl.neurons.Tanh())):
        name = module.__name__.removesuffix("es" if module is pl.losses else "s").removeprefix("proxlearn.")
        module.register("mine", part)  # type: ignore[arg-type]
        with pytest.raises(pl.InputError) as caught:
            module.register("mine", part)  # type: ignore[arg-type]
        remedy = f"call {module.__name__}.unregister('mine') first to replace it, or choose another name"
        assert str(caught.value) == f"a {name} called `mine` already exists; {remedy}"
        module.unregister("mine")
    with pytest.raises(pl.InputError, match=r"already exists; choose another name$"):
        pl.losses.register("huber", pl.losses.Huber())


class Renamed(pl.losses.Huber):
    """A loss that inherits the name of another loss but not its formula."""

    def value(self, f: Tensor, y: Tensor) -> Tensor:
        return (f - y).abs()


FLAT = pl.neurons.FunctionNeuron(lambda theta, x: theta["w"] @ x, {"w": 2}, name="tanh")
WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "loss name": (lambda: pl.Risk(X, LABELS, loss="logistik"), "unknown loss `logistik`; did you mean `logistic`"),
    "loss class": (lambda: pl.Risk(X, LABELS, loss=pl.losses.Huber), r"the class Huber.* give an object, Huber\(\)"),  # type: ignore[arg-type]
    "loss function": (lambda: pl.Risk(X, LABELS, loss=flat), "loss is the function flat, not a Loss"),  # type: ignore[arg-type]
    "loss None": (lambda: pl.Risk(X, LABELS, loss=None), "loss is None, not a Loss"),  # type: ignore[arg-type]
    "inherited name": (lambda: pl.Risk(X, LABELS, loss=Renamed()), "a loss called `huber` already exists"),
    "neuron name": (lambda: pl.Risk(X, LABELS, "tahn"), "unknown neuron `tahn`; did you mean `tanh`"),
    "neuron class": (lambda: pl.Risk(X, LABELS, pl.neurons.Softmax), "neuron is the class Softmax"),  # type: ignore[arg-type]
    "neuron function": (lambda: pl.Risk(X, LABELS, pl.neurons.Tanh), "neuron is the function Tanh"),  # type: ignore[arg-type]
    "compiled name": (lambda: pl.Risk(X, LABELS, FLAT), "a neuron called `tanh` already exists"),
    "huber of classes": (
        lambda: pl.Risk(X, LABELS, pl.neurons.Tanh(3), pl.losses.huber),
        "huber loss does not support classes, but y contains labels for 3 outputs; use losses.cross_entropy",
    ),
    "infinite label": (
        lambda: pl.Risk(X, LABELS / 0.0, loss="cross_entropy"),
        "y contains a number that is not finite",
    ),
    "no labels": (lambda: pl.Risk(X, [], loss="cross_entropy"), r"y has the shape \(0,\), but X has 6 rows"),
}


def flat(f: Tensor, y: Tensor) -> Tensor:
    return f


@pytest.mark.parametrize("name", WRONG)
def test_wrong_parts_are_refused_in_one_sentence(name: str) -> None:
    call, message = WRONG[name]
    with pytest.raises(pl.InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["one output", "cross-entropy", "softmax", "function"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_predict_is_the_normalised_mean_of_the_outputs(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    wave = pl.neurons.FunctionNeuron(lambda theta, x: torch.cos(theta["w"] @ x), {"w": 2})
    risk = {
        "one output": lambda: pl.Risk(X, X[:, 0]),
        "cross-entropy": lambda: pl.Risk(X, LABELS, loss="cross_entropy"),
        "softmax": lambda: pl.Risk(X, LABELS, "softmax"),
        "function": lambda: pl.Risk(X, X[:, 0], wave),
    }[name]()
    theta = pl.init(risk, N=9, dtype=dtype).theta
    rho = torch.arange(1.0, 10.0)
    cloud = pl.PointCloud.from_arrays(theta, rho)
    rows = np.random.default_rng(0).normal(size=(11, 2))
    P = risk.neuron.outputs(theta, torch.from_numpy(rows).to(dtype))
    for estimate, shares in (("weighted", rho / rho.sum()), ("unweighted", torch.full((9,), 1 / 9))):
        expected = torch.einsum("i,icm->mc", shares.to(dtype), P).squeeze(1)
        f = risk.predict(cloud, rows, estimate)
        assert f.dtype == dtype
        assert f.shape == ((11,) if name in ("one output", "function") else (11, 3))
        torch.testing.assert_close(f, expected)
        monkeypatch.setattr("proxlearn.core.tasks.MOST_OUTPUTS", 60)
        torch.testing.assert_close(risk.predict(cloud, rows, estimate), expected)
        monkeypatch.undo()
    weights = pl.PointCloud.from_arrays(theta, rho / rho.sum())
    if name == "one output":
        mean = (risk.predict(weights, X) - X[:, 0].to(dtype)).square().mean()
        torch.testing.assert_close(mean, risk.value(weights.theta, weights.rho))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((X, X), "cloud is of type Tensor; give a PointCloud"),
        ((pl.PointCloud.from_arrays(np.zeros((2, 4))), X[:, :1]), "X has 1 column, but the risk has 2 features"),
        (
            (pl.PointCloud.from_arrays(np.zeros((2, 4))), X, "plain"),
            "unknown estimate 'plain'; choose from weighted, unw",
        ),
        ((pl.PointCloud.from_arrays(np.zeros((2, 3))), X), "a particle has 4 coordinates"),
        ((pl.PointCloud.from_arrays(np.zeros((2, 4))), X * np.nan), "row 0 of X contains a number that is not finite"),
    ],
)
def test_wrong_predictions_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(pl.InputError, match=message):
        pl.Risk(X, X[:, 0]).predict(*arguments)
