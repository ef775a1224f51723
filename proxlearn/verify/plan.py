"""The measurements of ``proxlearn verify``: the flows, settings and seeds of each part of its page."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch

from proxlearn import flow as recursion
from proxlearn.core.cloud import PointCloud
from proxlearn.paper.free_energy import free_energies, jackknife_error
from proxlearn.verify import law
from proxlearn.verify.density_weights import WeightsSetting, compare_weights, rule_of_thumb, total_variations
from proxlearn.verify.finite_volumes import GridFlow, UniformGrid, local_orders, spatial_errors, temporal_errors
from proxlearn.verify.gaussian_flow import OrnsteinUhlenbeck, OrnsteinUhlenbeckOnGrid, QuadraticInteraction
from proxlearn.verify.known_flow import KnownFlow, generator
from proxlearn.verify.many_particle_limit import limit_of_weights
from proxlearn.verify.one_dimensional_flows import Aggregation, DoubleWell, OneParameterNetwork
from proxlearn.verify.pieces import Piece, rounded

DIMENSIONS = (1, 2, 5, 10, 32)
CLOSED_FORM = tuple(f"ornstein_uhlenbeck-{p}" for p in DIMENSIONS) + tuple(
    f"quadratic_interaction-{p}" for p in (1, 10)
)
ON_GRID = ("double_well", "aggregation", "one_parameter_network")
INTERACTING = ("quadratic_interaction-1", "aggregation", "one_parameter_network")
TIMES = (0.5, 1.5)
"""Times, before and near equilibrium, at which weights and density of the Ornstein-Uhlenbeck flow are compared."""
FIGURES = ("slope", "corr", "tv", "corr_kde", "beyond", "ess")
MULTIPLES = (1 / 64, 1 / 16, 1 / 4, 1.0, 4.0)
"""The values of epsilon, as multiples of Silverman's variance."""
KAPPAS = (0.1, 1.0, 10.0, 100.0)
CONFIRMED = {
    300: {1: (100.0, 1.0), 2: (10.0, 1.0), 5: (10.0, 1.0), 10: (100.0, 4.0), 32: (100.0, 4.0)},
    1000: {1: (10.0, 1.0), 2: (10.0, 1.0), 5: (10.0, 1.0), 10: (10.0, 1.0), 32: (100.0, 4.0)},
}
"""For every N and dimension, the kappa and the multiple of Silverman's variance with the smallest total variation.

They were chosen with the seeds of the comparison of all settings and are tested with other seeds, so that the choice
does not bias the test."""
FIRST_SEED = 100
"""The first of the seeds with which the choices in CONFIRMED are tested."""
LARGEST_H, SMALLEST_H = 0.1, {300: 8e-4, 1000: 2e-3}
"""Limits of h = beta epsilon / kappa: the upper limit ensures stability, and the lower limits (by N) keep runs
short."""


def make_flow(name: str, mean: float | None = None) -> KnownFlow:
    """Return the flow called ``name``; ``mean`` replaces the initial mean of a Gaussian flow."""
    kind, _, p = name.partition("-")
    centre = {} if mean is None else {"mean": mean}
    makers: dict[str, Callable[[], KnownFlow]] = {
        "ornstein_uhlenbeck": lambda: OrnsteinUhlenbeck(int(p), **centre),
        "quadratic_interaction": lambda: QuadraticInteraction(int(p), **centre),
        "double_well": DoubleWell,
        "aggregation": Aggregation,
        "one_parameter_network": OneParameterNetwork,
    }
    return makers[kind]()


