"""Tables on the weights against the density, and the answer in words, from the stored results."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxlearn.paper.result_table import markdown_table
from proxlearn.verify.pieces import Piece
from proxlearn.verify.plan import DIMENSIONS, FIGURES, KAPPAS, make_flow
from proxlearn.verify.population_limit import energy_share, exponent

Rows = Sequence[tuple[Mapping[str, Any], dict[str, Any]]]
"""Arguments and results of the pieces of the part ``weights``."""
ON_THE_WAY, NEAR_EQUILIBRIUM = "0.5", "1.5"
PAPERS_KAPPA = 50.0
"""kappa of the paper's WDBC experiment, the smallest of its classification experiments."""


def figure_of(result: Mapping[str, Any], variant: str, figure: str) -> float:
    """Return one figure of a variant at one time."""
    value = result[variant][FIGURES.index(figure)]
    return float("nan") if value is None else float(value)


def kappa_of(arguments: Mapping[str, Any]) -> float:
    """Return beta epsilon / h, without the rounding error of h = epsilon / kappa."""
    return float(f"{make_flow(arguments['flow']).beta * arguments['epsilon'] / arguments['h']:.3g}")


@dataclass(frozen=True)
class Best:
    """The epsilon with the smallest total variation of the weights, for one dimension, N and kappa."""

    p: int
    N: int
    kappa: float
    arguments: Mapping[str, Any]
    result: dict[str, Any]

    def tv(self, variant: str) -> float:
        return figure_of(self.result, variant, "tv")


def best_settings(rows: Rows, time: str, orientation: str = "consistent") -> Iterator[Best]:
    """Yield the best epsilon for every dimension, N and kappa of the Ornstein-Uhlenbeck flow."""
    groups: dict[tuple[int, int, float], list[tuple[Mapping[str, Any], dict[str, Any]]]] = {}
    for arguments, result in rows:
        kind, _, p = arguments["flow"].partition("-")
        if kind == "ornstein_uhlenbeck" and arguments["orientation"] == orientation:
            key = (int(p), arguments["N"], kappa_of(arguments))
            groups.setdefault(key, []).append((arguments, result[time]))
    for (p, N, kappa), settings in sorted(groups.items(), key=lambda item: item[0]):
        arguments, result = min(settings, key=lambda setting: figure_of(setting[1], "proximal", "tv"))
        yield Best(p, N, kappa, arguments, result)


def dimension_table(rows: Rows, time: str) -> str:
    lines = [
        [
            "d",
            "N",
            "kappa",
            "epsilon",
            "weights",
            "w = 0",
            "Γ1",
            "best Γ1",
            "Gibbs",
            "frozen",
            "uniform",
            "slope",
            "beyond",
        ]
    ]
    for best in best_settings(rows, time):
        variants = ("proximal", "w = 0", "kde", "kde_best", "gibbs", "frozen", "uniform")
        numbers = [f"{best.tv(variant):.3f}" for variant in variants]
        others = [f"{figure_of(best.result, 'proximal', figure):.2f}" for figure in ("slope", "beyond")]
        lines.append(
            [str(best.p), str(best.N), f"{best.kappa:g}", f"{best.arguments['epsilon']:.2g}", *numbers, *others]
        )
    return markdown_table(lines)


def energy_shares(rows: Rows, orientation: str) -> dict[float, float]:
    """Return, per kappa, the mean ratio of the slopes without and with the energy, in dimension 1 and 2."""
    ratios: dict[float, list[float]] = {}
    for arguments, result in rows:
        if arguments["flow"] not in ("ornstein_uhlenbeck-1", "ornstein_uhlenbeck-2") or arguments["h"] > 0.02:
            continue
        if arguments["orientation"] == orientation and figure_of(result[NEAR_EQUILIBRIUM], "kde", "slope") > 0.5:
            slopes = [figure_of(result[NEAR_EQUILIBRIUM], name, "slope") for name in ("w = 0", "proximal")]
            ratios.setdefault(kappa_of(arguments), []).append(slopes[0] / slopes[1])
    return {kappa: sum(values) / len(values) for kappa, values in sorted(ratios.items())}


def energy_table(rows: Rows) -> str:
    lines = [
        ["kappa", "consistent, measured", "theory", "orientation=paper, measured", "theory", "share of the energy"]
    ]
    measured = {orientation: energy_shares(rows, orientation) for orientation in ("consistent", "paper")}
    for kappa in KAPPAS:
        cells = []
        for orientation, values in measured.items():
            theory = exponent(kappa, orientation, 0.0) / exponent(kappa, orientation)
            cells += [f"{values[kappa]:.2f}" if kappa in values else "", f"{theory:.2f}"]
        lines.append([f"{kappa:g}", *cells, f"{energy_share(kappa):.2f}"])
    return markdown_table(lines)


