"""Tables that compare the weights with the density, and a summary in words, both from the stored results."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxlearn.core.hyper import energy_share
from proxlearn.paper.result_table import markdown_table
from proxlearn.verify.density_weights import rule_of_thumb
from proxlearn.verify.pieces import Piece
from proxlearn.verify.plan import DIMENSIONS, FIGURES, make_flow
from proxlearn.verify.weights_limit import exponent, gaussian_exponents
from proxlearn.views.tables import enumeration

Rows = Sequence[tuple[Mapping[str, Any], dict[str, Any]]]
"""Arguments and results of the pieces of the part ``weights``."""
ON_THE_WAY, NEAR_EQUILIBRIUM = "0.5", "1.5"
LEAD = (
    "The weights are close to a kernel density estimate of the particles, and the energy accounts for a share of "
    "2/(2 + kappa) of the log-density."
)
"""First line of the summary that `answer` returns."""
BETTER = 0.95
"""Ratio of total variations below which the weights count as better than the best Γ1; the noise over the seeds does not
explain such a ratio.
"""
PAPERS_KAPPA = 50.0
"""The kappa of the experiment on WDBC, which is the smallest kappa of the paper's classification experiments."""


CONTROLS = ("w = 0", "Γ1", "best Γ1", "Gibbs", "frozen", "uniform")
"""Headings of the columns with the controls of density_weights.py."""


def figure_of(result: Mapping[str, Any], variant: str, figure: str) -> float:
    """Return one measure of a variant at one time."""
    value = result[variant][FIGURES.index(figure)]
    return float("nan") if value is None else float(value)


def kappa_of(arguments: Mapping[str, Any]) -> float:
    """Return kappa = beta epsilon / h, rounded to three significant digits to remove the rounding error of h."""
    return float(f"{make_flow(arguments['flow']).beta * arguments['epsilon'] / arguments['h']:.3g}")


@dataclass(frozen=True)
class Best:
    """The setting with the smallest total variation between weights and density, for one dimension, N and kappa."""

    p: int
    N: int
    kappa: float
    arguments: Mapping[str, Any]
    result: dict[str, Any]

    def tv(self, variant: str) -> float:
        return figure_of(self.result, variant, "tv")

    @property
    def multiple(self) -> float:
        """The ratio of epsilon to Silverman's variance."""
        return float(self.arguments["epsilon"]) / rule_of_thumb(self.p, self.N, 1.0)


def best_settings(rows: Rows, time: str, orientation: str = "consistent") -> Iterator[Best]:
    """Yield the setting with the best epsilon for every dimension, N and kappa of the Ornstein-Uhlenbeck flow."""
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
            "ε",
            "weights",
            *CONTROLS,
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


@dataclass(frozen=True)
class SlopeRatios:
    """Ratios of slopes of log rho on log p at t = 1.5 for one kappa: means over the settings in dimensions 1 and 2."""

    without_energy: float
    """Slope with w = 0 divided by the slope with the energy."""
    limit: float
    """The value of ``without_energy`` for N = infinity, with the same h, epsilon and time."""
    paper: float
    """Slope with orientation=paper divided by the slope with orientation=consistent."""


def slope_ratios(rows: Rows) -> dict[float, SlopeRatios]:
    """Return the ratios of slopes per kappa.

    Only settings with h <= 0.02 for which the estimate Γ1 resolves the density (slope above 1/2) are used.
    """
    slopes: dict[tuple[Any, ...], dict[str, dict[str, float]]] = {}
    for arguments, result in rows:
        if arguments["flow"] in ("ornstein_uhlenbeck-1", "ornstein_uhlenbeck-2") and arguments["h"] <= 0.02:
            at = result[NEAR_EQUILIBRIUM]
            if figure_of(at, "kde", "slope") > 0.5:
                key = (kappa_of(arguments), arguments["flow"], arguments["N"], arguments["h"], arguments["epsilon"])
                pair = {name: figure_of(at, name, "slope") for name in ("w = 0", "proximal")}
                slopes.setdefault(key, {})[arguments["orientation"]] = pair
    values: dict[float, list[tuple[float, float, float]]] = {}
    for (kappa, _, _, h, epsilon), by_orientation in slopes.items():
        if set(by_orientation) != {"consistent", "paper"}:
            continue
        consistent, paper = by_orientation["consistent"], by_orientation["paper"]
        steps = round(float(NEAR_EQUILIBRIUM) / h)
        blind, seeing = (gaussian_exponents(0.25, h, epsilon, 1.0, steps, share_of_w=share)[-1] for share in (0.0, 1.0))
        ratios = (consistent["w = 0"] / consistent["proximal"], blind / seeing)
        values.setdefault(kappa, []).append((*ratios, paper["proximal"] / consistent["proximal"]))
    return {
        kappa: SlopeRatios(*(sum(v) / len(v) for v in zip(*rows, strict=True)))
        for kappa, rows in sorted(values.items())
    }


