"""The training loop, shared by runs, estimators, selection and the bench."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.functional import Functional
from proxlearn.core.hyper import Hyper
from proxlearn.core.sharding import Shards
from proxlearn.core.step import Info
from proxlearn.training.engine import choose_engine
from proxlearn.training.stepper import Stepper


def iterate(
    functional: Functional,
    cloud: PointCloud,
    hyper: Hyper,
    *,
    generator: torch.Generator,
    until: int | None = None,
    engine: str | None = None,
    threads: int | None = None,
    fallback: torch.dtype | None = None,
    on_switch: Callable[[PointCloud], None] = lambda bad: None,
    shards: Shards | None = None,
) -> Iterator[tuple[PointCloud, Info | None]]:
    """Yield the cloud and the diagnostics after each step.

    The diagnostics are None if the step has no proximal solution, for example with ``weights="uniform"``.

    Parameters
    ----------
    functional : the functional to minimise, with data in float64; the steps convert it to the cloud's precision.
    cloud : the initial cloud; the steps are counted from ``cloud.step``.
    hyper : the hyperparameters of the run; schedules and a relative epsilon are applied step by step.
    generator : source of all randomness. The cloud and the state of the generator determine all further steps. If a
        step raises an error, the state of the generator is undefined; to continue, the caller must restore the state
        that the generator had before that step.
    until : number of the last step; None for no limit.
    engine : "fused", "eager" or "literal"; None selects "fused" if it can run, and "eager" otherwise. "sharded" is the
        engine for a cloud that is divided among processes; it requires ``shards``.
    threads : number of threads of the compiled functions; None for as many as torch uses. The results of compiled
        functions do not depend on this number; the results of neurons without compiled functions can depend on it.
    fallback : precision to which the run switches permanently at the first non-finite cloud; if it is None, RunError is
        raised instead.
    on_switch : called with the non-finite cloud when the precision is switched.
    shards : the division of the cloud among processes, which all call this function with the same arguments.
    """
    hyper.check()
    hyper = functional.with_readings(hyper)
    engine = engine or choose_engine(cloud.theta.device.type)
    threads = threads or torch.get_num_threads()
    step = Stepper(functional, hyper, engine, threads, generator, fallback, on_switch, shards)
    while until is None or cloud.step < until:
        # If no_grad decorated this function, it would keep a reference to the first cloud until the last step.
        with torch.no_grad():
            cloud, info = step(cloud)
        yield cloud, info
        # The diagnostics refer to the cloud before the step, whose memory is released here.
        del info
