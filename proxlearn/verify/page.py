"""Write the page verify.md from the stored results: a summary about the weights, then the tables of every part."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proxlearn.compare.statistics import interval
from proxlearn.core.hyper import energy_share
from proxlearn.paper.result_table import markdown_table
from proxlearn.verify import many_particle_limit, one_dimensional_flows
from proxlearn.verify.density_weights_tables import (
    CONFIRMATION_NOTES,
    ENERGY_NOTES,
    EPSILON_NOTES,
    OTHERS_NOTES,
    WEIGHTS_NOTES,
    Rows,
    confirmation_table,
    confirmations,
    dimension_curves,
    dimension_table,
    energy_table,
    epsilon_table,
    other_flows_table,
    slope_ratios,
)
from proxlearn.verify.law import Order, fit_order
from proxlearn.verify.many_particle_limit import exponent
from proxlearn.verify.pieces import Piece, stored, write_page
from proxlearn.verify.plan import CLOSED_FORM, DIMENSIONS, make_flow
from proxlearn.views.tables import enumeration
from proxlearn.views.verify_plots import draw_law, draw_weights

TITLE = "What the weights are"
LEAD = (
    "Near equilibrium, the energy has a share of 2/(2 + kappa) in the log-weights, and the particles' density has the "
    "rest."
)
"""First line of the summary that `answer` returns."""
PAPERS_KAPPA = 50.0
"""The kappa of the experiment on WDBC, which is the smallest kappa of the paper's classification experiments."""
Results = Sequence[tuple[Piece, dict[str, Any]]]
WEAK, ROOT = (0.8, 1.2), (0.4, 0.6)
"""Expected ranges of the fitted orders of the moments (in h) and of the square root of the energy distance (in N)."""


def write(pieces: Sequence[Piece], results: Path, folder: Path) -> list[Path]:
    """Write the page and its plots from the stored results; return their paths."""
    rows = list(stored(pieces, results))
    if not rows:
        return []
    sections = []
    weights = [(piece.arguments, result) for piece, result in rows if piece.part == "weights"]
    tested = [(piece.arguments, result) for piece, result in _part(rows, "confirmation")]
    text = answer(tested, _part(rows, "limit"))
    if text is not None:
        sections.append(text)
    if len(rows) < len(pieces):
        sections.append(f"**Unfinished**: {len(rows)} of {len(pieces)} results; the same command computes the others.")
    sections.append("![weights](weights.png)")
    if tested:
        heading = "## Weights and density estimates at the best settings, on other seeds"
        sections += [heading, confirmation_table(confirmations(tested)), CONFIRMATION_NOTES]
    sections += ["## The weights compared with the density: Ornstein-Uhlenbeck flow", dimension_table(weights, "0.5")]
    sections += [dimension_table(weights, "0.5", relations=True), WEIGHTS_NOTES]
    sections += ["### All values of epsilon (N = 300)", epsilon_table(weights, "0.5"), EPSILON_NOTES]
    if any(arguments["orientation"] == "paper" for arguments, _ in weights):
        sections += ["### orientation=paper (N = 300, one seed)", dimension_table(weights, "0.5", "paper")]
        sections.append(dimension_table(weights, "0.5", "paper", relations=True))
    ratios = slope_ratios(weights)
    if ratios:
        heading = "## The share of the density that comes from the energy"
        sections += [heading, energy_table(ratios), ENERGY_NOTES]
    limits = limit_table(_part(rows, "limit"))
    sections += ["## Theorem 1: the limit of infinitely many particles", limits, LIMIT_NOTES] if limits else []
    others = other_flows_table(weights)
    if others:
        sections += [
            "## The weights on the other flows",
            others,
            other_flows_table(weights, relations=True),
            OTHERS_NOTES,
        ]
    sections += [
        "## The distribution of the particles (weights = uniform)",
        "![law](law.png)",
        orders_table(rows),
        LAW_NOTES,
    ]
    bias = bias_table(_part(rows, "bias"))
    sections += ["## The distribution of the particles with proximal weights", bias, BIAS_NOTES] if bias else []
    sections += ["## The finite-volume solver", volumes_table(_part(rows, "finite_volumes")), VOLUMES_NOTES]
    descent = descent_table(_part(rows, "descent"))
    sections += ["## The free energy and the proximal objective", descent, DESCENT_NOTES] if descent else []
    # The docstring of many_particle_limit is the proof; its first line is the heading.
    sections += ["## The flows", FLOWS, (one_dimensional_flows.__doc__ or "").partition("\n\n")[2].strip()]
    heading, _, proof = (many_particle_limit.__doc__ or "").partition("\n")
    sections += [f"## {heading.rstrip('.')}", proof.strip("\n"), END]
    paths = [write_page(folder / "verify.md", TITLE, "\n\n".join(text.rstrip() for text in sections) + "\n")]
    measured = {kappa: (found.without_energy, found.paper) for kappa, found in ratios.items()}
    kappas = [10 ** (j / 10) for j in range(-12, 22)]
    theory = {kappa: (exponent(kappa, share_of_w=0.0), exponent(kappa, "paper")) for kappa in kappas}
    paths += draw_weights(measured, theory, dimension_curves(weights), folder)
    return paths + draw_law(law_curves(rows), folder)


