"""How the cost grows with the number of particles, and how it depends on epsilon."""

from __future__ import annotations

import resource
import time
from typing import Any

import torch

from proxlearn.bench.clock import best_of
from proxlearn.bench.shapes import Runner, experiment_of, literal_of, spread
from proxlearn.run.engine import make_step
from proxlearn.schema import TrainConfig

SPREAD_AT = 1e5


def measure_growth(config: TrainConfig, steps: int) -> dict[str, Any]:
    """A step with a cloud spread as at k = 1e5; the first one builds the neighbour list."""
    generator = torch.Generator().manual_seed(0)
    experiment, cloud = experiment_of(config)
    cloud = spread(cloud, experiment, SPREAD_AT, generator)
    runner = Runner(make_step("fused", experiment, torch.get_num_threads()), cloud, generator)
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        runner()
        times.append(time.perf_counter() - start)
    best = min(times)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"N": config.N, "ms": 1e3 * best, "build_s": times[0] - best, "peak_mib": peak, "steps": steps}


def measure_literal(config: TrainConfig, seconds: float) -> dict[str, Any]:
    """The same step by the algorithms as printed, float32."""
    generator = torch.Generator().manual_seed(0)
    experiment, cloud = experiment_of(config)
    cloud = spread(cloud, experiment, SPREAD_AT, generator)
    call = literal_of(experiment, cloud, torch.float32, generator)
    return {"N": config.N, "ms": best_of({"literal": call}, seconds, least=2)["literal"]}


def measure_epsilon(config: TrainConfig, steps: int) -> dict[str, Any]:
    """A run from k = 0, with everything a run's steps pay for but metrics and files."""
    generator = torch.Generator().manual_seed(0)
    experiment, cloud = experiment_of(config)
    runner = Runner(make_step("fused", experiment, torch.get_num_threads()), cloud, generator)
    runner()
    start = time.perf_counter()
    for _ in range(steps - 1):
        runner()
    return {"epsilon": config.epsilon, "seconds": time.perf_counter() - start, "steps": steps}
