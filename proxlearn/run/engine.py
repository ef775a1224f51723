"""Which code makes the steps of a run: chosen once at its start, stored in it, and kept when it is continued."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable

from torch import Tensor

from proxlearn.core import paper, recursion
from proxlearn.core.cloud import PointCloud
from proxlearn.core.recursion import Info
from proxlearn.errors import InputError, RunError
from proxlearn.notice import notice
from proxlearn.run.experiment import Experiment

Step = Callable[[PointCloud, Tensor, Tensor], tuple[PointCloud, Info | None]]


def choose_engine(experiment: Experiment, earlier: str | None) -> str:
    """The engine of a new run, or the one that an earlier session of the run used."""
    config = experiment.config
    why_not = _why_not_fused(experiment)
    if earlier is not None:
        if earlier == "fused" and why_not:
            raise InputError(f"this run was begun with the fused engine, but {why_not}", "continue it where it can run")
        return earlier
    if config.solver == "literal":
        return "literal"
    if config.compile == "on" and why_not:
        raise InputError(f"compile=on, but {why_not}", "use compile=auto")
    return "eager" if why_not or config.compile == "off" else "fused"


def _why_not_fused(experiment: Experiment) -> str | None:
    if experiment.device.type != "cpu":
        return f"the fused engine is for the CPU, not {experiment.device.type}"
    if importlib.util.find_spec("numba") is None:
        return "the package numba is not installed"
    from proxlearn.core.fused.engine import DRIFTS

    if experiment.problem.neuron.name not in DRIFTS:
        return f"the {experiment.problem.neuron.name} neuron has no fused drift"
    return None


def make_step(engine: str, experiment: Experiment, threads: int) -> Step:
    """The step function of a run, in the experiment's precision."""
    if engine == "fused":
        from proxlearn.core.fused import compiled_before
        from proxlearn.core.fused.engine import FusedStep

        made = FusedStep(experiment.problem, experiment.hyper, experiment.config.N, threads)
        compiled = False

        def fused(cloud: PointCloud, noise: Tensor, z0: Tensor) -> tuple[PointCloud, Info | None]:
            nonlocal compiled
            start = time.monotonic()
            try:
                return made(cloud, noise, z0)
            except MemoryError as error:
                raise RunError(str(error), "choose a smaller N or epsilon, or weights=uniform") from error
            finally:
                seconds = time.monotonic() - start
                if not compiled and seconds > 2:
                    notice(f"compiled the fused passes in {seconds:.0f} s; later runs find them in the cache")
                compiled = True

        if not compiled_before():
            notice("compiling the fused passes, once for this version and processor ...")
        return fused
    step = paper.step if engine == "literal" else recursion.step

    def plain(cloud: PointCloud, noise: Tensor, z0: Tensor) -> tuple[PointCloud, Info | None]:
        return step(experiment.problem, cloud, experiment.hyper, noise, z0)

    return plain