def answer(tested: Rows, limits: Results) -> str | None:
    """Return the summary in at most ten lines, or None if results of a dimension or of the double well are missing."""
    by_dimension = {one.p: one for one in confirmations(tested) if one.N == 300}
    wells = [
        result["proximal"][0]["tv"]
        for piece, result in limits
        if (piece.arguments["flow"], piece.arguments["kappa"]) == ("double_well", 1.0)
    ]
    if set(by_dimension) != set(DIMENSIONS) or not wells:
        return None
    better, worse = (
        [p for p, one in by_dimension.items() if one.verdict("kde_best") == verdict] for verdict in ("better", "worse")
    )
    gibbs = [p for p, one in by_dimension.items() if one.verdict("gibbs") == "worse"]
    seeds = len(by_dimension[1].values["proximal"])
    ratios = enumeration([f"{one.ratio('kde_best')[0]:.2f}" for one in by_dimension.values()])
    alternative = "The weights are a better alternative in no dimension."
    if better:
        kappas, multiples = (
            [f"{getattr(by_dimension[p], name):.2g}" for p in better] for name in ("kappa", "multiple")
        )
        alternative = (
            f"The weights are an alternative only in {_dimensions(better)} "
            f"(orientation=consistent, kappa = {_listed(kappas)}, epsilon = "
            f"{_listed(multiples)} times Silverman's variance)."
        )
    sentences = (
        f"Here kappa = beta epsilon / h (proof below); the share is {100 * energy_share(PAPERS_KAPPA):.1f} % at the "
        f"paper's kappa = {PAPERS_KAPPA:g} (WDBC). At large kappa, the weights are Γ1, a kernel density estimate.",
        "The total variation between weights and density, divided by that of the best Γ1 (Ornstein-Uhlenbeck, N = 300, "
        f"best kappa and epsilon, {seeds} other seeds), is {ratios} in {_dimensions(DIMENSIONS)}. The weights are "
        f"clearly better in {_dimensions(better)} and clearly worse in {_dimensions(worse)}; exp(-beta V), which needs "
        f"no neighbours, is clearly better in {_dimensions(gibbs)}.",
        "Away from equilibrium, the energy also acts at large kappa unless h w / epsilon is small, and the weights are "
        f"not the density: their total variation is {wells[0]:.3f} in the double well (kappa = 1, t = 1/4, N -> "
        "infinity), contrary to Theorem 1.",
        "Use weights=uniform to minimise a risk, and Γ1 with a separately chosen variance to estimate the density. "
        f"{alternative}",
    )
    return f"{LEAD}\n{textwrap.fill(' '.join(sentences), 119, break_long_words=False, break_on_hyphens=False)}"


def _listed(values: Sequence[str]) -> str:
    return enumeration(sorted(set(values), key=float))


def _dimensions(values: Sequence[int]) -> str:
    if not values:
        return "no dimension"
    return f"dimension{'' if len(values) == 1 else 's'} {enumeration([str(value) for value in values])}"


def _part(rows: Results, part: str) -> Results:
    return [(piece, result) for piece, result in rows if piece.part == part]


