"""Plots of `proxlearn verify`: orders, weights against the density, and the experiment on the use of weights."""

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
    """Write one PNG file: the page shows it, and no other format is committed."""
    content = io.BytesIO()
    fig.savefig(content, format="png", dpi=130)
    write_atomically(folder / f"{name}.png", content.getvalue())
    return [folder / f"{name}.png"]


def draw_experiment(table: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]], folder: Path) -> list[Path]:
    """Plot the effect of every update against kappa, with one line per problem, N and epsilon."""
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
        axes[0].set_ylabel("change of the test risk, %\n(equal recursions)")
        for problem in problems:
            axes[-1].plot([], [], color=colours[problem], label=problem)
        axes[-1].plot([], [], "o", color=GREY, markersize=5, label="clear")
        axes[-1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return save_png(fig, folder, "experiment")
