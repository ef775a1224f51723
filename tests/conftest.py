"""Shared by all tests: one thread (pytest runs two processes), problems for laws, the paper's files."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_breast_cancer

from proxlearn.config.compose import compose, parse
from proxlearn.config.schema import TrainConfig
from proxlearn.core.cloud import PointCloud, draw_cloud
from proxlearn.core.neurons.tanh import TanhNeuron
from proxlearn.core.problem import Problem
from proxlearn.core.samples import Samples
from proxlearn.run.run_config import validate_config

torch.set_num_threads(1)
PAPER_FILES = ("banana.dat", "pima.dat", "twonorm.dat", "semeion.data")
ARCHIVE = Path(__file__).parent / "fixtures" / "version_0_1_0.tar.xz"
with tarfile.open(ARCHIVE) as archive:
    OLD_FOLDERS = sorted(Path(name).parent for name in archive.getnames() if name.endswith("config.yaml"))
"""Run folders of version 0.1.0, relative to the fixture ``old_folders``."""


@pytest.fixture(scope="session")
def old_folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folders of version 0.1.0, to be copied and not changed."""
    folder = tmp_path_factory.mktemp("version_0_1_0")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def paper_files() -> Path:
    """The folder of the paper's files."""
    if not os.environ.get("PROXLEARN_DATA"):
        pytest.skip("PROXLEARN_DATA is not set: this test reads the paper's own files")
    folder = Path(os.environ["PROXLEARN_DATA"])
    absent = [name for name in PAPER_FILES if not (folder / name).is_file()]
    if absent:
        pytest.skip(f"PROXLEARN_DATA={folder} lacks {', '.join(absent)}: this test reads the paper's own files")
    return folder


@pytest.fixture(scope="session")
def wdbc() -> Problem:
    """The paper's WDBC training part, raw features, float64."""
    bunch = load_breast_cancer()
    labels = torch.from_numpy(1 - bunch.target[:399])
    return Problem(TanhNeuron(), Samples(torch.from_numpy(bunch.data[:399]), 2.0 * labels.double() - 1.0, labels))


@pytest.fixture(scope="session")
def standardised(wdbc: Problem) -> Problem:
    """The same with standardised features, where rounding errors do not grow."""
    X = wdbc.samples.X
    return Problem(wdbc.neuron, Samples((X - X.mean(0)) / X.std(0), wdbc.samples.y, wdbc.samples.labels))


def config_of(*overrides: str) -> TrainConfig:
    """What `proxlearn train` would run with these words."""
    return validate_config(compose(parse(list(overrides))))


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def paper_cloud(problem: Problem, N: int, generator: torch.Generator) -> PointCloud:
    """cloud_0 of the paper's WDBC experiment, with PDF values as weights."""
    coordinates = problem.neuron.coordinates(problem.samples.X.shape[1])
    return draw_cloud(coordinates, {"a": (0.9, 1.1), "b": (-0.1, 0.1), "w": (-1.0, 1.0)}, N, "pdf", generator)


def randomness(cloud: PointCloud, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise and z0 of one step, in the cloud's precision."""
    noise = torch.randn(cloud.theta.shape, generator=generator, dtype=torch.float64)
    z0 = 1 - torch.rand(len(cloud.theta), generator=generator, dtype=torch.float64)
    return noise.to(cloud.theta.dtype), z0.to(cloud.theta.dtype)
