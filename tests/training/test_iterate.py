"""The training loop: its iterates depend only on the cloud and the generator."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from proxlearn.core.cloud import PointCloud, draw_normal
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.samples import Samples
from proxlearn.core.step import Info
from proxlearn.errors import InputError, RunError
from proxlearn.training.fit import fit, initial_fit
from proxlearn.training.iterate import iterate
from proxlearn.training.settings import Settings

HYPER = Hyper(beta=1e3, h=0.1, epsilon=0.5, L=50, tolerance="log", epsilon_quantile=0.5, h_schedule="cosine")


@pytest.fixture(scope="module")
def wave() -> Risk:
    x = torch.linspace(-2, 2, 40, dtype=torch.float64)
    return Risk.from_samples(Perceptron(), Samples(x[:, None], torch.sin(2 * x)))


@pytest.fixture
def cloud(wave: Risk) -> PointCloud:
    return draw_normal(
        wave.neuron.coordinates(1), wave.neuron.initial_deviations(1, 1.0), 20, torch.Generator().manual_seed(1)
    ).to("cpu", torch.float32)


@pytest.mark.parametrize("engine", ["fused", "eager"])
def test_it_continues_exactly_from_a_cloud_and_a_state_of_the_generator(
    wave: Risk, cloud: PointCloud, engine: str
) -> None:
    generator = torch.Generator().manual_seed(3)
    clouds, states = [], []
    for after, info in iterate(wave, cloud, HYPER, generator=generator, until=12, engine=engine):
        assert isinstance(info, Info)
        clouds.append(after)
        states.append(generator.get_state())
    assert [after.step for after in clouds] == list(range(1, 13))
    again = torch.Generator()
    again.set_state(states[4])
    continued = [after for after, _ in iterate(wave, clouds[4], HYPER, generator=again, until=12, engine=engine)]
    for ours, theirs in zip(continued, clouds[5:], strict=True):
        assert torch.equal(ours.theta, theirs.theta)
        assert torch.equal(ours.log_rho, theirs.log_rho)
    assert torch.equal(again.get_state(), states[-1])


def test_a_fit_is_this_loop(wave: Risk) -> None:
    settings = Settings(N=15, steps=9, init_scale=1.0, h=0.1, beta=1e3, epsilon=0.5)
    start, generator = initial_fit(wave, settings, seed=2), torch.Generator()
    generator.set_state(start.generator)
    *_, (last, _) = iterate(wave, start.cloud, settings.hyper, generator=generator, until=9)
    fitted = fit(wave, settings, seed=2)
    assert torch.equal(fitted.newest.theta, last.theta)
    assert torch.equal(fitted.generator, generator.get_state())


def test_without_an_end_it_goes_on_and_past_the_end_it_yields_nothing(wave: Risk, cloud: PointCloud) -> None:
    steps = iterate(wave, cloud, HYPER, generator=torch.Generator().manual_seed(0))
    for step in range(1, 30):
        after, _ = next(steps)
        assert after.step == step
    later = replace(cloud, step=5)
    assert list(iterate(wave, later, HYPER, generator=torch.Generator(), until=5)) == []


def test_a_wrong_hyperparameter_is_refused_before_the_first_step(wave: Risk, cloud: PointCloud) -> None:
    with pytest.raises(InputError, match="beta must be a finite number > 0, got -1"):
        next(iterate(wave, cloud, replace(HYPER, beta=-1.0), generator=torch.Generator()))


def test_the_fallback_precision_takes_over_for_good(wave: Risk, cloud: PointCloud) -> None:
    wild = replace(HYPER, h=1e30, epsilon_quantile=None, weights="uniform", h_schedule="constant", drift="paper")
    with pytest.raises(RunError, match="not finite"):
        list(iterate(wave, cloud, wild, generator=torch.Generator().manual_seed(0), until=3))
    switched: list[int] = []
    steps = iterate(
        wave,
        cloud,
        wild,
        generator=torch.Generator().manual_seed(0),
        until=3,
        fallback=torch.float64,
        on_switch=lambda bad: switched.append(bad.step),
    )
    dtypes = [after.theta.dtype for after, _ in steps]
    assert len(switched) == 1
    assert dtypes[switched[0] - 1 :] == [torch.float64] * (4 - switched[0])
