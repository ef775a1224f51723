"""Tables that compare the weights with the density, from the stored results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxlearn.compare.statistics import interval, without_negative_zero
from proxlearn.paper.result_table import markdown_table
from proxlearn.verify.density_weights import rule_of_thumb
from proxlearn.verify.many_particle_limit import exponent, gaussian_exponents
from proxlearn.verify.plan import FIGURES, MULTIPLES, make_flow

Rows = Sequence[tuple[Mapping[str, Any], dict[str, Any]]]
"""Arguments and results of the pieces of the part ``weights``."""
ON_THE_WAY, NEAR_EQUILIBRIUM = "0.5", "1.5"
LEVEL = 0.05
"""Probability that at least one interval in a column of `confirmation_table` does not contain the true ratio."""
VARIANTS = ("proximal", "w = 0", "uniform first", "kde", "kde_best", "gibbs", "frozen", "uniform")
RELATIONS = ("slope", "corr.", "corr. Γ1", "beyond")
HEADINGS = ("weights", "w = 0", "1/N", "Γ1", "best Γ1", "Gibbs", "frozen", "uniform")


def figure_of(result: Mapping[str, Any], variant: str, figure: str) -> float:
    """Return one measure of a variant from the result at one time; NaN if the measure was not finite."""
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


def dimension_table(rows: Rows, time: str, orientation: str = "consistent", *, relations: bool = False) -> str:
    """Return a table with a row per best setting.

    The columns are total variations or, if ``relations`` is true, measures of the relation of log rho to the densities.
    """
    lines = [["d", "N", "kappa", "ε", *(RELATIONS if relations else HEADINGS)]]
    for best in best_settings(rows, time, orientation):
        numbers = [] if relations else [f"{best.tv(variant):.3f}" for variant in VARIANTS]
        others = relations_of(best.result) if relations else []
        lines.append(
            [str(best.p), str(best.N), f"{best.kappa:g}", f"{best.arguments['epsilon']:.2g}", *numbers, *others]
        )
    return markdown_table(lines)


def relations_of(result: Mapping[str, Any]) -> list[str]:
    values = (figure_of(result, "proximal", figure) for figure in ("slope", "corr", "corr_kde", "beyond"))
    return [f"{without_negative_zero(value, 2):.2f}" for value in values]


def epsilon_table(rows: Rows, time: str, N: int = 300) -> str:
    """Return a table of the total variation of the weights: a row per dimension and kappa, a column per epsilon."""
    cells: dict[tuple[int, float], dict[float, str]] = {}
    for arguments, result in rows:
        kind, _, p = arguments["flow"].partition("-")
        if kind == "ornstein_uhlenbeck" and arguments["N"] == N and arguments["orientation"] == "consistent":
            multiple = arguments["epsilon"] / rule_of_thumb(int(p), N, 1.0)
            nearest = min(MULTIPLES, key=lambda candidate: abs(math.log(candidate / multiple)))
            row = cells.setdefault((int(p), kappa_of(arguments)), {})
            row[nearest] = f"{figure_of(result[time], 'proximal', 'tv'):.3f}"
    lines = [["d", "kappa", *(f"ε = {multiple:g}" for multiple in MULTIPLES)]]
    for (dimension, kappa), row in sorted(cells.items()):
        lines.append([str(dimension), f"{kappa:g}", *(row.get(multiple, "") for multiple in MULTIPLES)])
    return markdown_table(lines)


@dataclass(frozen=True)
class Confirmation:
    """The total variations at the setting chosen for a dimension and N, for seeds that were not used for the choice."""

    p: int
    N: int
    arguments: Mapping[str, Any]
    values: dict[str, list[float]]
    family: int
    """Number of simultaneous intervals, one per dimension and N."""

    @property
    def kappa(self) -> float:
        return kappa_of(self.arguments)

    @property
    def multiple(self) -> float:
        """The ratio of epsilon to Silverman's variance."""
        return float(self.arguments["epsilon"]) / rule_of_thumb(self.p, self.N, 1.0)

    def ratio(self, reference: str) -> tuple[float, float, float]:
        """Return the geometric mean of a ratio over the seeds, and the lower and upper end of its interval.

        The ratio is the total variation of the weights divided by that of the estimate ``reference``. The interval is
        Student's for the mean logarithm of the ratio, with Bonferroni's correction for ``family`` intervals.
        """
        pairs = zip(self.values["proximal"], self.values[reference], strict=True)
        ratios = interval([math.log(a / b) for a, b in pairs], confidence=1 - LEVEL / self.family)
        half = ratios.student
        return math.exp(ratios.mean), math.exp(ratios.mean - half), math.exp(ratios.mean + half)

    def verdict(self, reference: str) -> str:
        """Return "better" if the interval of the ratio is below 1, "worse" if it is above 1, and "" otherwise."""
        _, low, high = self.ratio(reference)
        return "better" if high < 1 else "worse" if low > 1 else ""


def confirmations(rows: Rows) -> list[Confirmation]:
    """Return a Confirmation per dimension and N, from the results of the part ``confirmation``."""
    merged: dict[tuple[int, int], tuple[Mapping[str, Any], dict[str, list[float]]]] = {}
    for arguments, result in rows:
        key = (arguments["N"], int(arguments["flow"].partition("-")[2]))
        _, values = merged.setdefault(key, (arguments, {}))
        for name, numbers in result.items():
            values.setdefault(name, []).extend(numbers)
    return [Confirmation(p, N, *found, len(merged)) for (N, p), found in sorted(merged.items(), key=lambda e: e[0])]