def orders(rows: Results) -> dict[str, dict[str, Order]]:
    """Return the fitted orders per flow: of the moments in h, and of the distances in N."""
    fitted: dict[str, dict[str, Order]] = {}
    for part, scale in (("weak_order", "steps"), ("distance", "sizes")):
        for flow, (scales, errors) in _merged(_part(rows, part), scale).items():
            for name, values in errors.items():
                order = fit_order([1 / s for s in scales], values)
                fitted.setdefault(flow, {})[f"{part} {name}"] = order
    return fitted


def _merged(rows: Results, scale: str) -> dict[str, tuple[list[float], dict[str, list[list[float]]]]]:
    """Return, per flow, the values of the argument ``scale`` and, by quantity, the errors with one row per seed."""
    merged: dict[str, tuple[list[float], dict[str, list[list[float]]]]] = {}
    for piece, result in rows:
        _, errors = merged.setdefault(piece.arguments["flow"], (list(piece.arguments[scale]), {}))
        for name, values in result.items():
            errors.setdefault(name, []).extend(values)
    return merged


def orders_table(rows: Results) -> str:
    """Return a table with one row per flow, and with a verdict on the orders of each closed-form flow."""
    lines = [["flow", "mean, in h", "second moment, in h", "energy, in N", "W2, in N", "as expected"]]
    for flow, found in orders(rows).items():
        cells = [
            found[key].text if key in found else ""
            for key in ("weak_order mean", "weak_order second", "distance energy", "distance W2")
        ]
        lines.append([flow, *cells, expected(flow, found)])
    return markdown_table(lines)


def expected(flow: str, found: dict[str, Order]) -> str:
    """Return a verdict on whether the orders of a closed-form flow lie in WEAK and ROOT, or "" for other flows."""
    if flow not in CLOSED_FORM:
        return ""
    limits = {"weak_order mean": WEAK, "weak_order second": WEAK, "distance energy": ROOT}
    checks = [(order, limits[key]) for key, order in found.items() if key in limits]
    if all(order.within(*limit) for order, limit in checks):
        return "yes"
    inside = all(limit[0] <= order.value <= limit[1] for order, limit in checks)
    return "yes, interval wider" if inside else "no"


def law_curves(rows: Results) -> dict[str, dict[str, tuple[list[float], list[list[float]]]]]:
    """Return the data that `draw_law` plots: per part and flow, the scales and the errors of all seeds."""
    curves: dict[str, dict[str, tuple[list[float], list[list[float]]]]] = {"h": {}, "N": {}}
    for flow, (steps, errors) in _merged(_part(rows, "weak_order"), "steps").items():
        curves["h"][flow] = ([make_flow(flow).horizon / k for k in steps], errors["second"])
    for flow, (sizes, errors) in _merged(_part(rows, "distance"), "sizes").items():
        curves["N"][flow] = (sizes, errors["energy"])
    return curves


def volumes_table(rows: Results) -> str:
    lines = [
        [
            "flow",
            "order in width",
            "order in time",
            "lowest mass",
            "mass change",
            "rises of F_beta",
        ]
    ]
    for piece, result in rows:
        space, time = min(result["space_orders"]), min(result["time_orders"])
        numbers = [f"{space:.2f}", f"{time:.2f}", f"{result['lowest']:.1g}", f"{result['mass_error']:.1g}"]
        lines.append([piece.arguments["flow"], *numbers, str(result["free_energy_rises"])])
    return markdown_table(lines)


def limit_table(rows: Results) -> str:
    if not rows:
        return ""
    lines = [["flow", "time", "kappa", "slope", "total variation", "with w = 0", "orientation=paper"]]
    for piece, result in rows:
        for i, time in enumerate(piece.arguments["times"]):
            cells = [f"{result[name][i]['tv']:.3f}" for name in ("proximal", "w = 0", "paper")]
            slope = f"{result['proximal'][i]['slope']:.2f}"
            lines.append([piece.arguments["flow"], f"{time:g}", f"{piece.arguments['kappa']:g}", slope, *cells])
    return markdown_table(lines)


