"""Functions that draw a cloud and compute its steps, without a run folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proxlearn.core import step as recursion
from proxlearn.core.cloud import PointCloud, draw_cloud, draw_normal
from proxlearn.core.functionals.functional import Functional, NonFiniteGradient
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.functionals.start_check import check_start
from proxlearn.core.hyper import Hyper
from proxlearn.core.step import Info
from proxlearn.errors import USER_ERRORS, InputError, RunError, did_you_mean
from proxlearn.training.engine import choose_engine, fused_obstacle
from proxlearn.training.fit import split_seed
from proxlearn.training.iterate import iterate as iterate_until
from proxlearn.validators import integer, intervals, real

__all__ = ["init", "iterate", "step"]

ENGINES = ("fused", "eager", "literal")


def init(
    functional: Functional,
    N: int,
    seed: int = 0,
    *,
    scale: float = 1.0,
    box: Mapping[str, tuple[float, float]] | None = None,
    dtype: torch.dtype | None = None,
) -> PointCloud:
    """Draw an initial cloud of N particles with equal weights 1/N.

    Parameters
    ----------
    functional : Functional
        The functional for which the cloud is drawn. It defines the names and lengths of the blocks of theta.
    N : int
        Number of particles.
    seed : int, default=0
        Seed of the locations. The noise of ``iterate`` uses a separate random stream for the same seed.
    scale : float, default=1.0
        Scale s of a centred normal distribution. For the neuron ``a sigma(<w, x> + b)``, the standard deviations are 1
        for a, s for b and s / sqrt(n_x) for w. Without a neuron, the standard deviation is s for all coordinates.
    box : Mapping[str, (float, float)], optional
        Intervals of the coordinates of every block. If given, the locations are uniformly distributed in this
        box instead of normally distributed.
    dtype : torch.dtype, optional
        Precision of the cloud and of its steps, float32 or float64. By default, it is the precision of the data
        for a Risk, and float64 for an Energy. The numbers are drawn in float64 and then rounded.

    Returns
    -------
    PointCloud
        The cloud; its theta has the shape (N, p), where p is the sum of the lengths of the blocks.

    Notes
    -----
    ``init(risk, N, seed, scale=s)`` is the initial cloud of ``proxlearn train recipe=tuned`` with the same seed, N and
    init_scale=s.

    Examples
    --------
    >>> import torch, proxlearn as pl
    >>> risk = pl.Risk(torch.zeros(10, 2), torch.zeros(10))
    >>> pl.init(risk, N=100)
    PointCloud(N=100, p=4, step=0, float32)
    >>> cloud = pl.init(risk, N=100, box={"a": (0.9, 1.1), "b": (-0.1, 0.1), "w": (-1, 1)})
    >>> bool((cloud.theta[:, 0] - 1).abs().max() <= 0.1)
    True
    """
    _check_type("functional", functional, Functional, "a Risk, an Energy or another Functional")
    N = integer(at_least=1, example=1000)("N", N)
    generator = torch.Generator().manual_seed(split_seed(integer(at_least=0, example=0)("seed", seed))[0])
    dtype = functional.dtype if dtype is None else dtype
    if dtype not in (torch.float32, torch.float64):
        raise InputError(f"a cloud cannot have the dtype {dtype}", "use torch.float32 or torch.float64")
    if box is None:
        scale = real(at_least=0, example=1.0)("scale", scale)
        cloud = draw_normal(functional.blocks, functional.initial_deviations(scale), N, generator)
    else:
        box = intervals("box", box)
        for name in box:
            if name not in functional.blocks:
                raise InputError(f"box contains the unknown block `{name}`", did_you_mean(name, functional.blocks))
        for name in functional.blocks:
            if name not in box:
                raise InputError(f"box gives no interval for the block `{name}`", f"add '{name}': (low, high)")
        cloud = draw_cloud(functional.blocks, box, N, "uniform", generator)
    device = functional.samples.X.device if isinstance(functional, Risk) else "cpu"
    return cloud.to(device, dtype)


def iterate(
    functional: Functional,
    cloud: PointCloud,
    hyper: Hyper,
    steps: int | None = None,
    *,
    seed: int = 0,
    generator: torch.Generator | None = None,
    engine: str | None = None,
    threads: int | None = None,
) -> Iterator[tuple[PointCloud, Info | None]]:
    """Return an iterator that yields the cloud after each step and the diagnostics of the step.

    :doc:`/theory/recursion` contains the derivation of a step. The arguments are checked when this function is called,
    before the first step.

    Parameters
    ----------
    functional : Functional
        The functional to minimise: a Risk, an Energy, or a user-defined Functional.
    cloud : PointCloud
        The cloud to start from, with N particles of p coordinates. The steps are computed in its precision.
    hyper : Hyper
        Hyperparameters; schedules and a relative epsilon are applied step by step.
    steps : int, optional
        Number of steps from the given cloud. By default, the iterator is infinite.
    seed : int, default=0
        Seed of the noise, used if no generator is given. The noise depends on the seed and on ``cloud.step``, so that
        steps that continue from a cloud with the same seed do not use the same noise again.
    generator : torch.Generator, optional
        Source of the noise, on the cloud's device. The cloud and the state of the generator determine all further
        steps: with the same generator, 10 steps followed by 10 more give bit for bit the result of 20 steps in one
        call.
    engine : {"fused", "eager", "literal"}, optional
        Implementation of the steps: "fused" uses compiled functions, "eager" uses torch functions, and "literal" runs
        the algorithms as the paper prints them. The default is "fused" on the CPU and "eager" on other devices. The
        results of the engines differ by rounding.
    threads : int, optional
        Number of threads of the "fused" engine, by default as many as torch uses. The results of this engine do not
        depend on the number of threads.

    Yields
    ------
    cloud : PointCloud
        The cloud after the step.
    info : Info or None
        Diagnostics of the proximal step, or None for other weight updates.

    Raises
    ------
    InputError
        If the functional, the cloud and the hyperparameters are not compatible.
    RunError
        If a cloud is no longer finite, or if an N x N kernel does not fit in memory.

    Notes
    -----
    A cloud represents two distributions, one by its locations and one by its weighted locations. The proximal
    weights follow the density p of the particles, up to a factor. For locations drawn from p, the weighted mean of a
    function therefore estimates its integral against p^2 / int p^2, a narrower distribution, whereas the unweighted
    mean estimates the integral against p. If the distribution of the particles is of interest (a histogram, a moment),
    use the unweighted mean over ``cloud.theta``, or ``weights="uniform"``, which does not change the weights. A Risk
    and its gradient use the weights.

    Examples
    --------
    >>> import torch, proxlearn as pl
    >>> x = torch.linspace(-3, 3, 40)
    >>> risk = pl.Risk(x[:, None], torch.sin(x))
    >>> start = pl.init(risk, N=200, seed=0)
    >>> readings = {"drift": "first_variation", "prox_potential": "first_variation"}
    >>> hyper = pl.Hyper(beta=1e4, h=0.1, epsilon=0.1, **readings)
    >>> for cloud, info in pl.iterate(risk, start, hyper, steps=100, seed=0):
    ...     pass
    >>> cloud.step, bool(risk.value(cloud.theta, cloud.rho) < risk.value(start.theta, start.rho))
    (100, True)
    """
    hyper = _check_problem(functional, cloud, hyper)
    if steps is not None:
        steps = integer(at_least=0, example=1000)("steps", steps)
    if threads is not None:
        threads = integer(at_least=1, below=4097, example=1)("threads", threads)
    device = cloud.theta.device
    engine = _check_engine(engine, device.type)
    if hyper.batch_size is not None and not isinstance(functional, Risk):
        problem = f"batch_size={hyper.batch_size}, but this functional has no samples"
        raise InputError(problem, "leave out batch_size")
    if generator is None:
        noise_seed = _noise_seed(integer(at_least=0, example=0)("seed", seed), cloud.step)
        generator = torch.Generator(device).manual_seed(noise_seed)
    _check_type("generator", generator, torch.Generator, f"torch.Generator({device.type!r})")
    if generator.device.type != device.type:
        problem = f"the generator is on {generator.device.type}, but the cloud is on {device.type}"
        raise InputError(problem, f"use torch.Generator({device.type!r})")
    check_start(functional, cloud, hyper)
    until = None if steps is None else cloud.step + steps
    iterates = iterate_until(functional, cloud, hyper, generator=generator, until=until, engine=engine, threads=threads)
    return _with_step_in_errors(iterates, cloud.step)


def step(
    functional: Functional, cloud: PointCloud, hyper: Hyper, noise: Tensor, z0: Tensor
) -> tuple[PointCloud, Info | None]:
    """Compute (Theta, rho)_k from (Theta, rho)_{k-1} as a pure function; equal inputs give bit for bit equal results.

    Equation :eq:`motion` in :doc:`/theory/recursion` moves the particles, and rounds of equation :eq:`round` compute
    the weights, which minimise equation :eq:`objective`.

    Parameters
    ----------
    functional : Functional
        The functional to minimise: a Risk, an Energy, or a user-defined Functional.
    cloud : PointCloud
        A cloud of N particles with p coordinates. The functional's data, noise and z0 are converted to the precision
        and the device of the cloud.
    hyper : Hyper
        The hyperparameters of this step; schedules and ``epsilon_quantile`` are not applied (``iterate`` applies them).
    noise : Tensor, shape (N, p)
        Standard normal numbers.
    z0 : Tensor, shape (N,)
        Initial value of the proximal fixed-point iteration, uniformly distributed on (0, 1].

    Returns
    -------
    cloud : PointCloud
        The cloud after the step, with ``cloud.step`` increased by one.
    info : Info or None
        Diagnostics of the proximal step, or None for other weight updates.

    Raises
    ------
    InputError
        If the arguments are not compatible, or the functional is not finite at the given cloud.

    Examples
    --------
    >>> import torch, proxlearn as pl
    >>> x = torch.linspace(-3, 3, 40)
    >>> risk = pl.Risk(x[:, None], torch.sin(x))
    >>> cloud, hyper = pl.init(risk, N=50, seed=0), pl.Hyper(beta=0.05, h=1e-3, epsilon=1.0)
    >>> cloud, info = pl.step(risk, cloud, hyper, noise=torch.randn(50, 3), z0=1 - torch.rand(50))
    >>> cloud.step, info.stopped
    (1, True)
    """
    hyper = _check_problem(functional, cloud, hyper)
    for name, numbers in (("noise", noise), ("z0", z0)):
        _check_type(name, numbers, Tensor, "a tensor, such as torch.randn(N, p) for noise and 1 - torch.rand(N) for z0")
    theta = cloud.theta
    functional = functional.to(theta.device, theta.dtype)
    try:
        after, info = recursion.step(functional, cloud, hyper, noise.to(theta), z0.to(theta))
    except (NonFiniteGradient, *USER_ERRORS):
        check_start(functional, cloud, hyper)
        raise
    if not bool(torch.isfinite(after.theta).all() and torch.isfinite(after.log_rho).all()):
        # The check costs as much as a step, so it runs only if the new cloud is not finite.
        check_start(functional, cloud, hyper)
    return after, info


def _noise_seed(seed: int, step: int) -> int:
    """Return the seed of the noise for a cloud at ``step``; at step 0, it is the seed that `proxlearn train` uses."""
    if step == 0:
        return split_seed(seed)[1]
    return int(np.random.SeedSequence(seed, spawn_key=(step,)).generate_state(1, np.uint32)[0])


def _with_step_in_errors(
    iterates: Iterator[tuple[PointCloud, Info | None]], step: int
) -> Iterator[tuple[PointCloud, Info | None]]:
    """Yield the iterates, and add the number of the step to an error about a non-finite gradient."""
    try:
        for cloud, info in iterates:
            step = cloud.step
            yield cloud, info
    except NonFiniteGradient as error:
        raise RunError(f"{error.problem} in step {step + 1}", error.remedy) from error


def _check_problem(functional: Any, cloud: Any, hyper: Any) -> Hyper:
    """Return ``hyper`` with defaults that suit the functional; raise InputError if the arguments are incompatible."""
    _check_type("functional", functional, Functional, "a Risk, an Energy or another Functional")
    _check_type("cloud", cloud, PointCloud, "a PointCloud, such as the result of proxlearn.init(functional, N)")
    _check_type("hyper", hyper, Hyper, "proxlearn.Hyper(beta=..., h=..., epsilon=...)")
    hyper.check()
    readings: Hyper = functional.with_readings(hyper)
    functional.check_cloud(cloud)
    return readings


def _check_type(name: str, value: Any, cls: type, expected: str) -> None:
    if not isinstance(value, cls):
        what = f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"
        raise InputError(f"{name} is {what}", f"give {expected}")


def _check_engine(engine: str | None, device: str) -> str:
    if engine is None:
        return choose_engine(device)
    if engine not in ENGINES:
        raise InputError(f"unknown engine {engine!r}", f"choose from {', '.join(ENGINES)}, or leave engine out")
    obstacle = fused_obstacle(device) if engine == "fused" else None
    if obstacle:
        raise InputError(f"engine='fused', but {obstacle}", "leave engine out")
    return engine
