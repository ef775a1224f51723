"""The hyperparameters are declared once; config schema, fit settings and step follow from the fields.

The random numbers of a step: known values of the generator, their distributions, and the same numbers everywhere.

A hundred thousand particles in the plain engine: no tensor of N x N or N x n numbers, and limited memory.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, fields, replace
from types import ModuleType
from typing import Any, Generic

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from proxlearn.config.run_name import run_name
from proxlearn.config.schema import TrainConfig, config_values
from proxlearn.core import hyper, noise
from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused import random_numbers
from proxlearn.core.hyper import (
    BLIND_KAPPA,
    Hyper,
    Hyperparameters,
    Number,
    blind_step_notice,
    energy_share,
    hyperparameter,
    kappa_sentence,
)
from proxlearn.core.neurons.function_neuron import FunctionNeuron
from proxlearn.core.neurons.neuron import Neuron, num_parameters
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.neurons.softmax import Softmax
from proxlearn.core.options import Weights
from proxlearn.core.samples import Samples
from proxlearn.core.step import step
from proxlearn.errors import InputError
from proxlearn.run.experiment import settings_from_config
from proxlearn.training.settings import Settings
from proxlearn.training.stepper import draw_noise
from proxlearn.validators import real
from tests.conftest import config_of

PAPER = Hyper(beta=0.05, h=1e-3, epsilon=1.0)


def test_the_defaults_are_the_papers_readings() -> None:
    assert settings_from_config(config_of("dataset=wdbc", "recipe=paper")).hyper == PAPER


def test_checking_a_config_does_not_import_torch() -> None:
    code = "import sys, proxlearn.core.hyper, proxlearn.config.schema; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_config_and_settings_have_every_hyperparameter() -> None:
    names = {field.name for field in fields(Hyperparameters)}
    assert names | {"noise_scale"} == {field.name for field in fields(Hyper)}
    assert names <= {field.name for field in fields(TrainConfig)}
    assert {field.name for field in fields(Hyper)} <= {field.name for field in fields(Settings)}


@dataclass(frozen=True, kw_only=True)
class WithMomentum(Hyperparameters[Number], Generic[Number]):
    """The hyperparameters with an additional one."""

    momentum: float = hyperparameter(real(at_least=0, below=1, example=0.5), 0.0)


@dataclass(frozen=True, kw_only=True)
class HyperWithMomentum(Hyper, WithMomentum[float]):
    pass


def load_again(module: str) -> ModuleType:
    """Return a second instance of a module, which sees the patched hyperparameters."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy


def test_a_new_field_is_a_key_of_the_config_and_reaches_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hyper, "Hyperparameters", WithMomentum)
    monkeypatch.setattr(hyper, "Hyper", HyperWithMomentum)
    schema, settings = load_again("proxlearn.config.schema"), load_again("proxlearn.training.settings")
    values = config_values(config_of())
    with pytest.raises(InputError, match="lacks the key `momentum`"):
        schema.build(schema.TrainConfig, values)
    config = schema.build(schema.TrainConfig, values | {"momentum": 0.3})
    assert config.momentum == 0.3
    assert schema.config_values(config).keys() == {*values, "momentum"}
    assert run_name(config) != run_name(replace(config, momentum=0.4))
    with pytest.raises(InputError, match=r"momentum must be a finite number >= 0 and < 1, got 1\.5"):
        schema.build(schema.TrainConfig, values | {"momentum": 1.5})
    fit = settings.Settings(beta=1.0, h=0.1, epsilon=1.0, momentum=0.3)
    assert fit.hyper.momentum == 0.3


@pytest.mark.parametrize(
    "values",
    [
        *({"beta": 0.0}, {"h": -1.0}, {"epsilon": float("nan")}, {"L": 0}, {"delta": -1e-9}, {"drift": "papers"}),
        *({"epsilon_quantile": 1.0}, {"batch_size": 0}, {"horizon": 0}, {"noise_scale": -1.0}, {"beta": None}),
    ],
)
def test_a_value_outside_its_range_is_refused_by_its_name(values: dict[str, Any]) -> None:
    PAPER.check()
    (name,) = values
    with pytest.raises(InputError, match=name):
        Hyper(**asdict(PAPER) | values).check()


def test_beta_h_and_epsilon_may_be_open_in_a_config_only() -> None:
    tuned = settings_from_config(config_of("recipe=tuned"))
    assert (tuned.beta, tuned.h, tuned.epsilon) == (None, None, None)
    with pytest.raises(AssertionError, match="beta"):
        tuned.hyper  # noqa: B018


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6))
def test_the_share_of_the_energy_falls_with_kappa_and_the_notice_follows_it(first: float, second: float) -> None:
    low, high = sorted((first, second))
    assert 1 > energy_share(low) >= energy_share(high) > 0
    assert energy_share(low, 0.1) <= energy_share(low) <= energy_share(low, 10.0)
    for kappa in (low, high):
        notice, sentence = blind_step_notice(kappa), kappa_sentence(kappa)
        assert (notice is None) == (kappa <= BLIND_KAPPA) == ("averages" not in sentence)
        for text in (notice or "", sentence):
            assert "\n" not in text
            assert len(text) < 180


