"""The engine of a run: the code that computes the steps (compiled, plain torch, or literal), and its step function.

A run chooses its engine once, stores it, and keeps it when it is continued: the engines differ in their last bits.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Protocol

import numpy as np
from torch import Tensor

from proxlearn.core import literal, step
from proxlearn.core.cloud import PointCloud
from proxlearn.core.compile_time import COMPILE_TIME
from proxlearn.core.hyper import Hyper
from proxlearn.core.kernel import KernelTooLarge
from proxlearn.core.neurons.neuron import Neuron
from proxlearn.core.problem import Problem
from proxlearn.core.samples import Samples
from proxlearn.core.step import Info
from proxlearn.errors import InputError, RunError
from proxlearn.memory import full_kernel_remedy
from proxlearn.terminal.notice import notice

LONG_SECONDS = 2.0
"""A compilation that took longer is reported when it has ended."""


class Step(Protocol):
    """``core.step.step`` for one problem and one set of hyperparameters, both of which may change between steps."""

    def __call__(self, cloud: PointCloud, noise: Tensor, z0: Tensor) -> tuple[PointCloud, Info | None]: ...

    def set_hyper(self, hyper: Hyper) -> None: ...

    def set_samples(self, samples: Samples) -> None: ...


def fused_obstacle(neuron: Neuron, device: str) -> str | None:
    """Return the reason why the fused engine cannot run; None if it can."""
    if device != "cpu":
        return f"the fused engine is for the CPU, not {device}"
    if importlib.util.find_spec("numba") is None:
        return "the package numba is not installed"
    from proxlearn.core.fused.fused_step import DRIFTS

    return None if neuron.name in DRIFTS else f"the {neuron.name} neuron has no fused drift"


def choose_engine(
    neuron: Neuron, device: str, *, solver: str = "closed_form", compile: str = "auto", previous: str | None = None
) -> str:
    """Return the engine of a new run (fused, eager or literal), or the ``previous`` one of a run that is continued."""
    obstacle = fused_obstacle(neuron, device)
    if previous is not None:
        if previous == "fused" and obstacle:
            raise InputError(f"this run uses the fused engine, but {obstacle}", "continue it where that engine can run")
        return previous
    if solver == "literal":
        return "literal"
    if compile == "on" and obstacle:
        raise InputError(f"compile=on, but {obstacle}", "use compile=auto")
    return "eager" if obstacle or compile == "off" else "fused"


def make_step(engine: str, problem: Problem, hyper: Hyper, N: int, threads: int) -> Step:
    """Return the step function of an engine, in the problem's precision."""
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
    """The fused engine; it reports compilations, and a cloud that is too large for it."""

    def __init__(self, problem: Problem, hyper: Hyper, N: int, threads: int) -> None:
        from proxlearn.core.fused.fused_step import FusedStep

        with CompilationReport():
            self.fused_step = FusedStep(problem, hyper, N, threads)
        self.set_hyper, self.set_samples = self.fused_step.set_hyper, self.fused_step.set_samples

    def __call__(self, cloud: PointCloud, noise: Tensor, z0: Tensor) -> tuple[PointCloud, Info | None]:
        try:
            # The caller detects a cloud that leaves the finite range and reports it.
            with np.errstate(all="ignore"), CompilationReport():
                return self.fused_step(cloud, noise, z0)
        except KernelTooLarge as error:
            remedy = full_kernel_remedy(error.N, error.largest, error.crowded, cloud.theta.itemsize)
            raise RunError(f"{error}, which kernel=auto does not form", remedy) from error


class CompilationReport:
    """Report the passes that are compiled in this block, as counted by Numba: a step that is just slow is not reported.

    A class and not a generator, because every step enters it.
    """

    def __enter__(self) -> None:
        self.passes, self.seconds = COMPILE_TIME.passes, COMPILE_TIME.seconds
        COMPILE_TIME.on_start = self._announce

    def __exit__(self, *_: object) -> None:
        COMPILE_TIME.on_start = None
        if COMPILE_TIME.passes == self.passes:
            return
        seconds = COMPILE_TIME.seconds - self.seconds
        error = COMPILE_TIME.cache_error
        if error is not None:
            remedy = "set XDG_CACHE_HOME to a folder that you can write to"
            notice(f"compiled passes cannot be cached ({error.strerror}), so every run compiles them; {remedy}")
        elif seconds > LONG_SECONDS:
            notice(f"compiled the fused passes in {seconds:.0f} s; later runs load them from the cache")

    def _announce(self) -> None:
        COMPILE_TIME.on_start = None
        notice("compiling the fused passes, once per version and processor ...")
