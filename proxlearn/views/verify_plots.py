"""Plots of `proxlearn verify`: orders of convergence, weights against density, and the weights experiment."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from proxlearn.files.atomic import write_atomically
from proxlearn.views.style import GREY, class_colours, figure, house_style


def save_png(fig: Figure, folder: Path, name: str) -> list[Path]:
    """Write a plot to ``name``.png, the format that the pages of `proxlearn verify` show; return the path in a list."""
    content = io.BytesIO()
    fig.savefig(content, format="png", dpi=130)
    write_atomically(folder / f"{name}.png", content.getvalue())
    return [folder / f"{name}.png"]


def draw_experiment(table: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]], folder: Path) -> list[Path]:
    """Plot the effect of each weight update against kappa, with one line per problem, N and epsilon."""
    with house_style():
        updates = list(dict.fromkeys(update for update, _ in table))
        fig, axes = figure(9.2, 3.2, len(updates))
        problems = list(dict.fromkeys(cell["problem"] for cells in table.values() for cell in cells))
        colours = dict(zip(problems, class_colours(max(3, len(problems))), strict=False))
        for ax, update in zip(axes, updates, strict=True):
            cells = table[update, "equal recursions"]
            lines: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
            for cell in cells:
                lines.setdefault((cell["problem"], cell["N"], cell["multiple"]), []).append(cell)
            for (problem, N, _), line in lines.items():
                x, y = [c["kappa"] for c in line], [100 * math.expm1(c["mean"]) for c in line]
                ax.plot(x, y, "-", color=colours[problem], linewidth={20: 0.6, 50: 1.1}.get(N, 1.8), alpha=0.8)
                for c, a, b in zip(line, x, y, strict=True):
                    clear = not c["diverged"] and abs(c["mean"]) > c["half_width"]
                    ax.plot([a], [b], "o" if clear else ".", color=colours[problem], markersize=5 if clear else 3)
            ax.axhline(0, color=GREY, linewidth=0.8)
            ax.set(xscale="log", yscale="symlog", xlabel=r"$\kappa = \beta\epsilon/h$", title=update)
        axes[0].set_ylabel("change in test risk (%)\n(equal recursions)")
        for problem in problems:
            axes[-1].plot([], [], color=colours[problem], label=problem)
        for N, width in ((20, 0.6), (50, 1.1), (200, 1.8)):
            axes[-1].plot([], [], "-", color=GREY, linewidth=width, label=f"N = {N}")
        axes[-1].plot([], [], "o", color=GREY, markersize=5, label="clear")
        axes[-1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return save_png(fig, folder, "experiment")


def draw_law(curves: Mapping[str, Mapping[str, tuple[list[float], list[list[float]]]]], folder: Path) -> list[Path]:
    """Plot errors of the second moment against h, and roots of the energy distance against N (means over the seeds)."""
    with house_style():
        fig, (left, right) = figure(9.2, 3.4, 2)
        flows = list(dict.fromkeys([*curves["h"], *curves["N"]]))
        colours = dict(zip(flows, class_colours(max(3, len(flows))), strict=False))
        for ax, part, power, name in ((left, "h", 1.0, "order 1 (left)"), (right, "N", -0.5, "order 1/2 (right)")):
            points = []
            for flow, (scales, errors) in curves[part].items():
                means = [sum(abs(row[i]) for row in errors) / len(errors) for i in range(len(scales))]
                points += list(zip(scales, means, strict=True))
                ax.plot(scales, means, ".-", color=colours[flow], linewidth=1.1, label=flow.replace("_", " "))
            if points:
                # Draw a line with the expected slope below all curves.
                factor = 0.6 * min(y / x**power for x, y in points)
                ends = [min(x for x, _ in points), max(x for x, _ in points)]
                style: dict[str, Any] = {"color": GREY, "linewidth": 1}
                ax.plot(ends, [factor * x**power for x in ends], "--" if part == "h" else ":", **style)
                right.plot([], [], "--" if part == "h" else ":", label=name, **style)
            ax.set(xscale="log", yscale="log", xlabel=part)
        left.set_ylabel("error of the second moment\n(same Brownian path)")
        right.set_ylabel("root of the energy distance")
        right.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02))
        return save_png(fig, folder, "law")


def draw_weights(
    measured: Mapping[float, tuple[float, float]],
    theory: Mapping[float, tuple[float, float]],
    dimensions: Mapping[str, Mapping[int, float]],
    folder: Path,
) -> list[Path]:
    """Plot two ratios of slopes (measured and in theory) against kappa, and total variations against the dimension.

    ``measured`` and ``theory`` map kappa to the two ratios. ``dimensions`` maps the name of each curve to its total
    variations by dimension.
    """
    with house_style():
        fig, (left, right) = figure(9.2, 3.3, 2)
        labels = ("w = 0 / with the energy", "orientation=paper / consistent")
        for i, (label, colour) in enumerate(zip(labels, class_colours(2), strict=True)):
            left.plot(list(theory), [pair[i] for pair in theory.values()], "-", color=colour, linewidth=1.2)
            left.plot(list(measured), [pair[i] for pair in measured.values()], "o", color=colour, label=label)
        left.plot([], [], "-", color=GREY, label="theory")
        left.set(xscale="log", ylim=(0, 1.05), xlabel=r"$\kappa = \beta\epsilon/h$")
        left.set_ylabel(r"ratio of slopes of $\log\rho$ on $\log p$")
        left.legend(loc="upper left")
        markers = ("o", "s", "^", "D", "v", "x")
        for (name, by_dimension), marker, colour in zip(dimensions.items(), markers, class_colours(6), strict=False):
            right.plot(
                list(by_dimension), list(by_dimension.values()), f"{marker}-", color=colour, markersize=4, label=name
            )
        right.set(xscale="log", yscale="log", xlabel="dimension", ylabel="total variation to the density, t = 0.5")
        ticks = sorted({p for values in dimensions.values() for p in values})
        right.set_xticks(ticks, [str(p) for p in ticks])
        right.minorticks_off()
        right.set_yticks([0.03, 0.1, 0.3, 1.0], ["0.03", "0.1", "0.3", "1"])
        right.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02))
        return save_png(fig, folder, "weights")
