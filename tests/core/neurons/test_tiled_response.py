"""The tiled response of every neuron equals the whole one up to rounding, whichever tiles are kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.neurons import tiled_response
from proxlearn.core.neurons.function_neuron import FunctionNeuron
from proxlearn.core.neurons.neuron import Neuron, num_parameters
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.neurons.softmax import SoftmaxNeuron
from proxlearn.core.neurons.tiled_response import TiledResponse, respond
from proxlearn.core.samples import Samples

FEATURES, CLASSES = 2, 3
NEURONS: dict[str, Callable[[], Neuron]] = {
    "one output": Perceptron,
    "several outputs": lambda: Perceptron("gelu", num_outputs=CLASSES),
    "softmax": lambda: SoftmaxNeuron(CLASSES),
    "softmax with intercept": lambda: SoftmaxNeuron(CLASSES, intercept=True),
    "function": lambda: FunctionNeuron(lambda theta, x: torch.cos(theta["w"] @ x), {"w": FEATURES}),
}


def make_problem(name: str, seed: int, N: int, n: int, dtype: torch.dtype) -> tuple[Neuron, torch.Tensor, Samples]:
    neuron, generator = NEURONS[name](), torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (n,), generator=generator)
    X = torch.randn(n, FEATURES, generator=generator, dtype=torch.float64)
    theta = torch.randn(N, num_parameters(neuron, FEATURES), generator=generator, dtype=torch.float64)
    y = neuron.targets(labels if neuron.num_outputs > 1 or "softmax" in name else labels.clamp_max(1))
    return neuron, theta.to(dtype), Samples(X, y, labels).to("cpu", dtype)


@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(sorted(NEURONS)),
    N=st.integers(1, 25),
    n=st.integers(1, 9),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    tile=st.integers(1, 60),
    kept_bytes=st.sampled_from([0, 500, 10**6]),
)
@settings(max_examples=60, deadline=None)
def test_every_operation_is_that_of_the_whole_response(
    seed: int, name: str, N: int, n: int, dtype: torch.dtype, tile: int, kept_bytes: int
) -> None:
    neuron, theta, samples = make_problem(name, seed, N, n, dtype)
    generator = torch.Generator().manual_seed(seed + 1)
    length = samples.y.numel()
    weights, vectors, c, d = (
        torch.randn(shape, generator=generator, dtype=dtype) for shape in ((N, 2), (length, 2), (length,), (length,))
    )
    rho = torch.rand(N, generator=generator, dtype=dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiled_response, "TILE_ENTRIES", tile)
        whole, tiled = neuron.respond(theta, samples), TiledResponse(neuron, theta, samples, kept_bytes)
        tolerance = 1e-13 if dtype == torch.float64 else 1e-4
        for actual, expected in (
            (tiled.over_particles(weights), whole.over_particles(weights)),
            (tiled.over_samples(vectors), whole.over_samples(vectors)),
            (tiled.pull_back(c, rho, d), whole.pull_back(c, rho, d)),
        ):
            torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
        again = neuron.respond(theta, samples)
        torch.testing.assert_close(tiled.pull_back(c), again.pull_back(c), rtol=tolerance, atol=tolerance)
        fresh = TiledResponse(neuron, theta, samples, 0)
        assert torch.equal(fresh.over_particles(weights), tiled.over_particles(weights))


@pytest.mark.parametrize("name", NEURONS)
def test_closed_forms_are_kept_within_the_limit_and_a_tape_is_not(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    neuron, theta, samples = make_problem(name, 0, 40, 8, torch.float64)
    monkeypatch.setattr(tiled_response, "TILE_ENTRIES", 10 * 8 * neuron.width)
    evaluated = []
    plain = type(neuron).respond
    monkeypatch.setattr(type(neuron), "respond", lambda *args: evaluated.append(1) or plain(*args))
    kept = plain(neuron, theta[:10], samples).stored_bytes()
    tiled = TiledResponse(neuron, theta, samples, 3 * (kept or 1))
    for _ in range(2):
        tiled.over_particles(theta.new_ones(40, 1))
    assert len(evaluated) == (8 if kept is None else 5)
    assert (kept is None) == (name == "function")


def test_small_clouds_have_the_neurons_own_response_and_little_memory_gives_tiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    neuron, theta, samples = make_problem("one output", 0, 4000, 2000, torch.float64)
    assert not isinstance(respond(neuron, theta, samples), TiledResponse)
    monkeypatch.setenv("PROXLEARN_MEMORY", "200MiB")
    assert isinstance(respond(neuron, theta, samples), TiledResponse)
    assert not isinstance(respond(neuron, theta[:50], samples), TiledResponse)


def test_the_potentials_of_a_risk_do_not_depend_on_the_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    neuron, theta, samples = make_problem("several outputs", 3, 30, 8, torch.float64)
    risk, rho = Risk.from_samples(neuron, samples), torch.rand(30, dtype=torch.float64)
    hyper = Hyper(beta=1.0, h=1.0, epsilon=1.0)
    expected = risk.potentials(theta, rho, hyper)
    monkeypatch.setattr(tiled_response, "WHOLE_ENTRIES", 0)
    monkeypatch.setattr(tiled_response, "TILE_ENTRIES", 100)
    actual = risk.potentials(theta, rho, hyper)
    torch.testing.assert_close(actual.w, expected.w)
    torch.testing.assert_close(actual.gradient, expected.gradient)
