"""A hundred thousand particles in the plain engine: no tensor of N x N or N x n numbers, and limited memory."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.neurons.function_neuron import FunctionNeuron
from proxlearn.core.neurons.neuron import Neuron, num_parameters
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.neurons.softmax import SoftmaxNeuron
from proxlearn.core.options import Weights
from proxlearn.core.samples import Samples
from proxlearn.core.step import step

N = 100_000
WAVE = FunctionNeuron(lambda theta, x: torch.cos(theta["w"] @ x), lambda n_x: {"w": n_x})
SHAPES: dict[str, tuple[Neuron, int, int]] = {
    "wdbc": (Perceptron(), 399, 30),
    "banana": (Perceptron(), 2650, 2),
    "twonorm": (Perceptron(), 3700, 20),
    "twonorm, relu": (Perceptron("relu"), 3700, 20),
    "twonorm, two outputs": (Perceptron(num_outputs=2), 3700, 20),
    "banana, own neuron": (WAVE, 2650, 2),
    "ten classes, softmax": (SoftmaxNeuron(10), 1000, 64),
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
from proxlearn.core.tiling import Tiling
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
