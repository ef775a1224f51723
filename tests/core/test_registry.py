"""Registries: own parts, registered parts, parts of packages, and one-line errors.

tests/test_plugins.py installs an example package and trains with it.

``losses.check`` accepts every convex loss, and names what is wrong with another one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import proxlearn as pl
from proxlearn.core import options
from proxlearn.core.losses import LOSSES, Loss, find_loss, with_link
from proxlearn.core.neurons.activations import Activation
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.neurons.registry import NEURONS, make_neuron
from proxlearn.core.registry import LOSS_GROUP, Registry, accept_any_name, plugin_names, registered
from proxlearn.core.weight_updates import UPDATES
from proxlearn.errors import InputError
from proxlearn.run.experiment import choose_loss
from tests.core.test_part_checks import X, make_loss


def test_parts_are_found_by_name_and_unknown_names_get_the_nearest() -> None:
    registry: Registry[int] = Registry("number", "proxlearn.nothing", {"one": 1, "two": 2})
    assert registry["one"] == 1
    assert registry.names() == list(registry) == ["one", "two"]
    with pytest.raises(InputError, match=r"unknown number `on`; did you mean `one`\?"):
        registry["on"]


def test_a_registered_part_cannot_replace_another_and_can_be_removed() -> None:
    registry: Registry[int] = Registry("number", "proxlearn.nothing", {"one": 1}, "an int", lambda x: type(x) is int)
    registry.register("three", 3)
    assert "three" in registry
    assert registry.own_names == ("one",)
    with pytest.raises(InputError, match="already"):
        registry.register("one", 7)
    registry.unregister("three")
    assert "three" not in registry
    for name in ("one", "three"):
        with pytest.raises(InputError, match=f"the number `{name}` was not registered in this process"):
            registry.unregister(name)
    with pytest.raises(InputError, match="number `four` cannot be 'iv'; give an int"):
        registry.register("four", "iv")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must be a word of letters, digits"):
        registry.register("a b", 4)


def test_a_registered_neuron_keeps_its_activation() -> None:
    swish = Perceptron(Activation("swish", lambda z: z * torch.sigmoid(z)))
    NEURONS.register("swish", swish)
    try:
        assert make_neuron("swish", 2, "tanh") == swish
    finally:
        NEURONS.unregister("swish")
    NEURONS.register("nothing", lambda classes: None)  # type: ignore[arg-type, return-value]
    try:
        with pytest.raises(InputError, match="neuron `nothing` is a function that returned an object of type NoneType"):
            make_neuron("nothing", 2, "tanh")
    finally:
        NEURONS.unregister("nothing")


def test_the_options_that_are_checked_without_torch_are_the_registries_own_names() -> None:
    assert get_args(options.Neuron) == NEURONS.own_names
    assert get_args(options.Loss) == LOSSES.own_names
    assert get_args(options.Weights) == UPDATES.own_names


def test_a_registered_part_is_a_valid_option(monkeypatch: pytest.MonkeyPatch) -> None:
    check = registered(Literal["quadratic"], LOSS_GROUP)
    LOSSES.register("mine", LOSSES["huber"])
    try:
        assert check("loss", "mine") == "mine"
    finally:
        LOSSES.unregister("mine")
    with pytest.raises(InputError, match=r"choose loss=quadratic, install the package .*, or call proxlearn\.los"):
        check("loss", "mine")


def test_a_package_is_listed_without_import_and_imported_by_name(fake_package: Callable[..., None]) -> None:
    fake_package("other-numbers", "part = 7", numbers="seven")
    registry: Registry[int] = Registry("number", "proxlearn.numbers", {"one": 1}, "an int", lambda x: type(x) is int)
    assert registry.names() == ["one", "seven"]
    assert "seven" in registry
    assert registered(Literal["one"], "proxlearn.numbers")("number", "seven") == "seven"
    assert "other_numbers" not in sys.modules
    assert registry["seven"] == 7


def test_a_package_does_not_replace_a_part_of_proxlearn(fake_package: Callable[..., None]) -> None:
    fake_package("thief", "raise RuntimeError", losses="quadratic", neurons="tanh", weights="uniform")
    assert find_loss("quadratic").name == "quadratic"
    assert make_neuron("tanh", 2, None) == Perceptron()
    assert UPDATES.names() == list(UPDATES.own_names)
    assert callable(UPDATES["uniform"])


def test_two_packages_with_one_name_are_both_named(fake_package: Callable[..., None]) -> None:
    fake_package("first", "part = 1", numbers="seven")
    fake_package("second", "part = 2", numbers="seven")
    registry: Registry[int] = Registry("number", "proxlearn.numbers", {})
    assert registry.names() == ["seven"]
    with pytest.raises(InputError, match="the packages first and second each add a number called `seven`; keep only"):
        registry["seven"]


@pytest.mark.parametrize(
    "code, reason",
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise ValueError('two\\nlines')", "ValueError: two lines"),
        ("raise SystemExit", "SystemExit"),
        ("", "AttributeError"),
        ("part = (", "SyntaxError"),
    ],
)
def test_a_package_that_cannot_be_imported_is_named_in_one_line(
    code: str, reason: str, fake_package: Callable[..., None]
) -> None:
    fake_package("broken-one", code, losses="theirs")
    with pytest.raises(InputError) as caught:
        find_loss("theirs")
    assert str(caught.value).startswith(f"the loss `theirs` of the package broken-one cannot be imported ({reason}")
    assert str(caught.value).endswith("; reinstall or remove broken-one")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "code, problem",
    [
        ("part = 3", "is invalid: it must be a Loss, or a function without arguments that returns one"),
        ("part = dict", "returns an object of type dict instead of Loss"),
        ("def part(delta): ...", "cannot be created \\(TypeError: "),
    ],
)
def test_an_entry_point_of_the_wrong_kind_is_refused(
    code: str, problem: str, fake_package: Callable[..., None]
) -> None:
    fake_package("odd", code, losses="theirs")
    with pytest.raises(InputError, match=f"the loss `theirs` of the package odd {problem}.*; upgrade or remove odd"):
        find_loss("theirs")


@pytest.mark.parametrize("part", ["Huber", "Huber(2.0)", "lambda: Huber(2.0)"])
def test_a_loss_is_an_object_a_class_or_a_function(part: str, fake_package: Callable[..., None]) -> None:
    fake_package("more-losses", f"from proxlearn.core.losses import Huber\npart = {part}", losses="theirs")
    assert isinstance(find_loss("theirs"), Loss)


def test_a_perceptron_of_a_package_keeps_its_activation(fake_package: Callable[..., None]) -> None:
    code = (
        "from proxlearn.core.neurons.activations import ACTIVATIONS\n"
        "from proxlearn.core.neurons.perceptron import Perceptron\n"
        "part = Perceptron(ACTIVATIONS['cos'])\n"
    )
    fake_package("waves", code, neurons="wave")
    neuron = make_neuron("wave", 2, "tanh")
    assert isinstance(neuron, Perceptron)
    assert neuron.activation.name == "cos"
    with pytest.raises(InputError, match="activation=relu does not apply to the wave neuron"):
        make_neuron("wave", 2, "relu")


def test_names_are_not_looked_up_where_a_run_is_only_shown() -> None:
    check = registered(options.Loss, LOSS_GROUP)
    with accept_any_name():
        assert check("loss", "theirs") == "theirs"
        with pytest.raises(InputError, match="must be a word"):
            check("loss", ["theirs"])
    with pytest.raises(InputError, match="loss cannot be 'theirs'"):
        check("loss", "theirs")
    assert plugin_names(LOSS_GROUP) == []


def squares(f: Tensor, y: Tensor) -> Tensor:
    return (f - y).square().sum(0) if f.ndim == 2 else (f - y).square()


def softmax_loss(f: Tensor, y: Tensor) -> Tensor:
    return torch.logsumexp(f, 0) - (y * f).sum(0)


BINARY: Any = {"tasks": ("binary",)}
REGRESSION: Any = {"tasks": ("regression",)}
MULTICLASS: Any = {"tasks": ("multiclass",), "smoothness": 0.5}
UNSUITABLE: dict[str, tuple[Callable[[Tensor, Tensor], Any], dict[str, Any], str]] = {
    "wrong sign": (
        squares,
        {"derivative": lambda self, f, y: 2 * (y - f)},
        "`derivative` .* has the wrong sign: at f =",
    ),
    "half": (
        squares,
        {"derivative": lambda self, f, y: f - y},
        "`derivative` .* is wrong: .* but the difference quotient",
    ),
    "half of two": (
        softmax_loss,
        MULTICLASS | {"derivative": lambda self, f, y: (f.softmax(0) - y) / 2},
        r"`derivative` .* is wrong: at f = \(.*, .*, .*\) and y = \(.*\) in the direction",
    ),
    "not a number": (squares, {"derivative": lambda self, f, y: (f - y) / 0 * 0}, "`derivative` .* it is nan"),
    "detached": (lambda f, y: (f - y).detach() * (f - y), REGRESSION, "is wrong: .* in `value`, without detach"),
    "not convex": (lambda f, y: torch.log1p(squares(f, y)), {}, "not convex in f: .* in the middle between them"),
    "sigmoid": (lambda f, y: torch.sigmoid(-y * f), BINARY, "not convex in f"),
    "linear": (lambda f, y: y * f, REGRESSION, "no lower bound: .* at f = .* and y = .*; define .* for your targets"),
    "large": (lambda f, y: 1e9 - f, REGRESSION, "no lower bound"),
    "labels 0 and 1": (
        lambda f, y: torch.nn.functional.softplus(f) - y * f,
        BINARY,
        "no lower bound: .* y = -1; .* -1 and",
    ),
    "steep": (
        lambda f, y: 10 * squares(f, y),
        {},
        "`smoothness` .* is 2, but the second derivative is about 20 .* 20$",
    ),
    "kink": (
        lambda f, y: (f - y).abs(),
        REGRESSION | {"smoothness": 1.0},
        "has no upper bound; leave `smoothness` out",
    ),
    "exponential": (lambda f, y: torch.exp(-y * f), BINARY | {"smoothness": 9.0}, "has no upper bound; leave"),
    "no number": (squares, {"smoothness": 0}, "`smoothness` of the loss `own` is 0; give an upper bound"),
    "infinite": (lambda f, y: torch.sqrt(f - y), REGRESSION, "`value` of the loss `own` is nan at f ="),
    "mean": (lambda f, y: squares(f, y).mean(), {}, r"returned a tensor of the shape \(\)"),
    "reversed": (
        lambda f, y: (1 + y * f).clamp_min(0),
        BINARY,
        "correct output is too large: at y = .*; make the loss",
    ),
    "swapped": (
        lambda f, y: (1 - y * f).clamp_min(0),
        BINARY | {"probabilities": lambda self, f: torch.cat((f, -f)).softmax(0)},
        r"disagree .* f = .* predicts class 1, .* \(1, .*\); .* row 1 is the class \+1",
    ),
    "constant": (
        lambda f, y: (1 - y * f).clamp_min(0),
        BINARY | {"probabilities": lambda self, f: torch.full((2, f.shape[1]), 0.5)},
        r"disagree .* the probabilities are \(0.5, 0.5\)",
    ),
    "flipped": (
        softmax_loss,
        MULTICLASS | {"probabilities": lambda self, f: f.flip(0).softmax(0)},
        "disagree .* row c is the class of output c",
    ),
    "one row": (
        lambda f, y: (1 - y * f).clamp_min(0),
        BINARY | {"probabilities": lambda self, f: torch.sigmoid(f)},
        "`probabilities` of the loss `own` returned a tensor of the shape",
    ),
    "tasks": (squares, {"tasks": "regression"}, "`tasks` of the loss `own` is 'regression'; give a tuple of 'binary'"),
    "branch": (
        lambda f, y: squares(f, y) if f.max() == 0 else f[::3] - y,
        {},
        "cannot be evaluated for the task 'binary'",
    ),
}


@pytest.mark.parametrize("name", UNSUITABLE)
def test_the_check_of_a_loss_names_what_is_wrong(name: str) -> None:
    function, members, message = UNSUITABLE[name]
    loss = make_loss(function)
    for member, value in members.items():
        setattr(type(loss), member, value)
    with pytest.raises(pl.InputError, match=message):
        pl.losses.check(loss)


def test_the_check_refuses_wrong_arguments() -> None:
    with pytest.raises(pl.InputError, match="`huber` does not support the task 'binary'; choose from 'regression'"):
        pl.losses.check("huber", "binary")
    with pytest.raises(pl.InputError, match=r"give an object, Huber\(\)"):
        pl.losses.check(pl.losses.Huber)  # type: ignore[arg-type]
    with pytest.raises(pl.InputError, match=r"y has the shape \(6, 2\); give one target per sample"):
        pl.losses.check("huber", y=X)


@pytest.mark.parametrize("link_slope", [None, 1e-3, 0.3, 1e3])
def test_the_losses_for_classes_pass_the_check(link_slope: float | None) -> None:
    for name in ("quadratic", "logistic", "cross_entropy"):
        pl.losses.check(name)
        pl.losses.check(with_link(find_loss(name), link_slope))


@given(st.floats(-6, 6), st.floats(-6, 6), st.floats(-3, 3))
@settings(max_examples=25, deadline=None)
def test_the_losses_for_numbers_pass_the_check_in_any_unit(delta: float, unit: float, offset: float) -> None:
    y = 10**unit * (torch.randn(50, generator=torch.Generator().manual_seed(0)).double() + offset)
    pl.losses.check(pl.losses.Huber(10**delta))
    pl.losses.check(pl.losses.Huber(10 ** (delta + unit)), y=y)
    pl.losses.check(pl.losses.quadratic, "regression", y)


@given(st.floats(0.01, 0.99), st.floats(0.1, 10))
@settings(max_examples=25, deadline=None)
def test_convex_losses_of_a_user_pass_the_check(level: float, width: float) -> None:
    def log_cosh(f: Tensor, y: Tensor) -> Tensor:
        distance = (f - y) / width
        return torch.nn.functional.softplus(2 * distance) - distance

    hinge = make_loss(lambda f, y: (width - y * f).clamp_min(0).square(), ("binary",))
    type(hinge).probabilities = lambda self, f: torch.cat((-f, f)).softmax(0)  # type: ignore[method-assign]
    smooth = make_loss(log_cosh, ("regression",))
    type(smooth).smoothness = max(2.0, width**-2)
    losses = (
        hinge,
        smooth,
        make_loss(lambda f, y: torch.maximum(level * (y - f), (level - 1) * (y - f)), ("regression",)),
        make_loss(lambda f, y: (f - y).abs() ** 3, ("regression",)),
        make_loss(lambda f, y: (width - y * f).clamp_min(0), ("binary",)),
        make_loss(lambda f, y: torch.exp(-width * y * f), ("binary",)),
    )
    for loss in losses:
        pl.losses.check(loss)
    poisson = make_loss(lambda f, y: torch.exp(f) - y * f, ("regression",))
    pl.losses.check(poisson, y=[0, 1, 3, 7])


def test_the_error_for_an_unsuitable_loss_lists_the_registered_losses_for_the_task() -> None:
    LOSSES.register("cubes", make_loss(lambda f, y: (f - y).abs() ** 3, ("regression",), "cubes"))
    LOSSES.register("margin", make_loss(lambda f, y: (1 - y * f).clamp_min(0), ("binary",), "margin"))
    LOSSES.register("broken", lambda: 1)  # type: ignore[arg-type, return-value]
    try:
        with pytest.raises(
            InputError, match=r"does not support dataset.task=regression; choose loss=quadratic\|huber\|cubes$"
        ):
            choose_loss("logistic", Perceptron(), "regression")
        with pytest.raises(ValueError, match=r"real targets; choose loss=quadratic\|huber\|cubes$"):
            pl.ProxLearnRegressor(loss="margin").fit(X.numpy(), X[:, 0].numpy())
    finally:
        for name in ("cubes", "margin", "broken"):
            LOSSES.unregister(name)
