"""Measurements of the growth of the cost with the number of particles, and of its dependence on epsilon."""

from __future__ import annotations

import time
from typing import Any

import torch

from proxlearn.bench.recursion import Recursions, experiment_of, literal_of, spread_cloud
from proxlearn.bench.timing import best_of
from proxlearn.config.schema import TrainConfig
from proxlearn.portability import peak_memory

SPREAD_AT = 1e5
TURNS = 100
WARM_UP_SPREADS = (3, 10, 30, 100, 1e4)


def measure_growth(config: TrainConfig, steps: int) -> dict[str, Any]:
    """Measure the time of a step from a cloud that is spread out as after SPREAD_AT recursions.

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
    """Measure the time of ``steps`` recursions from step 0 for each config; the configs take turns."""
    runs = []
    for config in configs:
        experiment, cloud = experiment_of(config)
        # Each of the three regimes runs once, so that no pass is compiled during the measurement.
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
