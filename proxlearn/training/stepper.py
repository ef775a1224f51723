"""One training step: the recursion with random numbers, schedules, resampling and a switch of precision.

The cloud and the generator are the complete state, so a fit that continues from a stored cloud and generator gives bit
for bit the result of an uninterrupted fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.functional import Functional
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.noise import draw_key, normal, uniform
from proxlearn.core.schedules import hyper_for_step, with_measured_epsilon
from proxlearn.core.sharding import Shards
from proxlearn.core.step import Info
from proxlearn.core.weight_updates import ess_below, resample_systematic
from proxlearn.errors import InputError, RunError
from proxlearn.portability import one_thread
from proxlearn.training.engine import CompilationReport, Step, fused_obstacle, make_step


class Stepper:
    """A callable that maps cloud_{k-1} to cloud_k, with random numbers from one generator."""

    def __init__(
        self,
        functional: Functional,
        hyper: Hyper,
        engine: str,
        threads: int,
        generator: torch.Generator,
        fallback: torch.dtype | None = None,
        on_switch: Callable[[PointCloud], None] = lambda bad: None,
        shards: Shards | None = None,
    ) -> None:
        """Prepare the steps for a functional whose data, if any, are in float64; the steps convert them as needed.

        At the first non-finite cloud, the precision is switched permanently to ``fallback``, and ``on_switch`` is
        called with that cloud.
        """
        self.source, self.hyper, self.engine, self.threads = functional, hyper, engine, threads
        self.generator, self.fallback, self.on_switch = generator, fallback, on_switch
        self.shards = shards
        if hyper.batch_size is not None and not isinstance(functional, Risk):
            problem = f"batch_size={hyper.batch_size}, but this functional has no samples"
            raise InputError(problem, "leave out batch_size")
        if engine == "fused" and fused_obstacle("cpu") is None:
            # This must precede the first draw of noise, because the first compiled function starts Numba's threads.
            from proxlearn.core.fused.thread_layer import set_threads

            set_threads(threads)
        self._functional: Functional | None = None
        """The functional in the precision of the newest step, ``_dtype``."""
        self._dtype: torch.dtype | None = None
        self._step: Step | None = None

    def __call__(self, cloud: PointCloud) -> tuple[PointCloud, Info | None]:
        with CompilationReport():
            return self._advance(cloud)

    def _advance(self, cloud: PointCloud) -> tuple[PointCloud, Info | None]:
        hyper, before = self.hyper, with_measured_epsilon(self.hyper, cloud)
        rows = self._draw_batch()
        step = self._prepare(before, rows)
        noise, z0 = draw_noise(before, self.generator, self.engine, self.shards)
        after, info = step(before, noise, z0)
        if not (info is not None and info.finite) and not is_finite(after):
            if self.fallback in (None, before.theta.dtype):
                raise not_finite_error(after, self._remedy(after))
            assert self.fallback is not None
            self.on_switch(after)
            before = before.to(before.theta.device, self.fallback)
            after, info = self._prepare(before, rows)(before, noise.to(self.fallback), z0.to(self.fallback))
            if not is_finite(after):
                raise not_finite_error(after, self._remedy(after))
        if hyper.epsilon_quantile is not None:
            after = PointCloud(after.theta, after.log_rho, after.step, after.screen, before.epsilon)
        if hyper.resample == "systematic":
            with one_thread():
                after = self._resample_if_poor(after)
        return after, info

    def _resample_if_poor(self, cloud: PointCloud) -> PointCloud:
        if not ess_below(cloud, self.hyper.ess_threshold):
            return cloud
        return resample_systematic(cloud, float(torch.rand((), generator=self.generator, device=self.generator.device)))

    def _prepare(self, cloud: PointCloud, rows: Tensor | None) -> Step:
        """Return the step function in the cloud's precision, for the samples in ``rows`` or, if None, for all samples.

        The first call may also start the process that compiles passes; therefore, it must precede the first draw of
        noise.
        """
        device, dtype = cloud.theta.device, cloud.theta.dtype
        hyper = hyper_for_step(self.hyper, cloud)
        if self._functional is None or self._dtype != dtype:
            self._functional, self._dtype, self._step = self.source.to(device, dtype), dtype, None
        functional, samples = self._functional, None
        if rows is not None and isinstance(functional, Risk):
            samples = functional.samples.take_rows(rows.to(device))
            functional = functional if self._step is not None else functional.with_samples(samples, batch=True)
        if self._step is None:
            self._step = make_step(self.engine, functional, hyper, len(cloud.theta), self.threads, self.shards)
        elif samples is not None:
            self._step.set_samples(samples)
        if self.hyper.varies:
            self._step.set_hyper(hyper)
        return self._step

    def _remedy(self, bad: PointCloud) -> str:
        """Return the remedy for a non-finite cloud, without settings that the run already uses."""
        if has_finite_locations(bad):
            if self.engine == "literal":
                return "use solver=closed_form"
            if self.hyper.weights == "proximal" and self.hyper.kernel == "dense":
                return "use kernel=log"
        wider = bad.theta.dtype == torch.float32 and self.fallback is None
        return "choose a smaller h" + (", or use device=jetson-float32-to-float64" if wider else "")

    def _draw_batch(self) -> Tensor | None:
        """Draw the rows of the step's mini-batch with replacement; return None if the step uses all samples."""
        size = self.hyper.batch_size
        if size is None or not isinstance(self.source, Risk) or size >= len(self.source.samples):
            return None
        n = len(self.source.samples)
        return torch.randint(n, (size,), generator=self.generator, device=self.generator.device)


def draw_noise(
    cloud: PointCloud, generator: torch.Generator, engine: str = "fused", shards: Shards | None = None
) -> tuple[Tensor, Tensor]:
    """Draw the random numbers of one step: standard normal noise, and z0 uniform on (0, 1].

    All engines draw the same numbers up to rounding. With ``shards``, the noise is drawn for this rank's particles
    only, and z0 for all particles.
    """
    key, dtype, device = draw_key(generator), cloud.theta.dtype, cloud.theta.device
    if engine not in ("fused", "sharded") or fused_obstacle(device.type) is not None:
        return normal(key, cloud.theta.shape, dtype, device), uniform(key, len(cloud.theta), dtype, device)
    # Numba takes a second to import and the other engines do not need it.
    from proxlearn.core.fused.random_numbers import fill_normal, fill_uniform

    rows = slice(None) if shards is None else shards.rows
    noise, z0 = torch.empty_like(cloud.theta[rows]), torch.empty_like(cloud.theta[:, 0])
    fill_normal(key, noise.numpy(), 0 if shards is None else shards.rows.start * cloud.theta.shape[1])
    fill_uniform(key, z0.numpy())
    return noise, z0


def is_finite(cloud: PointCloud) -> bool:
    """Return whether all numbers of the cloud are finite, by checking sums, in which NaN and infinity propagate."""
    if cloud.theta.device.type == "cpu":
        # numpy's sum uses one thread; starting a second one would take longer than the sum.
        with np.errstate(all="ignore"):
            return math.isfinite(cloud.theta.numpy().sum() + cloud.log_rho.numpy().sum())
    return math.isfinite(float(cloud.theta.sum() + cloud.log_rho.sum()))


def not_finite_error(cloud: PointCloud, remedy: str = "choose a smaller h") -> RunError:
    """Return the error for a cloud that is not finite."""
    quantity = "rho" if has_finite_locations(cloud) else "theta"
    return RunError(f"{quantity} is not finite after step {cloud.step}", remedy)


def has_finite_locations(cloud: PointCloud) -> bool:
    return bool(torch.isfinite(cloud.theta.sum()))
