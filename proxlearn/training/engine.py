"""Which code makes the steps: the fused passes, the reference recursion, or the paper's print."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Protocol

import numpy as np
from torch import Tensor

from proxlearn.core import literal, step
from proxlearn.core.cloud import PointCloud
from proxlearn.core.compile_time import COMPILE_TIME
from proxlearn.core.kernel import KernelTooLarge
from proxlearn.core.neurons.registry import Neuron
from proxlearn.core.problem import Problem, Samples
from proxlearn.core.step import Hyper, Info
from proxlearn.errors import RunError
from proxlearn.terminal.notice import notice
from proxlearn.training.memory import full_kernel_remedy

LONG_SECONDS = 2.0
"""Compilation that took longer is worth a word."""


class Step(Protocol):
    """``step.step`` for one problem and one set of numbers, both of which may change between steps."""

    def __call__(self, cloud: PointCloud, noise: Tensor, z0: Tensor) -> tuple[PointCloud, Info | None]: ...

    def set_hyper(self, hyper: Hyper) -> None: ...

    def set_samples(self, samples: Samples) -> None: ...


def fused_obstacle(neuron: Neuron, device: str) -> str | None:
    """What keeps the fused engine from running, if anything does."""
    if device != "cpu":
        return f"the fused engine is for the CPU, not {device}"
    if importlib.util.find_spec("numba") is None:
        return "the package numba is not installed"
    from proxlearn.core.fused.fused_step import DRIFTS

    return None if neuron.name in DRIFTS else f"the {neuron.name} neuron has no fused drift"


def make_step(engine: str, problem: Problem, hyper: Hyper, N: int, threads: int) -> Step:
    """The step function, in the problem's precision."""
    if engine == "fused":
        return CompiledStep(problem, hyper, N, threads)
    return PlainStep(literal.step if engine == "literal" else step.step, problem, hyper)


class PlainStep:
    """The reference recursion, or the literal one."""

    def __init__(
        self,
        step: Callable[[Problem, PointCloud, Hyper, Tensor, Tensor], tuple[PointCloud, Info | None]],
        problem: Problem,
        hyper: Hyper,
    ) -> None:
        self.step, self.problem, self.hyper = step, problem, hyper

    def __call__(self, cloud: PointCloud, noise: Tensor, z0: Tensor) -> tuple[PointCloud, Info | None]:
        return self.step(self.problem, cloud, self.hyper, noise, z0)

    def set_hyper(self, hyper: Hyper) -> None:
        self.hyper = hyper

    def set_samples(self, samples: Samples) -> None:
        self.problem = Problem(self.problem.neuron, samples)


class CompiledStep:
    """The fused engine; it reports compilation, and a cloud that is too large for it."""

    def __init__(self, problem: Problem, hyper: Hyper, N: int, threads: int) -> None:
        from proxlearn.core.fused.fused_step import FusedStep

        with CompilationReport():
            self.made = FusedStep(problem, hyper, N, threads)
        self.set_hyper, self.set_samples = self.made.set_hyper, self.made.set_samples

    def __call__(self, cloud: PointCloud, noise: Tensor, z0: Tensor) -> tuple[PointCloud, Info | None]:
        try:
            # A cloud that leaves the finite range is told by whoever drives the steps.
            with np.errstate(all="ignore"), CompilationReport():
                return self.made(cloud, noise, z0)
        except KernelTooLarge as error:
            remedy = full_kernel_remedy(error.N, error.largest, error.crowded, cloud.theta.itemsize)
            raise RunError(f"{error}, which kernel=auto does not form", remedy) from error


class CompilationReport:
    """Tell the user of passes that are compiled in this block, by Numba's own account: a slow step is not one.

    A class and not a generator: every step enters it.
    """

    def __enter__(self) -> None:
        self.passes, self.seconds = COMPILE_TIME.passes, COMPILE_TIME.seconds
        COMPILE_TIME.on_start = self._announce

    def __exit__(self, *_: object) -> None:
        COMPILE_TIME.on_start = None
        if COMPILE_TIME.passes == self.passes:
            return
        seconds = COMPILE_TIME.seconds - self.seconds
        why = COMPILE_TIME.unkept
        if why is not None:
            remedy = "set XDG_CACHE_HOME to a folder that you can write to"
            notice(f"compiled passes cannot be kept ({why.strerror}), so every run compiles them; {remedy}")
        elif seconds > LONG_SECONDS:
            notice(f"compiled the fused passes in {seconds:.0f} s; later runs find them in the cache")

    def _announce(self) -> None:
        COMPILE_TIME.on_start = None
        notice("compiling the fused passes, once for this version and processor ...")