def confirmation_table(found: Sequence[Confirmation]) -> str:
    references = {"kde_best": "best Γ1", "kde_silverman": "Silverman's Γ1", "gibbs": "Gibbs"}
    lines = [["N", "d", "kappa", "ε", "weights", *(f"/ {name}" for name in references.values())]]
    for one in found:
        weights = sum(one.values["proximal"]) / len(one.values["proximal"])
        ratios = [f"{r:.2f} ({low:.2f} to {high:.2f})" for r, low, high in map(one.ratio, references)]
        setting = [str(one.N), str(one.p), f"{one.kappa:g}", f"{one.arguments['epsilon']:.2g}"]
        lines.append([*setting, f"{weights:.3f}", *ratios])
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

    Only settings of the Ornstein-Uhlenbeck flow in dimensions 1 and 2 are used, with h <= 0.02, with results for both
    orientations, and for which the estimate Γ1 resolves the density (slope above 1/2).
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


def other_flows_table(rows: Rows, *, relations: bool = False) -> str:
    lines = [["flow", "kappa", "readings", *(RELATIONS if relations else HEADINGS)]]
    for arguments, result in rows:
        if arguments["flow"].startswith("ornstein"):
            continue
        time = f"{arguments['times'][0]:g}"
        numbers = [f"{figure_of(result[time], variant, 'tv'):.3f}" for variant in VARIANTS]
        if relations:
            numbers = relations_of(result[time])
        potential = arguments["prox_potential"].replace("first_variation", "1st")
        setting = [
            f"{kappa_of(arguments):.2g}",
            f"{arguments['orientation'].replace('consistent', 'cons.')}/{potential}",
        ]
        flow = (
            arguments["flow"]
            .replace("_interaction", "")
            .removeprefix("one_parameter_")
            .replace("_", " ")
            .removesuffix("-1")
        )
        lines.append([flow, *setting, *numbers])
    return markdown_table(lines) if len(lines) > 1 else ""


def best_of_dimension(rows: Rows, N: int = 300) -> dict[int, Best]:
    """Return, per dimension, the setting (kappa and epsilon) with the smallest total variation at t = 0.5."""
    best: dict[int, Best] = {}
    for setting in best_settings(rows, ON_THE_WAY):
        if setting.N == N and (setting.p not in best or setting.tv("proximal") < best[setting.p].tv("proximal")):
            best[setting.p] = setting
    return best


def dimension_curves(rows: Rows) -> dict[str, dict[int, float]]:
    """Return the total variations at the best settings, by label in the plot and by dimension."""
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


CONFIRMATION_NOTES = """\
- For each dimension and N, the kappa and epsilon with the smallest total variation in the next table were chosen; the
  total variation of the weights here is the mean over other seeds. Columns with a slash: the geometric mean of the
  total variation of the weights divided by that of an estimate on the same cloud, with simultaneous 95 % intervals
  (Student's on the logarithms, Bonferroni's correction for the rows). "Better" ("worse") means that the interval is
  below (above) 1.
- Best Γ1: with the variance that is best for each cloud, which a user does not know; Silverman's Γ1: with the
  variance of his rule of thumb.
"""
WEIGHTS_NOTES = """\
- The table shows the total variation between the normalised weights and the normalised density values at the
  particles, at t = 0.5. For each kappa, it uses the epsilon with the smallest total variation, out of five (1/64 to 4
  times Silverman's variance); N is the number of particles, and orientation=consistent. "Γ1": the kernel density
  estimate with this epsilon; "best Γ1": the estimate with the best variance; "w = 0": the proximal step without the
  energy; "1/N": the proximal step from equal weights; "Gibbs": exp(-beta V); "frozen": the initial density;
  "uniform": equal weights. "Slope" and "corr.": the slope and the correlation of log rho as a function of log p.
  "Corr. Γ1": its correlation with log Γ1. "Beyond": the partial correlation of log rho and log p given log Γ1. Values
  are means over the seeds.
- A kappa has no row if none of the five epsilons gives a stable step size h = beta epsilon / kappa (at most 0.1).
"""
EPSILON_NOTES = """\
- The total variation of the weights (means over the seeds); epsilon is given as a multiple of Silverman's variance,
  and h = beta epsilon / kappa. A cell is empty if h is above 0.1 or so small that the run would be too long.
"""
ENERGY_NOTES = """\
- Ratios of the slopes of log rho as a function of log p at t = 1.5, near equilibrium, in dimensions 1 and 2: the slope
  without the energy divided by the slope with it, and the slope with orientation=paper divided by that with
  orientation=consistent. "N infinite": the exact limit with the same h, epsilon and time. The formulas are the limits
  at equilibrium as h and epsilon tend to 0 (proof below). 1 minus the first ratio is the share that comes from the
  energy.
"""
OTHERS_NOTES = """\
- Total variation between the weights and the density at a quarter of the time horizon, with N = 300 and two seeds,
  and slope and correlation of log rho as a function of log p. Readings: orientation (cons.: consistent) and
  prox_potential (paper: with half of the interaction; 1st: first_variation).
"""