def measure_finite_volumes(flow: str, cells: Sequence[int], steps: Sequence[int]) -> dict[str, Any]:
    """Return the errors of the solver for several numbers of cells and of time steps, with their local orders."""
    on_grid = OrnsteinUhlenbeckOnGrid() if flow == OrnsteinUhlenbeckOnGrid.name else make_flow(flow)
    assert isinstance(on_grid, GridFlow)
    space, time = spatial_errors(on_grid, tuple(cells), 100), temporal_errors(on_grid, 400, tuple(steps))
    result: dict[str, Any] = {
        "space": space,
        "space_orders": local_orders(space),
        "time": time,
        "time_orders": local_orders(time),
    }
    if isinstance(on_grid, OrnsteinUhlenbeckOnGrid):
        grid = UniformGrid(on_grid.low, on_grid.high, on_grid.cells)
        exact = on_grid.exact_masses(grid.edges)
        result["error"] = [float(np.abs(on_grid.masses(on_grid.horizon) - exact).sum())]
    history = on_grid.history
    result |= {"lowest": float(history.min()), "mass_error": float(np.abs(history.sum(1) - history[0].sum()).max())}
    values = [on_grid.free_energy(time) for time in np.linspace(0, on_grid.horizon, 41)]
    result["free_energy_rises"] = sum(after > before + 1e-12 for before, after in itertools.pairwise(values))
    return dict(rounded(result))


def measure_weak_order(flow: str, N: int, steps: Sequence[int], seeds: Sequence[int]) -> dict[str, Any]:
    """Return the errors of the moments per seed and number of steps.

    The reference solution has the same Brownian path (see `law.weak_errors`).
    """
    errors = [law.weak_errors(make_flow(flow), N, steps, seed) for seed in seeds]
    return dict(rounded({name: [row[name] for row in errors] for name in errors[0]}))


