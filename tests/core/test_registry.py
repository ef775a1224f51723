"""Registries: own parts, registered parts, parts of packages, and one-line errors.

tests/test_plugins.py installs an example package and trains with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Literal, get_args

import pytest
import torch

from proxlearn.core import options
from proxlearn.core.losses import LOSSES, Loss, find_loss
from proxlearn.core.neurons.activations import Activation
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.neurons.registry import NEURONS, make_neuron
from proxlearn.core.registry import LOSS_GROUP, Registry, accept_any_name, plugin_names, registered
from proxlearn.core.weight_updates import UPDATES
from proxlearn.errors import InputError


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
