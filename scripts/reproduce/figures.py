"""Figures 2 to 5, in the paper's form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from proxlearn.predict.model import Model
from proxlearn.predict.model_loader import find_model
from proxlearn.run import checkpoint as checkpoints
from proxlearn.run.checkpoint_file import list_checkpoints as stored_clouds
from proxlearn.views.style import (
    ESTIMATE_COLOURS,
    ESTIMATE_LINES,
    GREY,
    WEIGHTED,
    figure,
    house_style,
    plain_ticks,
    save,
)
from reproduce.source import Found, load
from reproduce.table import provenance

INSETS = (100, 1000, 5000)
"""Recursions that Figure 4's insets are of, or the nearest that are stored."""


def fig2(root: Path) -> list[Path]:
    """WDBC: risk against k, line for beta=0.05, shade over beta."""
    panels = (load(root, "table1-float64", "table1"), load(root, "table2"))
    with house_style():
        made, axes = figure(7.0, 2.9, columns=2)
        for panel, runs in zip(axes, panels, strict=True):
            main = [each for each in runs if each["beta"] == 0.05][:1]
            betas = {each["beta"]: each for each in reversed(runs)}
            for estimate in ESTIMATE_COLOURS:
                _line_and_range(panel, main, list(betas.values()), f"test_risk_paper_{estimate}", estimate)
            _logarithmic(panel, "test risk, 0.5 ‖label − g‖ / n")
        precision = "".join(f"line in {each['device']['dtype']}, shade in float32" for each in panels[0][:1])
        axes[0].set_title(f"Table 1: {precision}")
        axes[1].set_title("Table 2: float32, then float64 if need be")
        _headline(made, axes[0], "WDBC; line: β = 0.05, shade: from β = 0.03 to 0.07")
        return save(made, root, "fig2", about=_about("fig2", [each for runs in panels for each in runs]))


def fig3(root: Path) -> list[Path]:
    """SHD: mean of the short runs with their range, and the long run."""
    start, long = load(root, "fig3-start"), load(root, "fig3")
    with house_style():
        made, axes = figure(7.0, 2.9, columns=2)
        for panel, (name, words) in zip(
            axes, {"risk": "mean of (1 − f)²", "risk_paper": "‖1 − f‖ / n"}.items(), strict=True
        ):
            for estimate in ESTIMATE_COLOURS:
                column = f"test_{name}_{estimate}"
                _line_and_range(panel, long, start, column, estimate)
            _logarithmic(panel, f"test risk, {words}")
        _headline(made, axes[0], f"SHD; line: one long run, shade: range of {len(start)} runs from its first cloud")
        return save(made, root, "fig3", about=_about("fig3", [*start, *long]))


def fig4(root: Path) -> list[Path]:
    """The sine's risk against k, with three insets of the learnt function."""
    runs = load(root, "fig4")
    with house_style():
        made, (axes,) = figure(6.0, 3.8)
        for found in runs:
            later = found.metrics[found.metrics["step"] > 0]
            for estimate in ESTIMATE_COLOURS:
                axes.plot(later["step"], later[f"test_risk_{estimate}"], label=estimate, **ESTIMATE_LINES[estimate])
        _logarithmic(axes, "test risk: mean of (sin x − f)²")
        low, high = axes.get_ylim()
        axes.set_ylim(low * (low / high) ** 0.75, high)
        axes.plot([], [], color=GREY, linewidth=0.9, label="sin x, in the insets")
        # Below the first, flat part of the curves and above the insets.
        axes.legend(loc="center left", bbox_to_anchor=(0.04, 0.72))
        for found in runs:
            for number, learnt in enumerate(_three_clouds(found)):
                inset = axes.inset_axes((0.03 + 0.325 * number, 0.05, 0.29, 0.40))
                x = np.linspace(-np.pi, np.pi, 200)
                inset.plot(x, np.sin(x), color=GREY, linewidth=0.9)
                for estimate, f in learnt.values(x[:, None]).items():
                    inset.plot(x, f, **ESTIMATE_LINES[estimate] | {"linewidth": 1.4})
                inset.set_title(f"k = {learnt.cloud.step}", fontsize=8, pad=2)
                inset.set(xticks=[], yticks=[], ylim=(-1.25, 1.25))
                at = found.metrics[found.metrics["step"] == learnt.cloud.step]
                axes.plot(at["step"], at["test_risk_weighted"], "o", color=WEIGHTED, markersize=4.5)
        return save(made, root, "fig4", about=_about("fig4", runs))