def bias_table(rows: Results) -> str:
    if not rows:
        return ""
    merged: dict[str, tuple[Piece, list[float], list[float]]] = {}
    for piece, result in rows:
        _, uniform, proximal = merged.setdefault(piece.arguments["flow"], (piece, [], []))
        uniform += result["uniform"]
        proximal += result["proximal"]
    lines = [["flow", "N", "h", "epsilon", "kappa", "second moment, uniform", "proximal minus uniform"]]
    for flow, (piece, uniform, proximal) in merged.items():
        difference = interval([b - a for a, b in zip(uniform, proximal, strict=True)])
        h, epsilon = piece.arguments["h"], piece.arguments["epsilon"]
        kappa = make_flow(flow).beta * epsilon / h
        numbers = [str(piece.arguments["N"]), f"{h:g}", f"{epsilon:g}", f"{kappa:.3g}"]
        change = f"{difference.mean:+.4f} ± {difference.student:.4f}"
        lines.append([flow, *numbers, f"{sum(uniform) / len(uniform):.4f}", change])
    return markdown_table(lines)


def descent_table(rows: Results) -> str:
    if not rows:
        return ""
    lines = [["flow", "F_beta at 0", "at the end", "distance", "falls / rises", "objective"]]
    for piece, result in rows:
        exact, particles = result["exact"], result["particles"]
        distance = max(abs(a - b) for a, b in zip(exact, particles, strict=True))
        moves = list(zip(particles, particles[1:], result["errors"], strict=False))
        fell, rose = (sum(sign * (b - a) > 2 * error for a, b, error in moves) for sign in (-1, 1))
        ends = [
            f"{values[0]:.3f} ({other[0]:.3f})"
            for values, other in ((exact, particles), (exact[::-1], particles[::-1]))
        ]
        counts = [f"{fell} / {rose} of {len(moves)}", f"{result['falls']} of {result['steps']}"]
        lines.append([piece.arguments["flow"], *ends, f"{distance:.3f}", *counts])
    return markdown_table(lines)


FLOWS = """\
All solutions satisfy dp/dt = div(p grad phi) + (1/beta) Laplace(p), where phi is the first variation of the energy:
V + 2 int W p for an energy with a potential V and an interaction W, and V + 2 int U p in the paper's notation for the
quadratic loss. This is the gradient flow of the paper's F_beta. For the same flow, the paper also prints
V + int U p without the factor 2; this is the same equation with doubled targets, doubled confinement, beta / 2 and half
the time.

- Ornstein-Uhlenbeck: V = |theta|^2 / 2, beta = 1, from N(1, 1/4) per coordinate (from N(0, 1/4) in the tables on the
  weights) to N(0, 1). Quadratic interaction: W = |theta - theta'|^2 / 4, beta = 1, from N(1, 1/4) to N(1, 1).
"""
LIMIT_NOTES = """\
- The limit equation is solved by finite volumes: N infinite, h and epsilon to 0 with kappa fixed, and initial weights
  equal to the density. According to Theorem 1, the total variation is 0; this holds for normal distributions in a
  quadratic energy.
"""
LAW_NOTES = """\
- Slopes of the logarithm of the error, fitted per seed, with 95 % intervals over the seeds. In h: the error is measured
  against the exact solution on the same Brownian path (closed forms) or against the recursion with h/2 on that path.
  In N: the error is measured against the solution; the table shows the order r of N^-r.
- "As expected": the whole interval is between 0.8 and 1.2 (in h) and between 0.4 and 0.6 (in N).
"""
BIAS_NOTES = """\
- Both runs use the same initial particles and noise. Without interaction, the weights do not affect the particles.
  With interaction, the drift is an integral against the weights, that is, against p^2 where the weights follow the
  density p.
"""
VOLUMES_NOTES = """\
- The orders are the smallest local orders of the L1 distance between solutions with n and 2n cells (time step
  proportional to the squared cell width) or with m and 2m time steps. Rises: the number of increases of F_beta(p_t)
  between 41 points in time.
"""
DESCENT_NOTES = """\
- F_beta of the solution and, in brackets, of the particles (entropy estimated from nearest neighbours); N = 500,
  proximal weights, 11 points in time. Distance: the largest one between the two. A fall or a rise of the particles'
  F_beta is a change by more than two standard errors (jackknife over 20 groups of particles). The estimate of the
  entropy is biased in 32 dimensions (by more than 3 nats), which explains the distance in that row. Objective: the
  number of steps whose proximal objective is not above that of leaving the mass in place.
"""
END = """\
`proxlearn verify` computes all results (results.jsonl) and writes this page. `proxlearn verify --experiment weights`
runs the experiment on whether weights lower the risk (experiment.md).
"""
