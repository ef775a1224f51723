"""Fixtures and helper functions for all tests.

Torch uses one thread, because pytest runs several processes.
"""

from __future__ import annotations

import os
import re
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_breast_cancer

from proxlearn.config.compose import compose, parse
from proxlearn.config.schema import TrainConfig
from proxlearn.core import options
from proxlearn.core.cloud import PointCloud, draw_cloud
from proxlearn.core.functionals.functional import Potentials
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.registry import find_entry_points, load_plugin
from proxlearn.core.samples import Samples
from proxlearn.run.config_validation import validate_config
from tests.small_runs import set_plain_pictures

torch.set_num_threads(1)
PAPER_FILES = ("banana.dat", "pima.dat", "twonorm.dat", "semeion.data")
ARCHIVE = Path(__file__).parent / "fixtures" / "version_0_1_0.tar.xz"
with tarfile.open(ARCHIVE) as archive:
    OLD_FOLDERS = sorted(Path(name).parent for name in archive.getnames() if name.endswith("config.yaml"))
"""Run folders of version 0.1.0, relative to the fixture ``old_folders``."""


PLAIN_PICTURES = re.compile(
    r"(config|data|distributed|loggers)/|run/(?!test_(datasets|hostile))"
    r"|sweeps/test_launch|commands/test_(commands|predict)|test_(cli|estimator|plugins|runs|tutorials)\.py"
)
"""Pattern of the test files that need pictures to exist, but not their content; all other tests render pictures."""


@pytest.fixture(scope="module", autouse=True)
def _plain_pictures(request: pytest.FixtureRequest) -> Iterator[None]:
    path = request.path.relative_to(Path(__file__).parent).as_posix()
    set_plain_pictures(PLAIN_PICTURES.match(path) is not None)
    yield
    set_plain_pictures(False)


@pytest.fixture(scope="session")
def old_folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the run folders of version 0.1.0; a test must copy a run folder before it changes it."""
    folder = tmp_path_factory.mktemp("version_0_1_0")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def fake_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A function that installs a package with one module and entry points, for this process and this test only."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    modules: list[str] = []

    def install(package: str, code: str, **entry_points: str) -> None:
        module = package.replace("-", "_")
        modules.append(module)
        (folder / f"{module}.py").write_text(code, encoding="utf-8")
        metadata = folder / f"{module}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        sections = (f"[proxlearn.{group}]\n{name} = {module}:part\n" for group, name in entry_points.items())
        (metadata / "entry_points.txt").write_text("\n".join(sections))
        find_entry_points.cache_clear()

    yield install
    find_entry_points.cache_clear()
    load_plugin.cache_clear()
    for module in modules:
        sys.modules.pop(module, None)


@pytest.fixture
def paper_files() -> Path:
    """The folder with the data files of the paper's experiments; if a file is absent, the test is skipped."""
    if not os.environ.get("PROXLEARN_DATA"):
        pytest.skip("PROXLEARN_DATA is not set: this test reads the paper's own files")
    folder = Path(os.environ["PROXLEARN_DATA"])
    absent = [name for name in PAPER_FILES if not (folder / name).is_file()]
    if absent:
        pytest.skip(f"PROXLEARN_DATA={folder} lacks {', '.join(absent)}: this test reads the paper's own files")
    return folder


@pytest.fixture(scope="session")
def wdbc() -> Risk:
    """The training part of the paper's WDBC, with raw features in float64."""
    bunch = load_breast_cancer()
    labels = torch.from_numpy(1 - bunch.target[:399])
    return Risk.from_samples(
        Perceptron(), Samples(torch.from_numpy(bunch.data[:399]), 2.0 * labels.double() - 1.0, labels)
    )


@pytest.fixture(scope="session")
def standardised(wdbc: Risk) -> Risk:
    """The training part of the paper's WDBC with standardised features, for which rounding errors do not grow."""
    X = wdbc.samples.X
    return Risk.from_samples(wdbc.neuron, Samples((X - X.mean(0)) / X.std(0), wdbc.samples.y, wdbc.samples.labels))


def config_of(*overrides: str) -> TrainConfig:
    """Return the config that `proxlearn train` would run with these arguments."""
    return validate_config(compose(parse(list(overrides))))


def potentials(
    risk: Risk,
    theta: torch.Tensor,
    rho: torch.Tensor,
    drift: options.Drift,
    prox_potential: options.Potential = "paper",
) -> Potentials:
    """Return the potentials of a risk for the given options; they do not depend on beta, h and epsilon."""
    return risk.potentials(theta, rho, Hyper(beta=1.0, h=1.0, epsilon=1.0, drift=drift, prox_potential=prox_potential))


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def paper_cloud(problem: Risk, N: int, generator: torch.Generator) -> PointCloud:
    """Return the initial cloud of the paper's WDBC experiment, with density values as weights."""
    coordinates = problem.neuron.coordinates(problem.samples.X.shape[1])
    return draw_cloud(coordinates, {"a": (0.9, 1.1), "b": (-0.1, 0.1), "w": (-1.0, 1.0)}, N, "pdf", generator)


def randomness(cloud: PointCloud, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the noise and the z0 of one step, in the precision of the cloud."""
    noise = torch.randn(cloud.theta.shape, generator=generator, dtype=torch.float64)
    z0 = 1 - torch.rand(len(cloud.theta), generator=generator, dtype=torch.float64)
    return noise.to(cloud.theta.dtype), z0.to(cloud.theta.dtype)