def fig5(root: Path) -> list[Path]:
    """What each of the randomised runs learnt of the sine."""
    runs = load(root, "fig5")
    with house_style():
        made, (axes,) = figure(3.6, 2.9)
        x = np.linspace(-np.pi, np.pi, 200)
        for found in runs:
            learnt = find_model(found.run.path)
            if learnt is not None:
                axes.plot(x, learnt.values(x[:, None])["weighted"], color=WEIGHTED, linewidth=0.7, alpha=0.6)
        axes.plot([], [], color=WEIGHTED, linewidth=0.9, label=f"{len(runs)} runs, k = {max(_made(runs))}")
        axes.plot(x, np.sin(x), "--", color="black", linewidth=1.2, label="sin x")
        axes.set(xlabel="x", ylabel="f (weighted)")
        axes.set_xticks([-np.pi, 0, np.pi], ["−π", "0", "π"])
        axes.legend()
        return save(made, root, "fig5", about=_about("fig5", runs))


def _line_and_range(axes: Axes, main: list[Found], runs: list[Found], column: str, label: str) -> None:
    """One run's curve, upon the range over several where they have the same steps."""
    table, colour = _together(runs, column), ESTIMATE_COLOURS[label]
    width = 1.8 if label == "weighted" else 0.9
    axes.fill_between(table.index, table.min(axis=1), table.max(axis=1), color=colour, alpha=0.22, linewidth=0)
    for found in main:
        later = found.metrics[found.metrics["step"] > 0]
        axes.plot(later["step"], later[column], label=label, **ESTIMATE_LINES[label] | {"linewidth": width})
    if not main and len(table):
        axes.plot(table.index, table.mean(axis=1), label=label, **ESTIMATE_LINES[label] | {"linewidth": width})


def _together(runs: list[Found], column: str) -> pd.DataFrame:
    """A column of several runs side by side, at the steps that all of them have."""
    series = [each.metrics.set_index("step")[column].drop(0, errors="ignore") for each in runs]
    return pd.concat(series, axis=1, join="inner") if series else pd.DataFrame()


def _three_clouds(found: Found) -> list[Model]:
    """The learnt function at the insets' recursions."""
    newest = find_model(found.run.path)
    stored = {step: path for step, path in stored_clouds(found.run.path / "checkpoints") if step > 0}
    if newest is None or not stored:
        return []
    steps = dict.fromkeys(min(stored, key=lambda step: abs(np.log(step / wanted))) for wanted in INSETS)
    return [replace(newest, cloud=checkpoints.load(stored[step]).cloud.to("cpu", torch.float64)) for step in steps]


def _headline(made: Figure, panel: Axes, words: str) -> None:
    """What is shown, and the legend, above the panels: curves that are not known yet leave no sure place in them."""
    made.suptitle(words, fontsize=9, x=0.02, ha="left")
    made.legend(*panel.get_legend_handles_labels(), loc="upper right", ncols=2)


def _logarithmic(axes: Axes, label: str) -> None:
    axes.set(xlabel="recursion k", ylabel=label)
    if axes.lines:
        axes.set(xscale="log", yscale="log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        plain_ticks(axes.yaxis)


def _made(runs: Sequence[Found]) -> list[int]:
    return [each.made for each in runs] or [0]


def _about(name: str, runs: Sequence[Found]) -> str:
    return "\n".join(provenance(name, runs))