def test_the_papers_wdbc_has_kappa_50_and_gets_one_line() -> None:
    assert blind_step_notice(PAPER.kappa) == (
        "kappa = beta epsilon / h = 50: near equilibrium, the weights hardly depend on the risk (share in log rho: "
        "about 0.038; choose kappa <= 1 to increase it)"
    )
    # The noise of SHD is a hundredth of the paper's, so its particles are 10^4 times as cold.
    assert "choose kappa <= 0.0001 to increase it" in (blind_step_notice(5.0, noise_scale=0.01) or "")


words = st.integers(0, 2**32 - 1)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def numpy_of(dtype: torch.dtype) -> type:
    return np.float32 if dtype == torch.float32 else np.float64


def test_philox_gives_its_published_answer() -> None:
    """The first vector of the generator's reference implementation has a key and a counter of zeros."""
    assert [int(word[0]) for word in noise.philox((0, 0), 1, 0, "cpu")] == [
        0x6627E8D5,
        0xE169C58D,
        0xBC57AC4C,
        0x9B00DBD8,
    ]


@given(key=st.tuples(words, words), count=st.integers(1, 3000), dtype=st.sampled_from([torch.float32, torch.float64]))
@settings(max_examples=40, deadline=None)
def test_the_compiled_numbers_are_those_of_torch_to_rounding(
    key: tuple[int, int], count: int, dtype: torch.dtype
) -> None:
    normal, uniform = np.empty(count, numpy_of(dtype)), np.empty(count, numpy_of(dtype))
    random_numbers.fill_normal(key, normal)
    random_numbers.fill_uniform(key, uniform)
    eps = torch.finfo(dtype).eps
    np.testing.assert_allclose(normal, noise.normal(key, (count,), dtype, "cpu"), rtol=0, atol=16 * eps)
    assert np.array_equal(uniform, noise.uniform(key, count, dtype, "cpu"))
    assert 0 < uniform.min() <= uniform.max() <= 1


@dtypes
def test_normal_numbers_have_the_normal_law(dtype: torch.dtype) -> None:
    """Moments are within five standard errors, the distribution function is close, and pairs are uncorrelated."""
    x = np.empty(400_000, numpy_of(dtype))
    random_numbers.fill_normal((20231, 4), x)
    x = x.astype(np.float64)
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((x**power).mean() - mean) < 5 * np.sqrt(variance / len(x))
    assert stats.kstest(x, "norm").pvalue > 1e-3
    for lag in (1, 2, 3, 4):
        assert abs((x[lag:] * x[:-lag]).mean()) < 5 / np.sqrt(len(x))
        # The two numbers of a pair share a radius: their squares must not be correlated either.
        assert abs(((x[lag:] ** 2 - 1) * (x[:-lag] ** 2 - 1)).mean()) < 5 * 2 / np.sqrt(len(x))


@dtypes
def test_numbers_do_not_depend_on_the_number_of_threads_and_a_part_is_a_part(dtype: torch.dtype) -> None:
    threads = numba.get_num_threads()
    whole = np.empty(100_003, numpy_of(dtype))
    random_numbers.fill_normal((1, 2), whole)
    try:
        numba.set_num_threads(1)
        for count in (100_003, 20_000, 50):
            part = np.empty(count, numpy_of(dtype))
            random_numbers.fill_normal((1, 2), part)
            assert np.array_equal(part, whole[:count])
    finally:
        numba.set_num_threads(threads)


def test_every_step_has_its_own_numbers_and_z0_is_not_part_of_the_noise() -> None:
    cloud, generator = PointCloud.from_arrays(np.zeros((300, 4))), torch.Generator().manual_seed(0)
    (first, z0), (second, other_z0) = draw_noise(cloud, generator), draw_noise(cloud, generator)
    assert not torch.equal(first, second)
    assert not torch.equal(z0, other_z0)
    again, _ = draw_noise(cloud, torch.Generator().manual_seed(0))
    assert torch.equal(first, again)
    assert abs(float(torch.corrcoef(torch.stack((first[:, 0], z0)))[0, 1])) < 0.3