def measure_distances(flow: str, sizes: Sequence[int], h: float, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the distances to the solution per seed and N."""
    values = [law.distances(make_flow(flow), sizes, h, seed) for seed in seeds]
    return dict(rounded({name: [row[name] for row in values] for name in values[0]}))


def measure_bias(flow: str, N: int, h: float, epsilon: float, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the second moment per seed with uniform and with proximal weights."""
    rows = [law.bias_of_weights(make_flow(flow), N, h, epsilon, seed) for seed in seeds]
    moments = {weights: [row[weights] for row in rows] for weights in ("uniform", "proximal")}
    return dict(rounded(moments))


def measure_weights(flow: str, seeds: Sequence[int], times: Sequence[float], **setting: Any) -> dict[str, Any]:
    """Return the measures of every variant at each time, averaged over the seeds, and the gains over density estimates.

    ``gain`` is the total variation of the kernel density estimate minus the total variation of the weights, and
    ``gain_best`` is the same for the estimate with the best variance. Each gain is given as the mean and its standard
    error over the seeds.
    """
    runs = [compare_weights(make_flow(flow, mean=0.0), WeightsSetting(**setting), times, seed) for seed in seeds]
    result: dict[str, Any] = {}
    for time in runs[0]:
        variants = {
            name: [mean(run[time][name][figure] for run in runs) for figure in FIGURES] for name in runs[0][time]
        }
        gains = {}
        for gain, reference in (("gain", "kde"), ("gain_best", "kde_best")):
            values = [run[time][reference]["tv"] - run[time]["proximal"]["tv"] for run in runs]
            gains[gain] = [mean(values), stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0]
        result[time] = variants | gains
    return dict(rounded(result))


def measure_confirmation(flow: str, seeds: Sequence[int], time: float, **setting: Any) -> dict[str, Any]:
    """Return the result of ``total_variations`` for every seed, as one list per kind of weights."""
    runs = [total_variations(make_flow(flow, mean=0.0), WeightsSetting(**setting), time, seed) for seed in seeds]
    return dict(rounded({name: [run[name] for run in runs] for name in runs[0]}))


def measure_limit(flow: str, kappa: float, times: Sequence[float]) -> dict[str, Any]:
    """Return how well the limit of the weights agrees with the density, for three variants of the proximal step.

    The variants are the proximal step, the step without the energy (``w = 0``) and the step with orientation=paper.
    """
    on_grid = make_flow(flow)
    assert isinstance(on_grid, GridFlow)
    at = tuple(times)
    return dict(
        rounded(
            {
                "proximal": limit_of_weights(on_grid, kappa, at),
                "w = 0": limit_of_weights(on_grid, kappa, at, share_of_w=0.0),
                "paper": limit_of_weights(on_grid, kappa, at, orientation="paper"),
            }
        )
    )


def measure_descent(flow: str, N: int, h: float, epsilon: float, seed: int, rows: int) -> dict[str, Any]:
    """Measure the descent during a run: F_beta of the solution and of the particles, and the proximal objective.

    F_beta is computed at ``rows`` + 1 equally spaced times; ``errors`` are the standard errors of the changes of the
    particles' F_beta between these times. ``falls`` is the number of steps in which the proximal objective does not
    rise.
    """
    solved = make_flow(flow)
    rng = generator(seed, N)
    start = PointCloud.from_arrays(solved.draw(N, rng))
    hyper = WeightsSetting(N, h, epsilon).hyper(solved.beta)
    steps = round(solved.horizon / h)
    recorded = {round(k * steps / rows) for k in range(rows + 1)}
    times, exact, falls = [], [], 0
    values: list[torch.Tensor] = []

    def record(now: PointCloud) -> None:
        times.append(now.step * h)
        exact.append(solved.free_energy(now.step * h))
        values.append(free_energies(solved.functional, hyper, now.theta))

    record(start)
    noise_seed = int(torch.randint(2**31, (), generator=rng))
    for cloud, info in recursion.iterate(solved.functional, start, hyper, steps, seed=noise_seed):
        assert info is not None
        before, after = info.prox_objective()
        falls += bool(after <= before)
        if cloud.step in recorded:
            record(cloud)
    errors = [jackknife_error((after - before)[1:]) for before, after in itertools.pairwise(values)]
    result = {"times": times, "exact": exact, "particles": [float(value[0]) for value in values], "errors": errors}
    return dict(rounded(result | {"falls": falls, "steps": steps}))


def plan(quick: bool) -> list[Piece]:
    """Return all pieces; ``quick`` selects fewer flows, settings and seeds."""
    parts = (_law_pieces, _weights_pieces, _confirmation_pieces, _limit_pieces)
    return [piece for part in parts for piece in part(quick)]


def _law_pieces(quick: bool) -> Iterator[Piece]:
    arguments: dict[str, Any]
    for flow in (OrnsteinUhlenbeckOnGrid.name, *ON_GRID):
        arguments = {"flow": flow, "cells": [100, 200, 400][: 2 if quick else 3], "steps": [200, 400, 800]}
        yield Piece("finite_volumes", f"finite volumes, {flow}", measure_finite_volumes, arguments)
    closed = ("ornstein_uhlenbeck-1", "ornstein_uhlenbeck-10", "quadratic_interaction-1") if quick else CLOSED_FORM
    for flow in (*closed, *(() if quick else ON_GRID)):
        interacts = flow.startswith(("quadratic", "aggregation"))
        coarse = 40 if flow == "double_well" else 10
        doublings = range(3 if quick else 5 - interacts)
        arguments = {"N": 400 if quick or interacts else 2000, "steps": [coarse * 2**j for j in doublings]}
        yield from _by_seeds("weak_order", measure_weak_order, flow, arguments, 8 if quick else 16, 4)
        arguments = {
            "sizes": [25 * 2**j for j in range(5 if quick else 7 - interacts)],
            "h": make_flow(flow).horizon / (64 if interacts or quick else 128),
        }
        yield from _by_seeds("distance", measure_distances, flow, arguments, 16 if quick else 32, 8)
    if not quick:
        for flow, epsilon in zip(INTERACTING, (0.05, 0.02, 0.01), strict=True):
            arguments = {"N": 400, "h": make_flow(flow).horizon / 100, "epsilon": epsilon}
            yield from _by_seeds("bias", measure_bias, flow, arguments, 12, 6)
        epsilons = (0.02, 0.05, 0.2, 0.3, 2.0, 0.02, 0.3, 0.01, 0.01, 0.01)
        for flow, epsilon in zip((*CLOSED_FORM, *ON_GRID), epsilons, strict=True):
            arguments = {"flow": flow, "N": 500, "h": make_flow(flow).horizon / 200, "epsilon": epsilon, "seed": 0}
            yield Piece("descent", f"descent, {flow}", measure_descent, arguments | {"rows": 10}, revision=2)


def _by_seeds(
    part: str,
    function: Callable[..., dict[str, Any]],
    flow: str,
    arguments: dict[str, Any],
    seeds: int,
    per_piece: int,
    start: int = 0,
) -> Iterator[Piece]:
    for first in range(start, start + seeds, per_piece):
        chosen = list(range(first, first + per_piece))
        title = f"{part.replace('_', ' ')}, {flow}, seeds {first} to {chosen[-1]}"
        yield Piece(part, title, function, {"flow": flow, **arguments, "seeds": chosen})


def _weights_pieces(quick: bool) -> Iterator[Piece]:
    clouds = [(300, "consistent", 3, p) for p in DIMENSIONS]
    if not quick:
        clouds += [(300, "paper", 1, p) for p in DIMENSIONS] + [(1000, "consistent", 1, p) for p in DIMENSIONS]
    for N, orientation, seeds, p in clouds:
        for multiple, kappa in itertools.product(MULTIPLES, KAPPAS):
            epsilon = float(f"{multiple * rule_of_thumb(p, N, 1.0):.3g}")
            h = epsilon / kappa
            if not (0.01 if quick else SMALLEST_H[N]) <= h <= LARGEST_H:
                continue
            arguments = {
                "flow": f"ornstein_uhlenbeck-{p}",
                "seeds": [0] if quick else list(range(seeds)),
                "times": list(TIMES),
                "N": N,
                "h": h,
                "epsilon": epsilon,
                "orientation": orientation,
            }
            yield Piece("weights", _weights_title(arguments, kappa), measure_weights, arguments)
    if quick:
        return
    settings = {
        "quadratic_interaction-1": (1.0, 0.02),
        "quadratic_interaction-10": (1.0, 0.38),
        "double_well": (2.0, 0.01),
        "aggregation": (5.0, 0.01),
        "one_parameter_network": (20.0, 0.01),
    }
    for (flow, (beta, epsilon)), kappa in itertools.product(settings.items(), (1.0, 50.0)):
        horizon = make_flow(flow).horizon
        for orientation, potential in itertools.product(("consistent", "paper"), ("first_variation", "paper")):
            if flow == "double_well" and potential == "paper":
                continue
            arguments = {
                "flow": flow,
                "seeds": [0, 1],
                "times": [horizon / 4, horizon],
                "N": 300,
                "h": horizon / max(20, round(horizon / (beta * epsilon / kappa) / 20) * 20),
                "epsilon": epsilon,
                "orientation": orientation,
                "prox_potential": potential,
            }
            yield Piece("weights", _weights_title(arguments, kappa), measure_weights, arguments)


def _confirmation_pieces(quick: bool) -> Iterator[Piece]:
    for N, settings in CONFIRMED.items():
        if quick and N != 300:
            continue
        for p, (kappa, multiple) in settings.items():
            epsilon = float(f"{multiple * rule_of_thumb(p, N, 1.0):.3g}")
            arguments = {"time": TIMES[0], "N": N, "h": epsilon / kappa, "epsilon": epsilon}
            flow = f"ornstein_uhlenbeck-{p}"
            count, per_piece = (4, 4) if quick else (32, 8)
            yield from _by_seeds("confirmation", measure_confirmation, flow, arguments, count, per_piece, FIRST_SEED)


def _weights_title(arguments: dict[str, Any], kappa: float) -> str:
    return f"weights, {arguments['flow']}, N={arguments['N']}, kappa={kappa:g}, {arguments['orientation']}"


def _limit_pieces(quick: bool) -> Iterator[Piece]:
    for flow, kappa in itertools.product(ON_GRID[:1] if quick else ON_GRID, (1.0,) if quick else KAPPAS):
        horizon = make_flow(flow).horizon
        arguments = {"flow": flow, "kappa": kappa, "times": [horizon / 4, horizon]}
        yield Piece("limit", f"limit of the weights, {flow}, kappa={kappa:g}", measure_limit, arguments)
