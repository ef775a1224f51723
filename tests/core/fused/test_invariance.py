"""Invariants: the bits for any number of threads, and the mass for any number of steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
import torch

from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.energy import Energy
from proxlearn.core.hyper import Hyper
from proxlearn.run.experiment import build_experiment, first_checkpoint
from proxlearn.training.iterate import iterate
from tests.conftest import config_of

PAPER = ("wdbc", "banana", "diabetes", "twonorm", "shd", "sine", "digits")
FILES = ("banana", "diabetes", "twonorm", "shd")


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Let torch's products use two threads, although the settings of the tests limit them to one."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def last_cloud(steps: Iterable[tuple[PointCloud, object]]) -> PointCloud:
    """Return the cloud after the last step without keeping the others."""
    ((cloud, _),) = deque(steps, maxlen=1)
    return cloud


def final_cloud(dataset: str, threads: int, steps: int, *words: str) -> PointCloud:
    experiment = build_experiment(config_of(f"dataset={dataset}", *words))
    moment = first_checkpoint(experiment)
    generator = torch.Generator()
    generator.set_state(moment.generator)
    torch.set_num_threads(threads)
    steps_taken = iterate(
        experiment.source,
        moment.cloud,
        experiment.hyper,
        generator=generator,
        until=steps,
        engine="fused",
        threads=threads,
    )
    return last_cloud(steps_taken)


def assert_same_bits(dataset: str, steps: int, *words: str) -> None:
    one, two = (final_cloud(dataset, threads, steps, *words) for threads in (1, 2))
    assert one.theta.numpy().tobytes() == two.theta.numpy().tobytes()
    assert one.log_rho.numpy().tobytes() == two.log_rho.numpy().tobytes()


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dataset", PAPER)
def test_the_bits_do_not_depend_on_the_number_of_threads(
    dataset: str, dtype: str, request: pytest.FixtureRequest
) -> None:
    if dataset in FILES:
        request.getfixturevalue("paper_files")
    N = 50 if dataset in ("shd", "digits") else 300
    assert_same_bits(dataset, 12, f"N={N}", f"device.dtype={dtype}")


@pytest.mark.slow
@pytest.mark.usefixtures("two_threads", "paper_files")
@pytest.mark.parametrize("dataset", PAPER)
def test_300_steps_of_the_paper_s_size_have_the_same_bits_with_one_thread_and_two(dataset: str) -> None:
    assert_same_bits(dataset, 300)


@pytest.mark.usefixtures("two_threads")
def test_the_tiles_of_a_large_cloud_have_the_same_bits_with_one_thread_and_two() -> None:
    assert_same_bits("sine", 2, "N=9000", "L=2")


def mass_error(dtype: torch.dtype, steps: int) -> float:
    """Return the relative change of the mass over a run in which all particles exchange mass."""
    generator = np.random.default_rng(0)
    well = Energy(V=lambda theta: ((theta.square() - 1) ** 2).sum(), p=2)
    weights = np.exp(3 * generator.normal(size=40))
    start = PointCloud.from_arrays(generator.normal(size=(40, 2)), weights / weights.sum()).to("cpu", dtype)
    hyper = Hyper(beta=5.0, h=1e-2, epsilon=0.5, delta=1e-3, L=5, tolerance="log")
    cloud = last_cloud(iterate(well, start, hyper, generator=torch.Generator().manual_seed(0), until=steps, threads=1))
    assert not torch.equal(cloud.log_rho, start.log_rho)
    before, after = (float(moment.log_rho.exp().sum()) for moment in (start, cloud))
    return abs(after / before - 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_a_thousand_steps_conserve_the_mass(dtype: torch.dtype) -> None:
    assert mass_error(dtype, 1000) < 1e-11


@pytest.mark.slow
def test_a_hundred_thousand_steps_conserve_the_mass() -> None:
    assert mass_error(torch.float32, 100_000) < 1e-9