N = 100_000
WAVE = FunctionNeuron(lambda theta, x: torch.cos(theta["w"] @ x), lambda n_x: {"w": n_x})
SHAPES: dict[str, tuple[Neuron, int, int]] = {
    "wdbc": (Perceptron(), 399, 30),
    "banana": (Perceptron(), 2650, 2),
    "twonorm": (Perceptron(), 3700, 20),
    "twonorm, relu": (Perceptron("relu"), 3700, 20),
    "twonorm, two outputs": (Perceptron(num_outputs=2), 3700, 20),
    "banana, own neuron": (WAVE, 2650, 2),
    "ten classes, softmax": (Softmax(10), 1000, 64),
}


class LargestTensor(TorchDispatchMode):
    """A recorder of the largest number of elements of any result."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, Tensor) and not value._is_view():
                self.largest = max(self.largest, value.numel())
        return result


@pytest.mark.parametrize("shape", SHAPES)
def test_no_tensor_of_a_step_is_large_and_no_operation_reads_the_device(shape: str) -> None:
    """Tensors of the meta device have shapes but no values, so an operation that reads one raises an error."""
    neuron, n, n_x = SHAPES[shape]
    with torch.device("meta"):
        y = torch.empty(n) if neuron.num_outputs == 1 else torch.empty(neuron.num_outputs, n)
        risk = Risk.from_samples(neuron, Samples(torch.empty(n, n_x), y, torch.empty(n, dtype=torch.long)))
        cloud = PointCloud(torch.empty(N, num_parameters(neuron, n_x)), torch.empty(N))
        noise, z0 = torch.empty_like(cloud.theta), torch.empty_like(cloud.log_rho)
    # The kernel does not depend on the neuron, and its thousands of tiles take seconds even without values: once.
    weights: Weights = "proximal" if shape == "wdbc" else "uniform"
    hyper = Hyper(beta=0.05, h=1e-3, epsilon=1.0, delta=0.0, L=1, weights=weights)
    with LargestTensor() as record:
        after, info = step(risk, cloud, hyper, noise, z0)
        if info is not None:
            info.kernel_offdiag()
    assert after.theta.shape == cloud.theta.shape
    assert cloud.theta.numel() <= record.largest < 2**28


PEAK = """
import re, torch
from pathlib import Path
torch.set_num_threads(1)
def peak():
    # Not ru_maxrss: a process inherits it from the one that started it.
    return 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
"""
STEP = """
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.samples import Samples
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.cloud import PointCloud
from proxlearn.core.step import step
X = torch.randn(3700, 8)
risk = Risk.from_samples(Perceptron(), Samples(X, X[:, 0].sign()))
def run(N):
    cloud = PointCloud(torch.randn(N, 10), torch.full((N,), -7.0))
    hyper = Hyper(beta=0.05, h=1e-3, epsilon=1.0, delta=1e-3, L=3, kernel="KERNEL")
    after, info = step(risk, cloud, hyper, torch.randn(N, 10), torch.rand(N))
    assert abs(float(after.rho.double().sum() / cloud.rho.double().sum()) - 1) < 1e-5
run(100)
before = peak()
run(6000)
print(peak() - before)
"""
TILES = """
from proxlearn.core.kernels.tiled import TiledLogKernel
from proxlearn.core.kernels.tiled import Tiling
torch.set_num_threads(2)
theta, log_z = torch.randn(8000, 4), torch.zeros(8000)
kernel = TiledLogKernel(theta, theta, 1.0, Tiling(8000, 131, keep=False))
before = peak()
kernel.log_apply(log_z)
kernel.log_apply_transpose(log_z)
kernel.log_transport(log_z, log_z)
print(peak() - before)
"""


def growth_of_memory(code: str, limit: str) -> int:
    """Return the growth of the peak memory of a new process in bytes, as printed by the code."""
    command = [sys.executable, "-c", PEAK + code]
    environment = os.environ | {"PROXLEARN_MEMORY": limit}
    completed = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    return int(completed.stdout)


proc_only = pytest.mark.skipif(sys.platform != "linux", reason="the peak of the memory is read from /proc")


@proc_only
@pytest.mark.parametrize("kernel", ["auto", "log"])
def test_a_step_stays_within_the_memory_that_the_user_allows(kernel: str) -> None:
    """The log kernel of 6000 particles takes up 576 MB with its temporaries, and their outputs take up as much."""
    assert 0 < growth_of_memory(STEP.replace("KERNEL", kernel), "128MiB") < 128 * 2**20


@proc_only
def test_the_memory_of_a_tile_is_used_again() -> None:
    """The tiles of a 256 MB matrix have 4 MB in float32 and 8 MB in float64.

    Not every fragmentation is detected: small results allocated between the tiles pass the test in some states of the
    allocator and take up 495 MiB in others.
    """
    assert 0 < growth_of_memory(TILES, "1GiB") < 120 * 2**20
