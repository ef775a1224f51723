"""The choice of the engine of a run (fused, eager, literal or sharded), and the step functions of the engines.

The engine of a run is chosen once, stored, and used again when the run is continued, because the results of the engines
differ by rounding.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from proxlearn.core import literal, step
from proxlearn.core.cloud import PointCloud
from proxlearn.core.compile_time import COMPILE_TIME
from proxlearn.core.functionals.functional import Functional
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.kernels.keops import FAILURE as KEOPS_FAILURE
from proxlearn.core.samples import Samples
from proxlearn.core.sharding import Shards
from proxlearn.core.step import Info
from proxlearn.errors import InputError
from proxlearn.terminal.streams import notice
from proxlearn.training.thread_choice import ThreadChoice

LONG_SECONDS = 2.0
"""Duration of a compilation, in seconds, above which its end is reported."""


class Step(Protocol):
    """The interface of an engine's step function; its hyperparameters and samples can be changed between steps."""

    def __call__(self, cloud: PointCloud, noise: Tensor, z0: Tensor) -> tuple[PointCloud, Info | None]: ...

    def set_hyper(self, hyper: Hyper) -> None: ...

    def set_samples(self, samples: Samples) -> None: ...


def fused_obstacle(device: str) -> str | None:
    """Return the reason why the fused engine cannot run, or None if it can."""
    if device != "cpu":
        return f"the fused engine runs on the CPU only, not on {device}"
    if importlib.util.find_spec("numba") is None:
        return "the package numba is not installed"
    return None


def choose_engine(
    device: str,
    *,
    solver: str = "closed_form",
    compile: str = "auto",
    previous: str | None = None,
    ranks: bool = False,
) -> str:
    """Return the engine of a run: fused, eager, literal or sharded.

    A continued run uses its ``previous`` engine. However, if the process was started by torchrun or srun
    (``ranks=True``), the run uses the sharded engine, and it still does so when it is later continued without torchrun
    or srun. A new run in a single process uses the literal engine if ``solver`` is "literal", the eager engine if
    ``compile`` is "off" or the fused engine cannot run, and otherwise the fused engine.
    """
    obstacle = fused_obstacle(device)
    if ranks:
        return _choose_sharded(obstacle, solver, compile, previous)
    if previous is not None:
        if previous in ("fused", "sharded") and obstacle:
            raise InputError(
                f"this run uses the {previous} engine, but {obstacle}",
                "continue the run on a machine where this engine is available",
            )
        return previous
    if solver == "literal":
        return "literal"
    if compile == "on" and obstacle:
        raise InputError(f"compile=on is not possible because {obstacle}", "use compile=auto")
    return "eager" if obstacle or compile == "off" else "fused"


def _choose_sharded(obstacle: str | None, solver: str, compile: str, previous: str | None) -> str:
    """Return the sharded engine; raise InputError if it cannot run or cannot continue a run of the previous engine."""
    if solver == "literal" or previous == "literal":
        remedy = "leave out solver=literal, or start the run without torchrun or srun"
        raise InputError("solver=literal runs in a single process", remedy)
    if obstacle or compile == "off":
        problem = f"a run under torchrun or srun needs the compiled engine, but {obstacle or 'compile=off is set'}"
        raise InputError(problem, "use device=cpu and compile=auto, or start the run without torchrun or srun")
    if previous == "eager":
        problem = "this run uses the eager engine, which runs in a single process"
        raise InputError(problem, "start the run without torchrun or srun")
    return "sharded"


def make_step(
    engine: str, functional: Functional, hyper: Hyper, N: int, threads: int, shards: Shards | None = None
) -> Step:
    """Return the step function of an engine for N particles; ``shards`` is given for the sharded engine only."""
    if engine in ("fused", "sharded"):
        return CompiledStep(functional, hyper, N, threads, shards)
    if engine == "eager":
        return PlainStep(step.step, functional, hyper)
    if not isinstance(functional, Risk):
        problem = "the literal engine supports only a Risk with the quadratic loss"
        raise InputError(problem, "use engine='eager', or leave out engine")
    literal.check_problem(functional)
    return PlainStep(literal.step, functional, hyper)


class PlainStep:
    """The step function of the eager and literal engines, which calls ``core.step.step`` or ``core.literal.step``."""

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
            notice(f"pykeops cannot be used ({reason}), so torch computes the kernel in tiles")
        return result

    def set_hyper(self, hyper: Hyper) -> None:
        self.hyper = hyper

    def set_samples(self, samples: Samples) -> None:
        assert isinstance(self.functional, Risk), "only a risk has samples"
        self.functional = self.functional.with_samples(samples)


def depends_on_threads(engine: str, functional: Functional) -> bool:
    """Return whether the results of an engine may depend on the number of torch's threads.

    In torch, the order of a sum can depend on this number. The compiled engines use torch for the drift of every
    functional without compiled passes, such as an energy.
    """
    if engine not in ("fused", "sharded"):
        return True
    from proxlearn.core.fused.drifts import has_fused_drift

    return not has_fused_drift(functional)


class CompiledStep:
    """The step function of the fused and sharded engines, which adapts the number of threads to the load.

    The number of threads that torch uses is also adapted, unless the results depend on it.
    """

    def __init__(
        self, functional: Functional, hyper: Hyper, N: int, threads: int, shards: Shards | None = None
    ) -> None:
        from proxlearn.core.fused.fused_step import FusedStep
        from proxlearn.core.fused.sharded_step import ShardedStep
        from proxlearn.core.fused.thread_layer import set_threads

        if shards is None:
            self.fused_step = FusedStep(functional, hyper, N, threads)
        else:
            self.fused_step = ShardedStep(functional, hyper, N, threads, shards)
        self.set_hyper, self.set_samples = self.fused_step.set_hyper, self.fused_step.set_samples
        self._choice, self._set_threads = ThreadChoice(threads), set_threads
        self._adapts_torch = not depends_on_threads("fused", functional)

    def __call__(self, cloud: PointCloud, noise: Tensor, z0: Tensor) -> tuple[PointCloud, Info | None]:
        choice, passes, start = self._choice, COMPILE_TIME.passes, time.perf_counter()
        before, torch_threads = choice.threads, torch.get_num_threads()
        uses_fewer = before == 1 < torch_threads and self._adapts_torch
        if uses_fewer:
            torch.set_num_threads(1)
        try:
            # The caller detects and reports a cloud that is no longer finite.
            with np.errstate(all="ignore"):
                result = self.fused_step(cloud, noise, z0)
        finally:
            if uses_fewer:
                torch.set_num_threads(torch_threads)
        if COMPILE_TIME.passes == passes:
            choice.record(time.perf_counter() - start)
            if choice.threads != before:
                self._set_threads(choice.threads)
        return result


class CompilationReport:
    """A context manager that reports compilations by Numba within its block.

    It is a class instead of a generator, because a generator is slower and the block is entered in every step.
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
            notice(f"compiled code cannot be cached ({error.strerror}), so every run compiles it again; {remedy}")
        elif seconds > LONG_SECONDS:
            notice(f"compiled the fused engine in {seconds:.0f} s; later runs load the compiled code from the cache")

    def _announce(self) -> None:
        COMPILE_TIME.on_start = None
        notice("compiling the fused engine (once per kind of problem, version and processor) ...")
