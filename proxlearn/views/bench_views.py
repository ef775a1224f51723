"""Tables and plots of `proxlearn bench`: whole experiments, growth, special clouds, and commands on a busy machine."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from proxlearn.bench.growth import NOT_POSSIBLE
from proxlearn.views.style import GREY, UNWEIGHTED, WEIGHTED, class_colours, figure, house_style, plain_ticks, save
from proxlearn.views.tables import markdown

REGIME_MARKERS = {"all pairs": "o", "list": "s", "identity": "x"}


def draw_bench(results: dict[str, Any], folder: Path, names: Mapping[str, str]) -> list[Path]:
    """Draw the plots of the parts that were measured; ``names`` maps each part to a file name without a suffix."""
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
    """Plot the mean time per recursion of each experiment, and the time per recursion at each measured cloud."""
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
    """Plot against N, for each dataset, the time of a step from the initial cloud and the time of a KeOps reduction."""
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
    """Plot the time per recursion against N for special clouds, with proxlearn and with the paper's algorithms."""
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


WHOLE_NOTES = """\
ours: the time of the recursions with the compiled engine, without metrics and files. It is measured on the clouds of
the experiment's own run at k = 0, 1, 2, 5, 10, ...; each cloud represents the recursions around it (trapezoidal rule in
k). The cloud of the last k represents all later recursions, whose share is in the column `beyond`.
literal: the time of Algorithms 1 and 2 as printed in the paper, in float64, on the same clouds.
floor: the time of the following operations with torch's own functions: two matrix products, one sigmoid over N x n (for
softmax, one exponential), and the noise. If particles exchange mass, the floor also includes the distances (torch.cdist
with its matrix product) and exponentials of the pairs, and (rounds + 1) x 2 products with the matrix of these values.
The pairs are all N^2 pairs if the compiled step uses all of them; if it uses a list, they are the pairs whose entry of
the coupling exceeds 2^-53 of the mass of its row or column.
"""
GROWTH_NOTES = """\
The times are those of one step from the initial cloud of each dataset (the best of two). KeOps: the time of one
log-sum-exp over all pairs on the CPU; a recursion in the log domain needs 2 (rounds + 1) such reductions.
"""
COMPANY_NOTES = """\
The times are medians over whole `proxlearn train` commands with default settings.
at once / one after the other: the time of two runs at once, divided by their time one after the other; 1 means that
running them at once has neither a cost nor a benefit.
busy / alone: the time of a run beside one busy loop per core, divided by its time alone; 2 means that the run gets half
of each core.
"""


def tables(results: dict[str, Any]) -> str:
    """Return the measurements as Markdown tables, with ratios that can be compared across machines."""
    parts = {
        "whole": whole_table,
        "shapes": special_tables,
        "initial_growth": growth_table,
        "company": company_table,
    }
    return "\n".join(table(results) for key, table in parts.items() if key in results)


def whole_table(results: dict[str, Any]) -> str:
    """Return a table of the times that whole experiments take, with notes."""
    rows = [
        {
            "experiment": record["dataset"],
            "steps": record["steps"],
            "ms per step": record["ours_ms"],
            "whole": duration(record["seconds"]),
            "literal / ours": record["literal_over_ours"],
            "ours / floor": record["ours_over_floor"],
            "last k": record["largest_k"],
            "beyond": f"{100 * (record['steps'] - 1 - record['largest_k']) / record['steps']:.4g} %",
        }
        for record in results["whole"]
    ]
    return f"Whole experiments\n\n{_table(rows)}\n{WHOLE_NOTES}"


def growth_table(results: dict[str, Any]) -> str:
    """Return a table of the seconds per step from the initial clouds for several N, with notes."""
    rows = []
    for record in results["initial_growth"]:
        possible = record["seconds"] is not None
        rows.append(
            {
                "dataset": record["dataset"],
                "N": record["N"],
                "s per step": record["seconds"] if possible else NOT_POSSIBLE,
                "ns per pair": record["ns_per_pair"] if possible else "",
                "kernel": record["regime"] if possible else "",
                "rounds": record["rounds"] if possible else "",
                "KeOps, s per reduction": record.get("keops", ""),
                "note": record["problem"] or "",
            }
        )
    return f"Growth with N from the initial clouds\n\n{_table(rows)}\n{GROWTH_NOTES}"


def company_table(results: dict[str, Any]) -> str:
    """Return a table of the times that commands take on a busy machine, with notes."""
    rows = [
        {
            "dataset": record["dataset"],
            "steps": record["steps"],
            "alone, s": record["alone_s"],
            "at once / one after the other": record["at_once_over_one_after_the_other"],
            "busy / alone": record["busy_over_alone"],
            "turns": record["turns"],
            "cores": record["cores"],
        }
        for record in results["company"]
    ]
    return f"Beside other processes\n\n{_table(rows)}\n{COMPANY_NOTES}"


def special_tables(results: dict[str, Any]) -> str:
    """Return the tables of the part `special`: special clouds, other losses and neurons, and whole commands."""
    parts = []
    recursions = pd.DataFrame(results["shapes"])
    if len(recursions):
        recursions = recursions.rename(columns={"dataset": "special cloud of"})
        recursions["ours / floor"] = recursions["ours_ms"] / recursions["floor_ms"]
        recursions["literal64 / ours"] = recursions["literal64_ms"] / recursions["ours_ms"]
        recursions["literal32 / ours"] = recursions["literal32_ms"] / recursions["ours_ms"]
        parts.append(
            f"Special clouds: one recursion in one regime (the floor covers only the drift)\n\n{markdown(recursions)}"
        )
    parts.append(f"A whole run with its files\n\n{markdown(pd.DataFrame(results['run']))}")
    parts.append(
        f"Special clouds: other losses and neurons, after 200 steps\n\n{markdown(pd.DataFrame(results['functionals']))}"
    )
    growth = pd.DataFrame(results["growth"])
    growth["us per particle"] = 1e3 * growth["ms"] / growth["N"]
    parts.append(f"Special clouds: WDBC spread so far that no pair matters, over N\n\n{markdown(growth)}")
    epsilon = pd.DataFrame(results["epsilon"])
    ratio = epsilon["seconds"].max() / epsilon["seconds"].min()
    parts.append(f"WDBC, the first steps, over epsilon\n\n{markdown(epsilon)}\nslowest / fastest: {ratio:.2f}\n")
    startup = results["startup"]
    parts.append(
        f"`proxlearn --help`: {startup['help_s']:.2f} s, `proxlearn train steps=1`: {startup['one_step_s']:.1f} s\n"
    )
    return "\n".join(parts)


def duration(seconds: float) -> str:
    """Return a time as a string in seconds, minutes or hours."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def _table(rows: list[dict[str, Any]]) -> str:
    # With the type object, integers and strings in one column are not converted.
    return markdown(pd.DataFrame(rows, dtype=object)) if rows else "nothing was measured\n"
