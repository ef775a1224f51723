"""Format bench.json as tables, and plot the time per recursion over N."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from proxlearn.views.markdown import markdown
from proxlearn.views.style import GREY, UNWEIGHTED, WEIGHTED, figure, house_style, save


def tables(results: dict[str, Any]) -> str:
    """Return the measurements as Markdown tables, with ratios that can be compared across machines."""
    parts = []
    recursions = pd.DataFrame(results["shapes"])
    if len(recursions):
        recursions["ours / floor"] = recursions["ours_ms"] / recursions["floor_ms"]
        recursions["literal64 / ours"] = recursions["literal64_ms"] / recursions["ours_ms"]
        recursions["literal32 / ours"] = recursions["literal32_ms"] / recursions["ours_ms"]
        parts.append(markdown(recursions))
    parts.append(markdown(pd.DataFrame(results["run"])))
    parts.append(markdown(pd.DataFrame(results["functionals"])))
    growth = pd.DataFrame(results["growth"])
    growth["us per particle"] = 1e3 * growth["ms"] / growth["N"]
    parts.append(markdown(growth))
    epsilon = pd.DataFrame(results["epsilon"])
    ratio = epsilon["seconds"].max() / epsilon["seconds"].min()
    parts.append(markdown(epsilon) + f"\nslowest / fastest: {ratio:.2f}\n")
    startup = results["startup"]
    parts.append(
        f"`proxlearn --help`: {startup['help_s']:.2f} s, `proxlearn train steps=1`: {startup['one_step_s']:.1f} s\n"
    )
    return "\n".join(parts)


def draw_bench(results: dict[str, Any], folder: Path, name: str) -> list[Path]:
    """Plot the time per recursion over the number of particles, for proxlearn and for the paper's algorithms."""
    with house_style():
        fig, (axes,) = figure(4.6, 3.3)
        for records, colour, label in (
            (results["growth_literal"], UNWEIGHTED, "Algorithms 1 and 2 as printed"),
            (results["growth"], WEIGHTED, "proxlearn"),
        ):
            axes.plot(
                [r["N"] for r in records], [r["ms"] for r in records], "o-", color=colour, label=label, markersize=4
            )
        first = results["growth"][0]
        ends = [first["N"], results["growth"][-1]["N"]]
        axes.plot(ends, [first["ms"] * N / first["N"] for N in ends], ":", color=GREY, label="proportional to N")
        axes.set(xscale="log", yscale="log", xlabel="particles N", ylabel="ms per recursion", title="WDBC, float32")
        axes.legend()
        return save(fig, folder, name)
