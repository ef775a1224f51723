"""bench.json as tables and as a plot of the cost against N."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from proxlearn.views.run.tables import markdown
from proxlearn.views.style import GREY, UNWEIGHTED, WEIGHTED, figure, house_style, save


def tables(found: dict[str, Any]) -> str:
    """What a person reads first: ratios, with the times they come from."""
    parts = []
    shapes = pd.DataFrame(found["shapes"])
    if len(shapes):
        shapes["ours / floor"] = shapes["ours_ms"] / shapes["floor_ms"]
        shapes["literal64 / ours"] = shapes["literal64_ms"] / shapes["ours_ms"]
        shapes["literal32 / ours"] = shapes["literal32_ms"] / shapes["ours_ms"]
        parts.append(markdown(shapes))
    parts.append(markdown(pd.DataFrame(found["run"])))
    growth = pd.DataFrame(found["growth"])
    growth["us a particle"] = 1e3 * growth["ms"] / growth["N"]
    parts.append(markdown(growth))
    epsilon = pd.DataFrame(found["epsilon"])
    ratio = epsilon["seconds"].max() / epsilon["seconds"].min()
    parts.append(markdown(epsilon) + f"\nslowest / fastest: {ratio:.2f}\n")
    start = found["startup"]
    parts.append(f"`proxlearn --help` {start['help_s']:.2f} s, `proxlearn train steps=1` {start['one_step_s']:.1f} s\n")
    return "\n".join(parts)


def draw_bench(found: dict[str, Any], folder: Path, name: str) -> list[Path]:
    """Cost of a step against the number of particles, beside the algorithms as printed."""
    with house_style():
        made, (axes,) = figure(4.6, 3.3)
        for records, colour, label in (
            (found["growth_literal"], UNWEIGHTED, "Algorithms 1 and 2 as printed"),
            (found["growth"], WEIGHTED, "proxlearn"),
        ):
            axes.plot(
                [r["N"] for r in records], [r["ms"] for r in records], "o-", color=colour, label=label, markersize=4
            )
        first = found["growth"][0]
        ends = [first["N"], found["growth"][-1]["N"]]
        axes.plot(ends, [first["ms"] * N / first["N"] for N in ends], ":", color=GREY, label="proportional to N")
        axes.set(xscale="log", yscale="log", xlabel="particles N", ylabel="ms a recursion", title="WDBC, float32")
        axes.legend()
        return save(made, folder, name)
