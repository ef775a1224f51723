"""Plot the results of `proxlearn bench`: whole experiments, growth with N, and special clouds."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from proxlearn.views.bench_tables import duration
from proxlearn.views.style import GREY, UNWEIGHTED, WEIGHTED, class_colours, figure, house_style, plain_ticks, save

REGIME_MARKERS = {"all pairs": "o", "list": "s", "identity": "x"}


def draw_bench(results: dict[str, Any], folder: Path, names: Mapping[str, str]) -> list[Path]:
    """Draw the plots of the parts that were measured; ``names`` holds the file names without their suffix."""
    plots = {
        "whole": ("whole", draw_whole),
        "growth": ("initial_growth", draw_initial_growth),
        "special": ("growth", draw_special_growth),
    }
    paths = []
    for part, (key, draw) in plots.items():
        if results.get(key):
            with house_style():
                paths += draw(results, folder, names[part])
    return paths


def draw_whole(results: dict[str, Any], folder: Path, name: str) -> list[Path]:
    """Plot the mean time per recursion of each experiment, and the time at the clouds of its run."""
    fig, (means, along) = figure(9.2, 3.6, 2)
    records = results["whole"][::-1]
    places = range(len(records))
    for key, colour, marker, label in (
        ("floor_ms", GREY, "|", "floor"),
        ("ours_ms", WEIGHTED, "o", "proxlearn"),
        ("literal_ms", UNWEIGHTED, "D", "Algorithms 1 and 2 as printed"),
    ):
        size = 13 if marker == "|" else 6
        means.plot([r[key] for r in records], places, marker, color=colour, label=label, markersize=size)
    means.set_yticks(places, [f"{r['dataset']}\n{r['steps']} steps: {duration(r['seconds'])}" for r in records])
    means.set(xscale="log", xlabel="ms per recursion, mean of the experiment", ylim=(-0.6, len(records) - 0.4))
    means.legend(loc="upper center", bbox_to_anchor=(0.4, 1.14), ncols=3, columnspacing=1.0, handletextpad=0.2)
    datasets = [r["dataset"] for r in results["whole"]]
    for dataset, colour in zip(datasets, class_colours(max(3, len(datasets))), strict=False):
        clouds = [cloud for cloud in results["whole_clouds"] if cloud["dataset"] == dataset]
        # k + 1, because a logarithmic axis cannot show k = 0.
        along.plot([c["k"] + 1 for c in clouds], [c["ours_ms"] for c in clouds], "-", color=colour, label=dataset)
        for regime, marker in REGIME_MARKERS.items():
            points = [c for c in clouds if c["regime"] == regime]
            along.plot([c["k"] + 1 for c in points], [c["ours_ms"] for c in points], marker, color=colour, markersize=4)
    for regime, marker in REGIME_MARKERS.items():
        along.plot([], [], marker, color=GREY, markersize=4, label=f"kernel: {regime}")
    along.set(xscale="log", yscale="log", xlabel="k + 1", ylabel="ms per recursion (proxlearn)")
    _legend_outside(along)
    return save(fig, folder, name)


def draw_initial_growth(results: dict[str, Any], folder: Path, name: str) -> list[Path]:
    """Plot the time of a step from the initial cloud over N for each dataset, and the time of a reduction by KeOps."""
    fig, (axes,) = figure(6.2, 3.6)
    groups = [(key, list(group)) for key, group in groupby(results["initial_growth"], lambda r: str(r["dataset"]))]
    measured = [r for r in results["initial_growth"] if r["seconds"] is not None]
    for (dataset, records), colour in zip(groups, class_colours(max(3, len(groups))), strict=False):
        points = [r for r in records if r["seconds"] is not None]
        axes.plot(
            [r["N"] for r in points],
            [r["seconds"] for r in points],
            "o-",
            color=colour,
            label=dataset,
            markersize=4,
        )
        keops = [r for r in records if isinstance(r.get("keops"), float)]
        axes.plot([r["N"] for r in keops], [r["keops"] for r in keops], "--", color=colour, linewidth=1)
    if any(isinstance(r.get("keops"), float) for r in results["initial_growth"]):
        axes.plot([], [], "--", color=GREY, linewidth=1, label="KeOps, one\nreduction")
    if measured:
        ends = [min(r["N"] for r in measured), max(r["N"] for r in measured)]
        least = min(r["seconds"] / r["N"] ** 2 for r in measured)
        axes.plot(ends, [0.5 * least * N**2 for N in ends], ":", color=GREY, label="proportional\nto N$^2$")
    axes.set(xscale="log", yscale="log", xlabel="particles N", ylabel="s per step", title="From the initial cloud")
    plain_ticks(axes.xaxis)
    _legend_outside(axes)
    return save(fig, folder, name)


def draw_special_growth(results: dict[str, Any], folder: Path, name: str) -> list[Path]:
    """Plot the time per recursion over the number of particles, for proxlearn and for the paper's algorithms."""
    fig, (axes,) = figure(4.6, 3.3)
    for records, colour, label in (
        (results["growth_literal"], UNWEIGHTED, "Algorithms 1 and 2 as printed"),
        (results["growth"], WEIGHTED, "proxlearn"),
    ):
        axes.plot([r["N"] for r in records], [r["ms"] for r in records], "o-", color=colour, label=label, markersize=4)
    first = results["growth"][0]
    ends = [first["N"], results["growth"][-1]["N"]]
    axes.plot(ends, [first["ms"] * N / first["N"] for N in ends], ":", color=GREY, label="proportional to N")
    title = "Special clouds: WDBC, no pair matters, float32"
    axes.set(xscale="log", yscale="log", xlabel="particles N", ylabel="ms per recursion", title=title)
    axes.legend()
    return save(fig, folder, name)


def _legend_outside(axes: Axes) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
