"""Measurements of the time of a step for increasing numbers of particles and for several values of epsilon.

KeOps computes reductions over all pairs of points without storing a matrix, and is the usual tool for many points. If
it is installed, one of its reductions is timed on the same cloud: a log-sum-exp over all pairs, which costs as much as
a single product with the kernel in the log domain. A recursion needs 2 (rounds + 1) such products, and the drift.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from proxlearn.bench.experiments import make_stepper
from proxlearn.bench.special_clouds import Recursions, experiment_of, literal_of, spread_cloud
from proxlearn.bench.timing import Call, best_of
from proxlearn.bench.torch_floor import regime_of
from proxlearn.config.schema import TrainConfig
from proxlearn.core.cloud import PointCloud
from proxlearn.core.compile_time import COMPILE_TIME
from proxlearn.errors import InputError, RunError
from proxlearn.memory import is_out_of_memory
from proxlearn.portability import peak_memory
from proxlearn.run.experiment import Experiment

SPREAD_AT = 1e5
TURNS = 100
WARM_UP_SPREADS = (3, 10, 30, 100, 1e4)


def measure_growth(config: TrainConfig, steps: int) -> dict[str, Any]:
    """Measure the time of a step from a cloud that is spread out as widely as a cloud after SPREAD_AT recursions.

    The first step also builds the neighbour list; its additional time is ``build_s``.
    """
    generator = torch.Generator().manual_seed(0)
    experiment, cloud = experiment_of(config)
    cloud = spread_cloud(cloud, experiment, SPREAD_AT, generator)
    recursions = Recursions(experiment, cloud, generator)
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        recursions()
        times.append(time.perf_counter() - start)
    best, peak = min(times), peak_memory() / 2**20
    return {"N": config.N, "ms": 1e3 * best, "build_s": times[0] - best, "peak_mib": peak, "steps": steps}


def measure_literal(config: TrainConfig, seconds: float) -> dict[str, Any]:
    """Measure the step of ``measure_growth`` with the paper's algorithms as printed, in float32."""
    generator = torch.Generator().manual_seed(0)
    experiment, cloud = experiment_of(config)
    cloud = spread_cloud(cloud, experiment, SPREAD_AT, generator)
    call = literal_of(experiment, cloud, torch.float32, generator)
    return {"N": config.N, "ms": best_of({"literal": call}, seconds, least=2)["literal"]}


def measure_epsilons(configs: list[TrainConfig], steps: int) -> list[dict[str, Any]]:
    """Measure the total time of the recursions 2 to ``steps`` for each config; the runs of the configs alternate."""
    runs = []
    for config in configs:
        experiment, cloud = experiment_of(config)
        # Run a recursion in each of the three regimes, so that no pass is compiled during the measurement.
        for k in WARM_UP_SPREADS:
            generator = torch.Generator().manual_seed(0)
            Recursions(experiment, spread_cloud(cloud, experiment, k, generator), generator)()
        runs.append(Recursions(experiment, cloud, torch.Generator().manual_seed(0)))
        runs[-1]()
    seconds = [0.0] * len(runs)
    # The speed of the machine changes during the measurement; taking turns spreads the changes over all runs.
    chunk = max(1, (steps - 1) // TURNS)
    for first in range(1, steps, chunk):
        for i, recursions in enumerate(runs):
            start = time.perf_counter()
            for _ in range(min(chunk, steps - first)):
                recursions()
            seconds[i] += time.perf_counter() - start
    return [{"epsilon": c.epsilon, "seconds": s, "steps": steps} for c, s in zip(configs, seconds, strict=True)]


SIZES = (1000, 2000, 5000, 10_000, 20_000)
LARGE_SIZES = (*SIZES, 50_000, 100_000)
QUICK_SIZES = (500, 1000, 2000)
LONGEST_STEP = 300.0
"""Longest expected time, in seconds, of a step that is still measured. The expected time is extrapolated from the
previous N in proportion to N^2."""
NOT_POSSIBLE = "not possible"
NOT_INSTALLED = "not installed"


def measure_initial_growth(
    config_of_size: Callable[[int], TrainConfig], sizes: Sequence[int], steps: int = 2
) -> Iterator[dict[str, Any]]:
    """Yield, for each N, a record of the fastest of ``steps`` steps, each of which starts from the initial cloud.

    If a step is not possible, ``seconds`` is None and ``problem`` is the reason.
    """
    previous: tuple[int, float] | None = None
    for i, N in enumerate(sizes):
        config = config_of_size(N)
        record: dict[str, Any] = {"dataset": config.dataset.name, "N": N, "seconds": None, "problem": None}
        if previous is not None and (expected := previous[1] * (N / previous[0]) ** 2) > LONGEST_STEP:
            yield record | {"problem": f"a step would take about {expected:.0f} s"}
            continue
        try:
            experiment, cloud = experiment_of(config)
        except InputError as error:
            if i == 0:
                # At the first N, the error means that the data are missing; at a larger N, it means that the memory is
                # too small.
                raise
            yield record | {"problem": error.problem}
            continue
        record["keops"] = _keops(cloud, experiment.hyper.epsilon)
        try:
            record |= _measure(experiment, cloud, steps)
            previous = (N, record["seconds"])
        except RunError as error:
            record["problem"] = error.problem
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            record["problem"] = "not enough memory"
        yield record


def _measure(experiment: Experiment, cloud: PointCloud, steps: int) -> dict[str, Any]:
    step = make_stepper(experiment, torch.Generator().manual_seed(0))
    seconds: list[float] = []
    while len(seconds) < steps:
        # Passes are compiled or loaded at their first call, which is not part of a step's time.
        start, overhead = time.perf_counter(), COMPILE_TIME.overhead
        after, info = step(cloud)
        seconds.append(time.perf_counter() - start - (COMPILE_TIME.overhead - overhead))
    return {
        "seconds": min(seconds),
        "ns_per_pair": 1e9 * min(seconds) / len(cloud.theta) ** 2,
        "regime": regime_of(after, info),
        "rounds": 0 if info is None else info.solution.rounds,
    }


def _keops(cloud: PointCloud, epsilon: float) -> float | str:
    """Return the seconds of one log-sum-exp over all pairs with KeOps, or the reason why it cannot be measured."""
    if importlib.util.find_spec("pykeops") is None:
        return NOT_INSTALLED
    try:
        # The first call compiles. KeOps reports this on standard output, which is reserved for results.
        with contextlib.redirect_stdout(sys.stderr):
            call = keops_call(cloud, epsilon)
            call()
    except Exception as error:
        # KeOps needs a C++ compiler; its errors have many types.
        return f"failed: {type(error).__name__}"
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def keops_call(cloud: PointCloud, epsilon: float) -> Call:
    """Return a function that computes log(Gamma z) for z = rho with KeOps on the CPU."""
    from pykeops.torch import LazyTensor

    theta = cloud.theta.contiguous()
    x, y = LazyTensor(theta[:, None, :]), LazyTensor(theta[None, :, :])
    # KeOps supports only one precision at a time, and the weights are in float64.
    log_z = LazyTensor(cloud.log_rho.to(theta.dtype)[None, :, None].contiguous())
    exponents = log_z - ((x - y) ** 2).sum(-1) / (2 * epsilon)
    return lambda: exponents.logsumexp(dim=1, backend="CPU")
