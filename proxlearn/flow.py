"""Clouds from Python, without a run folder: an initial cloud, one step, and the iterates from it."""

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
    """Draw an initial cloud of N particles of equal weight 1/N.

    Parameters
    ----------
    functional : Functional
        What the cloud is for: it names the blocks of theta and their lengths.
    N : int
        Number of particles.
    seed : int, default=0
        Seed of the locations. The noise of ``iterate`` has a stream of its own for the same seed.
    scale : float, default=1.0
        Scale s of a centred normal law. A neuron chooses the standard deviation of each block from it (for
        a sigma(<w, x> + b): a has 1, b has s, w has s / sqrt(n_x)); without a neuron each coordinate has s.
    box : Mapping[str, (float, float)], optional
        Draw uniformly on a box instead: the interval of the coordinates of every block.
    dtype : torch.dtype, optional
        float32 or float64, the precision of the cloud and of its steps. Left out, it is the precision of the data of a
        Risk, and float64 for an Energy. The numbers are drawn in float64 and then rounded.

    Returns
    -------
    PointCloud
        theta has the shape (N, p), where p is the sum of the lengths of the blocks.

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
                raise InputError(f"box names the block `{name}`", did_you_mean(name, functional.blocks))
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
    """Iterate over the clouds after each step, with the diagnostics of the step.

    The input is checked at the call, before the first step.

    Parameters
    ----------
    functional : Functional
        What is minimised: a Risk, an Energy, or a Functional of one's own.
    cloud : PointCloud
        The cloud to start from: N particles of p coordinates. Its precision is that of the steps.
    hyper : Hyper
        Hyperparameters; schedules and a relative epsilon are applied step by step.
    steps : int, optional
        Number of steps from the given cloud; without it, the iterator does not end.
    seed : int, default=0
        Seed of the noise, used where no generator is given. The noise depends on the seed and on ``cloud.step``, so
        that a cloud that is continued with the same seed does not repeat its noise.
    generator : torch.Generator, optional
        Source of the noise, on the cloud's device. The cloud and the state of the generator determine all further
        steps: with the same generator, 10 steps and then 10 more are the 20 steps of one call, bit for bit.
    engine : {"fused", "eager", "literal"}, optional
        Compiled passes, plain torch, or the algorithms as printed. Left out: fused on the CPU, eager elsewhere. The
        engines differ in their last bits.
    threads : int, optional
        Threads of the compiled passes; as many as torch uses where it is left out. The last bits depend on it.

    Yields
    ------
    cloud : PointCloud
        The cloud after the step.
    info : Info or None
        Diagnostics of the proximal step; None where the weight update is not the proximal one.

    Raises
    ------
    InputError
        Where the functional, the cloud and the hyperparameters do not fit together.
    RunError
        Where a cloud is no longer finite, or an N x N kernel is too large for memory.

    Notes
    -----
    A cloud has two laws: that of its locations, and the same with the weights. The proximal weights follow the density
    p of the particles, up to a factor. At locations drawn from p, the weighted mean of a function then estimates its
    integral against p^2 / int p^2, a narrower law, and the plain mean estimates the integral against p. Where the law
    of the particles is of interest (a histogram, a moment), use the plain mean over ``cloud.theta``, or
    ``weights="uniform"``, which leaves the weights as they are. A Risk and its gradient use the weights.

    Examples
    --------
    >>> import torch, proxlearn as pl
    >>> x = torch.linspace(-3, 3, 40)
    >>> risk = pl.Risk(x[:, None], torch.sin(x))
    >>> start = pl.init(risk, N=200, seed=0)
    >>> hyper = pl.Hyper(beta=1e4, h=0.1, epsilon=0.1, drift="first_variation")
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
        problem = f"the generator is on {generator.device.type}, and the cloud on {device.type}"
        raise InputError(problem, f"use torch.Generator({device.type!r})")
    check_start(functional, cloud, hyper)
    until = None if steps is None else cloud.step + steps
    iterates = iterate_until(functional, cloud, hyper, generator=generator, until=until, engine=engine, threads=threads)
    return _with_step_in_errors(iterates, cloud.step)


def step(
    functional: Functional, cloud: PointCloud, hyper: Hyper, noise: Tensor, z0: Tensor
) -> tuple[PointCloud, Info | None]:
    """Compute (Theta, rho)_k from (Theta, rho)_{k-1}; a pure function: the same inputs give the same bits.

    Parameters
    ----------
    functional : Functional
        What is minimised: a Risk, an Energy, or a Functional of one's own.
    cloud : PointCloud
        N particles of p coordinates. Data of the functional, noise and z0 are converted to its precision and device.
    hyper : Hyper
        The hyperparameters of this step; schedules and ``epsilon_quantile`` are not applied (``iterate`` applies them).
    noise : Tensor, shape (N, p)
        Standard normal numbers.
    z0 : Tensor, shape (N,)
        Start of the proximal fixed point, uniform on (0, 1].

    Returns
    -------
    cloud : PointCloud
        The cloud after the step; ``cloud.step`` is one larger.
    info : Info or None
        Diagnostics of the proximal step; None where the weight update is not the proximal one.

    Raises
    ------
    InputError
        Where the arguments do not fit together, or the functional is not finite at the given cloud.

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
        # The check costs as much as a step, so it comes only where the step shows that it is needed.
        check_start(functional, cloud, hyper)
    return after, info


def _noise_seed(seed: int, step: int) -> int:
    """Return the seed of the noise of a cloud that starts at ``step``; at step 0 it is that of a run."""
    if step == 0:
        return split_seed(seed)[1]
    return int(np.random.SeedSequence(seed, spawn_key=(step,)).generate_state(1, np.uint32)[0])


def _with_step_in_errors(
    iterates: Iterator[tuple[PointCloud, Info | None]], step: int
) -> Iterator[tuple[PointCloud, Info | None]]:
    """Iterate on; the error of a gradient that is not finite names the step."""
    try:
        for cloud, info in iterates:
            step = cloud.step
            yield cloud, info
    except NonFiniteGradient as error:
        raise RunError(f"{error.problem} in step {step + 1}", error.remedy) from error


def _check_problem(functional: Any, cloud: Any, hyper: Any) -> Hyper:
    """Return the hyperparameters for a functional; raise InputError where the arguments do not fit together."""
    _check_type("functional", functional, Functional, "a Risk, an Energy or another Functional")
    _check_type("cloud", cloud, PointCloud, "a PointCloud, such as proxlearn.init(functional, N) returns")
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
        raise InputError(f"no engine {engine!r}", f"choose from {', '.join(ENGINES)}, or leave engine out")
    obstacle = fused_obstacle(device) if engine == "fused" else None
    if obstacle:
        raise InputError(f"engine='fused', but {obstacle}", "leave engine out")
    return engine
