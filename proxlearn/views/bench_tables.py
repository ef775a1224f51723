"""Format the results of `proxlearn bench` as Markdown tables."""

from __future__ import annotations

from typing import Any

import pandas as pd

from proxlearn.bench.initial_growth import NOT_POSSIBLE
from proxlearn.views.markdown import markdown

WHOLE_NOTES = """\
ours: the compiled engine, recursions only (no metrics, no files). Measured at the clouds of the experiment's own run
at k = 0, 1, 2, 5, 10, ...; each cloud represents the recursions around it (trapezoidal rule in k). The cloud of the
last k represents all later recursions, whose share is in the column `beyond`.
literal: Algorithms 1 and 2 as printed, in float64, at the same clouds.
floor: only torch's own functions: two matrix products, one sigmoid over N x n (softmax: exponential), and the noise. If
particles exchange mass, the floor also includes the distances (torch.cdist with its matrix product) and exponentials of
the pairs, and (rounds + 1) x 2 products with their matrix. The pairs are all N^2 pairs if the compiled step uses all;
if it uses a neighbour list, they are those whose entry of the coupling exceeds 2^-53 of the mass of its row or column.
"""
GROWTH_NOTES = """\
One step from the initial cloud of each dataset, best of two. KeOps: one log-sum-exp over all pairs on the CPU; a
recursion in the log domain needs 2 (rounds + 1) of these.
"""
COMPANY_NOTES = """\
Medians of whole `proxlearn train` commands with default settings. at once / one after the other: two runs; 1 means that
nothing is lost or gained. busy / alone: one run beside one busy loop per core; 2 means that it gets half of every core.
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
    """Return the table of whole experiments."""
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
    """Return the table of the times of steps from initial clouds, over N."""
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
    """Return the table of the times of commands that run beside other processes."""
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
    """Return the tables of the special clouds and of the commands that are measured together with them."""
    parts = []
    recursions = pd.DataFrame(results["shapes"])
    if len(recursions):
        recursions = recursions.rename(columns={"dataset": "special cloud of"})
        recursions["ours / floor"] = recursions["ours_ms"] / recursions["floor_ms"]
        recursions["literal64 / ours"] = recursions["literal64_ms"] / recursions["ours_ms"]
        recursions["literal32 / ours"] = recursions["literal32_ms"] / recursions["ours_ms"]
        parts.append(
            f"Special clouds: one recursion in one regime (the floor is that of the drift)\n\n{markdown(recursions)}"
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
    """Return a time in seconds, minutes or hours."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def _table(rows: list[dict[str, Any]]) -> str:
    # With the type object, integers and strings in one column are not converted.
    return markdown(pd.DataFrame(rows, dtype=object)) if rows else "nothing was measured\n"
