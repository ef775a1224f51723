"""The engine of a run: the code that computes the steps (compiled, plain torch, or literal), and its step function.

A run chooses its engine once, stores it, and keeps it when it is continued: the engines differ in their last bits.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from proxlearn.core import literal, step
from proxlearn.core.cloud import PointCloud
from proxlearn.core.compile_time import COMPILE_TIME
from proxlearn.core.functionals.functional import Functional
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.kernels.keops import FAILURE as KEOPS_FAILURE
from proxlearn.core.kernels.kernel import KernelTooLarge
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


def fused_obstacle(device: str) -> str | None:
    """Return the reason why the fused engine cannot run; None if it can."""
    if device != "cpu":
        return f"the fused engine runs on the CPU only, not on {device}"
    if importlib.util.find_spec("numba") is None:
        return "the package numba is not installed"
    return None


def choose_engine(
    device: str, *, solver: str = "closed_form", compile: str = "auto", previous: str | None = None
) -> str:
    """Return the engine of a new run (fused, eager or literal), or the ``previous`` one of a run that is continued."""
    obstacle = fused_obstacle(device)
    if previous is not None:
        if previous == "fused" and obstacle:
            raise InputError(
                f"this run uses the fused engine, but {obstacle}", "continue the run where this engine is available"
            )
        return previous
    if solver == "literal":
        return "literal"
    if compile == "on" and obstacle:
        raise InputError(f"compile=on is not possible because {obstacle}", "use compile=auto")
    return "eager" if obstacle or compile == "off" else "fused"


def make_step(engine: str, functional: Functional, hyper: Hyper, N: int, threads: int) -> Step:
    """Return the step function of an engine, in the precision of the functional."""
    if engine == "fused":
        return CompiledStep(functional, hyper, N, threads)
    if engine == "eager":
        return PlainStep(step.step, functional, hyper)
    if not isinstance(functional, Risk):
        problem = "the literal engine is Algorithms 1 and 2 for the quadratic risk"
        raise InputError(problem, "use engine='eager', or leave engine out")
    literal.check_problem(functional)
    return PlainStep(literal.step, functional, hyper)


class PlainStep:
    """The reference recursion, or the literal one."""

    def __init__(
        self,
        step: Callable[[Any, PointCloud, Hyper, Tensor, Tensor], tuple[PointCloud, Info | None]],
        functional: Functional,
        hyper: Hyper,
    ) -> None:
        self.step, self.functional, self.hyper = step, functional, hyper

    def __call__(self, cloud: PointCloud, noise: Tensor, z0: Tensor) -> tuple[PointCloud, Info | None]:
        result = self.step(self.functional, cloud, self.hyper, noise, z0)
        reason = KEOPS_FAILURE.take()
        if reason is not None:
            notice(f"pykeops cannot be used, so the kernel is computed by torch in tiles: {reason}")
        return result

    def set_hyper(self, hyper: Hyper) -> None:
        self.hyper = hyper

    def set_samples(self, samples: Samples) -> None:
        assert isinstance(self.functional, Risk), "only a risk has samples"
        self.functional = self.functional.with_samples(samples)


class CompiledStep:
    """The fused engine; it reports compilations, and a cloud that is too large for it."""

    def __init__(self, functional: Functional, hyper: Hyper, N: int, threads: int) -> None:
        from proxlearn.core.fused.fused_step import FusedStep

        with CompilationReport():
            self.fused_step = FusedStep(functional, hyper, N, threads)
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
            notice(f"the compiled passes cannot be cached ({error.strerror}), so every run compiles them; {remedy}")
        elif seconds > LONG_SECONDS:
            notice(f"compiled the fused passes in {seconds:.0f} s; later runs load them from the cache")

    def _announce(self) -> None:
        COMPILE_TIME.on_start = None
        notice("compiling the fused passes (once per version and processor) ...")