def energy_table(ratios: Mapping[float, SlopeRatios]) -> str:
    lines = [
        [
            "kappa",
            "w = 0 / with energy",
            "N infinite",
            "kappa/(2 + kappa)",
            "paper / consistent",
            "(2+kappa)/(6+kappa)",
        ]
    ]
    for kappa, found in ratios.items():
        measured = (found.without_energy, found.limit, exponent(kappa, share_of_w=0.0), found.paper)
        lines.append([f"{kappa:g}", *(f"{value:.2f}" for value in (*measured, exponent(kappa, "paper")))])
    return markdown_table(lines)


def other_flows_table(rows: Rows) -> str:
    lines = [
        [
            "flow",
            "kappa",
            "orientation",
            "potential",
            "rho",
            *CONTROLS,
        ]
    ]
    for arguments, result in rows:
        if arguments["flow"].startswith("ornstein"):
            continue
        time = f"{arguments['times'][0]:g}"
        variants = ("proximal", "w = 0", "kde", "kde_best", "gibbs", "frozen", "uniform")
        numbers = [f"{figure_of(result[time], variant, 'tv'):.3f}" for variant in variants]
        potential = arguments["prox_potential"].replace("first_variation", "first")
        setting = [f"{kappa_of(arguments):.2g}", arguments["orientation"], potential]
        flow = arguments["flow"].removeprefix("quadratic_").removeprefix("one_parameter_").removesuffix("-1")
        lines.append([flow, *setting, *numbers])
    return markdown_table(lines) if len(lines) > 1 else ""


def best_of_dimension(rows: Rows, N: int = 300) -> dict[int, Best]:
    """Return, per dimension, the kappa and epsilon with the smallest total variation at t = 0.5."""
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


def ratios(rows: Rows) -> dict[int, float]:
    """Return, per dimension, the ratio of the smallest total variation of the weights to that of the best Γ1."""
    return {p: setting.tv("proximal") / setting.tv("kde_best") for p, setting in best_of_dimension(rows).items()}


def answer(rows: Rows, limits: Sequence[tuple[Piece, dict[str, Any]]]) -> str | None:
    """Return the summary in at most ten lines, or None if results of a dimension or of the double well are missing."""
    best, by_dimension = best_of_dimension(rows), ratios(rows)
    wells = [
        result["proximal"][0]["tv"]
        for piece, result in limits
        if (piece.arguments["flow"], piece.arguments["kappa"]) == ("double_well", 1.0)
    ]
    if set(best) != set(DIMENSIONS) or not wells:
        return None
    better = [p for p, ratio in by_dimension.items() if ratio < BETTER]
    gibbs = [p for p, setting in best.items() if setting.tv("gibbs") < setting.tv("proximal")]
    low = [p for p, setting in best.items() if setting.kappa <= 1]
    best_kappa = f"at most 1 in {_dimensions(low)}" if low else "always above 1"
    advice = "Weights are an alternative in no dimension."
    if better:
        kappas = sorted({best[p].kappa for p in better})
        multiples = sorted({float(f"{best[p].multiple:.2g}") for p in better})
        advice = (
            f"Weights are an alternative only in {_dimensions(better)}, with orientation=consistent, kappa = "
            f"{_listed(kappas)} and epsilon = {_listed(multiples)} times Silverman's variance."
        )
    numbers = enumeration([f"{ratio:.2f}" for ratio in by_dimension.values()])
    sentences = (
        "Here kappa = beta epsilon / h, the estimate is Γ1 with variance epsilon, and the log-density is that of the "
        f"particles (proof below); at the paper's kappa = {PAPERS_KAPPA:g} (WDBC), the share of the energy is "
        f"{100 * energy_share(PAPERS_KAPPA):.1f} %.",
        "The table below compares the total variation between weights and density with that of the best Γ1, which "
        "needs no recursion (Ornstein-Uhlenbeck flow, N = 300, t = 0.5, best kappa and epsilon). The ratio is "
        f"{numbers} in {_dimensions(DIMENSIONS)}, so the weights are better (below {BETTER:g}) in "
        f"{_dimensions(better)}. exp(-beta V), which needs no neighbours, is better in {_dimensions(gibbs)}. The best "
        f"kappa is {best_kappa}.",
        "Away from equilibrium, the weights are not the density: in the double well (kappa = 1, t = 1/4), the total "
        f"variation between the two is {wells[0]:.3f} for N -> infinity, contrary to Theorem 1.",
        "Use weights=uniform to minimise a risk, and Γ1 with its own variance to estimate the density. " + advice,
    )
    return f"{LEAD}\n{textwrap.fill(' '.join(sentences), 119, break_long_words=False, break_on_hyphens=False)}"


def _listed(values: Sequence[float]) -> str:
    return enumeration([f"{value:.2g}" for value in values])


def _dimensions(values: Sequence[int]) -> str:
    if not values:
        return "no dimension"
    return f"dimension{'' if len(values) == 1 else 's'} {enumeration([str(value) for value in values])}"