def other_flows_table(rows: Rows) -> str:
    lines = [
        [
            "flow",
            "kappa",
            "orientation",
            "prox_potential",
            "weights",
            "w = 0",
            "Γ1",
            "best Γ1",
            "Gibbs",
            "frozen",
            "uniform",
        ]
    ]
    for arguments, result in rows:
        if arguments["flow"].startswith("ornstein"):
            continue
        time = f"{arguments['times'][0]:g}"
        variants = ("proximal", "w = 0", "kde", "kde_best", "gibbs", "frozen", "uniform")
        numbers = [f"{figure_of(result[time], variant, 'tv'):.3f}" for variant in variants]
        setting = [f"{kappa_of(arguments):.2g}", arguments["orientation"], arguments["prox_potential"]]
        lines.append([arguments["flow"], *setting, *numbers])
    return markdown_table(lines) if len(lines) > 1 else ""


def best_of_dimension(rows: Rows, N: int = 300) -> dict[int, Best]:
    """Return, per dimension, the setting of all kappa and epsilon with the smallest total variation at t = 0.5."""
    best: dict[int, Best] = {}
    for setting in best_settings(rows, ON_THE_WAY):
        if setting.N == N and (setting.p not in best or setting.tv("proximal") < best[setting.p].tv("proximal")):
            best[setting.p] = setting
    return best


def dimension_curves(rows: Rows) -> dict[str, dict[int, float]]:
    """Return the total variations per dimension at the best settings, for the plot."""
    names = {
        "weights": "proximal",
        "weights, w = 0": "w = 0",
        "Γ1, same ε": "kde",
        "Γ1, best ε": "kde_best",
        "Gibbs weights": "gibbs",
        "uniform": "uniform",
    }
    best = best_of_dimension(rows)
    return {label: {p: setting.tv(name) for p, setting in best.items()} for label, name in names.items()}


def theory_curves() -> dict[str, dict[float, float]]:
    """Return the ratio of the slopes without and with the energy over kappa, for both orientations."""
    kappas = [10 ** (j / 10) for j in range(-12, 22)]
    orientations = ("consistent", "paper")
    return {o: {kappa: exponent(kappa, o, 0.0) / exponent(kappa, o) for kappa in kappas} for o in orientations}


def ratios(rows: Rows) -> dict[int, float]:
    """Return, per dimension, the smallest total variation of the weights over that of the best Γ1."""
    return {p: setting.tv("proximal") / setting.tv("kde_best") for p, setting in best_of_dimension(rows).items()}


def answer(rows: Rows, limits: Sequence[tuple[Piece, dict[str, Any]]]) -> str | None:
    """Return the answer in at most ten lines; None as long as a dimension or the double well has no result."""
    best, by_dimension = best_of_dimension(rows), ratios(rows)
    wells = [
        result["proximal"][0]["tv"]
        for piece, result in limits
        if (piece.arguments["flow"], piece.arguments["kappa"]) == ("double_well", 1.0)
    ]
    if set(best) != set(DIMENSIONS) or not wells:
        return None
    better = [str(p) for p, ratio in by_dimension.items() if ratio < 1]
    verdict = f"they are better in dimension {', '.join(better)} only" if better else "they are better in none"
    low = [p for p, setting in best.items() if setting.kappa <= 1]
    seen = f"only in dimension {', '.join(map(str, low))}" if low else "in no dimension"
    numbers = ", ".join(f"{ratio:.2f}" for ratio in by_dimension.values())
    sentences = (
        "With kappa = beta epsilon / h, the weights take the share kappa/(2 + kappa) of log p from the positions of "
        "the particles, as the kernel density estimate Γ1 of variance epsilon does, and 2/(2 + kappa) from the energy "
        f"(proof: verify/population_limit.py): {energy_share(PAPERS_KAPPA):.1%} at the paper's kappa = "
        f"{PAPERS_KAPPA:g} (WDBC). What they hold beyond Γ1 is this share.",
        "Their smallest total variation to the density, over all kappa and epsilon, divided by that of the best Γ1, "
        f"which needs no recursion, is {numbers} in dimension {', '.join(map(str, DIMENSIONS))} (Ornstein-Uhlenbeck "
        f"flow, N = 300, t = 0.5): {verdict}. The best setting has kappa <= 1 {seen}.",
        "The weights are not the density off equilibrium: in the double well at kappa = 1 and t = 1/4 their limit for "
        f"N -> infinity misses it by a total variation of {wells[0]:.3f}, against Theorem 1.",
        "To set: weights=uniform for a risk; for the density at the particles Γ1 with a variance of its own; where "
        "weights are wanted, orientation=consistent, at most two dimensions, kappa near 1 and epsilon near 1/16 of "
        "Silverman's variance.",
    )
    return textwrap.fill(" ".join(sentences), 119, break_long_words=False, break_on_hyphens=False)
