"""Laws of every functional: first variation = directional derivative, gradient = autodiff, descent, splitting."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from proxlearn.core.confinement import confinement_strengths
from proxlearn.core.functionals.energy import Energy
from proxlearn.core.functionals.functional import Functional
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.losses import LOSSES
from proxlearn.core.neurons.activations import ACTIVATIONS, Activation, find_activation
from proxlearn.core.neurons.function_neuron import FunctionNeuron
from proxlearn.core.neurons.neuron import Neuron
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.errors import InputError

HYPER = Hyper(beta=1e3, h=1e-3, epsilon=0.1, drift="first_variation", prox_potential="first_variation")
N, SAMPLES, FEATURES, OUTPUTS = 7, 9, 2, 3


def wave(theta: Mapping[str, Tensor], x: Tensor) -> Tensor:
    return theta["a"][0] * torch.cos(theta["w"] @ x)


def bump(theta: Mapping[str, Tensor], x: Tensor) -> Tensor:
    return torch.exp(-((x - theta["centre"]) ** 2).sum() * torch.nn.functional.softplus(theta["width"][0]))


def pair(theta: Mapping[str, Tensor], x: Tensor) -> Tensor:
    return torch.stack([torch.sin(theta["w"] @ x), theta["a"][0] * x[0], theta["a"][0] ** 2 * x[1]])


NEURONS: dict[str, Callable[[], Neuron]] = {
    **{f"{name}": (lambda name=name: Perceptron(ACTIVATIONS[name])) for name in ACTIVATIONS},  # type: ignore[misc]
    **{f"{name} x {OUTPUTS}": (lambda name=name: Perceptron(ACTIVATIONS[name], OUTPUTS)) for name in ACTIVATIONS},  # type: ignore[misc]
    "wave": lambda: FunctionNeuron(wave, {"a": 1, "w": FEATURES}),
    "bump": lambda: FunctionNeuron(bump, {"centre": FEATURES, "width": 1}),
    f"pair x {OUTPUTS}": lambda: FunctionNeuron(pair, {"a": 1, "w": FEATURES}, OUTPUTS),
}
ONE_OUTPUT = ("quadratic", "logistic", "huber")
SEVERAL_OUTPUTS = ("quadratic", "cross_entropy", "huber")
RISKS = [(loss, neuron) for neuron in NEURONS for loss in (SEVERAL_OUTPUTS if " x " in neuron else ONE_OUTPUT)]
ENERGIES: dict[str, Callable[[], Energy]] = {
    "V": lambda: Energy(V=lambda t: ((t**2 - 1) ** 2).sum(), p=3),
    "W": lambda: Energy(W=lambda t, s: torch.log1p(((t - s) ** 2).sum()), p=3),
    "V and W": lambda: Energy(V=lambda t: t.square().sum(), W=lambda t, s: torch.exp(-((t - s) ** 2).sum()), p=3),
}


def make_risk(loss: str, neuron: str, seed: int, **arguments: object) -> Risk:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(SAMPLES, FEATURES, generator=generator, dtype=torch.float64)
    if loss == "cross_entropy":
        y = torch.nn.functional.one_hot(torch.randint(OUTPUTS, (SAMPLES,), generator=generator), OUTPUTS).double()
    elif loss == "logistic":
        y = 2.0 * torch.randint(2, (SAMPLES,), generator=generator).double() - 1
    elif " x " in neuron:
        y = torch.randn(SAMPLES, OUTPUTS, generator=generator, dtype=torch.float64)
    else:
        y = torch.randn(SAMPLES, generator=generator, dtype=torch.float64)
    return Risk(X, y, NEURONS[neuron](), LOSSES[loss](), **arguments)  # type: ignore[arg-type]


def draw_cloud(functional: Functional, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed + 1)
    theta = torch.randn(N, sum(functional.blocks.values()), generator=generator, dtype=torch.float64)
    rho = torch.rand(N, generator=generator, dtype=torch.float64) + 0.1
    return theta, rho / rho.sum()


def check_first_variation(functional: Functional, seed: int) -> None:
    """Check that d/dt F(rho + t mu) at 0 is <phi_rho(theta), mu> for signed weights mu with sum 0."""
    theta, rho = draw_cloud(functional, seed)
    mu = torch.randn(N, generator=torch.Generator().manual_seed(seed + 2), dtype=torch.float64)
    mu = mu - mu.mean()
    t = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(functional.value(theta, rho + t * mu), t)
    torch.testing.assert_close(functional.first_variation(theta, rho) @ mu, slope, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(functional.potentials(theta, rho, HYPER).w @ mu, slope, rtol=1e-6, atol=1e-9)


def check_gradient(functional: Functional, seed: int) -> None:
    """Check that rho_i grad phi(theta_i) agrees with autodiff of F."""
    theta, rho = draw_cloud(functional, seed)
    gradient = functional.potentials(theta, rho, HYPER).gradient
    automatic = Functional.potentials(functional, theta, rho, HYPER).gradient
    torch.testing.assert_close(gradient, automatic, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("loss, neuron", RISKS)
@settings(deadline=None, max_examples=8)
@given(st.integers(0, 10**6))
def test_a_risk_keeps_the_laws(loss: str, neuron: str, seed: int) -> None:
    risk = make_risk(loss, neuron, seed)
    check_first_variation(risk, seed)
    check_gradient(risk, seed)


@pytest.mark.parametrize("confinement", [0.3, {"w": 0.5}])
@settings(deadline=None, max_examples=10)
@given(st.integers(0, 10**6))
def test_confinement_and_sample_weights_keep_the_laws(confinement: float | dict[str, float], seed: int) -> None:
    weights = torch.rand(SAMPLES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for loss, neuron in (("quadratic", "tanh"), ("logistic", "relu"), ("cross_entropy", f"tanh x {OUTPUTS}")):
        risk = make_risk(loss, neuron, seed, confinement=confinement, sample_weight=weights)
        check_first_variation(risk, seed)
        check_gradient(risk, seed)


@pytest.mark.parametrize("name", ENERGIES)
@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_an_energy_keeps_the_laws(name: str, seed: int) -> None:
    energy = ENERGIES[name]()
    check_first_variation(energy, seed)
    check_gradient(energy, seed)


@pytest.mark.parametrize("name", ENERGIES)
def test_the_papers_reading_of_an_energy_is_half_the_interaction(name: str) -> None:
    energy, paper = ENERGIES[name](), replace(HYPER, drift="paper", prox_potential="paper")
    theta, rho = draw_cloud(energy, 3)
    potentials = energy.potentials(theta, rho, paper)
    variation = energy.first_variation(theta, rho)
    alone = energy._potential(theta) if energy.V is not None else torch.zeros_like(rho)
    torch.testing.assert_close(potentials.w, (variation + alone) / 2)
    moved = theta.clone().requires_grad_()
    w = energy._weighted(moved, rho, 1.0)
    (gradient,) = torch.autograd.grad(w.sum(), moved)
    torch.testing.assert_close(potentials.gradient, gradient, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("loss, neuron", [("quadratic", "tanh"), ("logistic", "gelu"), ("huber", "sigmoid"),
                                          ("cross_entropy", f"softplus x {OUTPUTS}")])  # fmt: skip
def test_small_steps_without_noise_descend(loss: str, neuron: str) -> None:
    risk = make_risk(loss, neuron, 0)
    theta, rho = draw_cloud(risk, 0)
    values = []
    for _ in range(50):
        values.append(float(risk.value(theta, rho)))
        theta = theta - 0.02 * risk.potentials(theta, rho, HYPER).gradient
    assert all(after < before for before, after in itertools.pairwise(values))


@pytest.mark.parametrize("loss, neuron", RISKS[::4])
def test_splitting_a_particle_changes_neither_value_nor_first_variation(loss: str, neuron: str) -> None:
    risk = make_risk(loss, neuron, 1, confinement=0.1)
    theta, rho = draw_cloud(risk, 1)
    halves = torch.cat((rho[:1] / 2, rho[1:], rho[:1] / 2))
    split = torch.cat((theta, theta[:1]))
    torch.testing.assert_close(risk.value(split, halves), risk.value(theta, rho))
    torch.testing.assert_close(risk.first_variation(split, halves)[:N], risk.first_variation(theta, rho))


@pytest.mark.parametrize(
    "functional", [make_risk("logistic", "relu", 2), ENERGIES["V and W"]()], ids=["risk", "energy"]
)
def test_permuting_the_particles_permutes_the_potentials(functional: Functional) -> None:
    theta, rho = draw_cloud(functional, 2)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(0))
    here, there = functional.potentials(theta, rho, HYPER), functional.potentials(theta[order], rho[order], HYPER)
    torch.testing.assert_close(there.w, here.w[order])
    torch.testing.assert_close(there.gradient, here.gradient[order])


def test_equal_sample_weights_change_nothing_and_doubling_is_repeating() -> None:
    plain = make_risk("logistic", "tanh", 5)
    theta, rho = draw_cloud(plain, 5)
    X, y = plain.samples.X, plain.samples.y
    equal = Risk(X, y, plain.neuron, plain.loss, sample_weight=torch.full((SAMPLES,), 7.0))
    torch.testing.assert_close(equal.value(theta, rho), plain.value(theta, rho))
    doubled = torch.ones(SAMPLES)
    doubled[0] = 2
    repeated = Risk(torch.cat((X, X[:1])), torch.cat((y, y[:1])), plain.neuron, plain.loss)
    weighted = Risk(X, y, plain.neuron, plain.loss, sample_weight=doubled)
    torch.testing.assert_close(weighted.value(theta, rho), repeated.value(theta, rho))
    torch.testing.assert_close(
        weighted.potentials(theta, rho, HYPER).gradient, repeated.potentials(theta, rho, HYPER).gradient
    )


# Confinement strengths per coordinate.
BLOCKS = {"a": 1, "b": 1, "w": 3}


def test_one_number_confines_every_coordinate_and_a_mapping_the_named_blocks() -> None:
    assert confinement_strengths(0.0, BLOCKS) is None
    assert confinement_strengths({"w": 0.0}, BLOCKS) is None
    whole, some = confinement_strengths(0.5, BLOCKS), confinement_strengths({"w": 2.0}, BLOCKS)
    assert whole is not None
    assert some is not None
    torch.testing.assert_close(whole, torch.full((5,), 0.5, dtype=torch.float64))
    assert some.tolist() == [0, 0, 2, 2, 2]


@pytest.mark.parametrize(
    "confinement, said", [(-1.0, "finite number >= 0"), ({"v": 1.0}, "contains `v`, which is not")]
)
def test_bad_strengths_are_refused(confinement: float | dict[str, float], said: str) -> None:
    with pytest.raises(InputError, match=said):
        confinement_strengths(confinement, BLOCKS)


# Activations: closed derivatives equal automatic differentiation.
@pytest.mark.parametrize("name", ACTIVATIONS)
@settings(deadline=None)
@given(st.lists(st.floats(-60, 60).filter(lambda z: abs(z) > 1e-6), min_size=1, max_size=20))
def test_the_closed_derivative_is_what_autodiff_finds(name: str, numbers: list[float]) -> None:
    z = torch.tensor(numbers, dtype=torch.float64)
    activation = ACTIVATIONS[name]
    automatic = Activation(name, activation.function)
    value = activation.function(z)
    torch.testing.assert_close(activation.derivative(z, value), automatic.derivative(z, value), rtol=1e-10, atol=1e-12)


def test_an_unknown_activation_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown activation `rellu`; did you mean `relu`\?"):
        find_activation("rellu")
