"""Write the page on Figures 2 to 5, with the distances of our curves from the published ones.

published_curves.csv contains points read off the curves that the authors published as pictures. Its columns are the
figure ("fig2a" and "fig2b" are the left and the right panel of Figure 2), the estimate, the recursion k, and the middle
and both edges of the drawn line at k. The values are accurate to about 1 %.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd

from proxlearn.compare.statistics import summarise
from proxlearn.config.schema import DatasetConfig
from proxlearn.data import registry
from proxlearn.files.atomic import write_atomically
from proxlearn.paper import published
from proxlearn.paper.archive import Archive, ArchivedRun
from proxlearn.paper.result_table import conclusion, markdown_table, sources_note, write_sources
from proxlearn.views.style import ESTIMATE_COLOURS


@dataclass(frozen=True)
class PublishedPanel:
    """A panel of a figure with published curves: its content, and the rule for comparing runs with the curves."""

    figure: str
    title: str
    part: str
    """The part of the data on which the published curve was computed; the paper may state the other part."""
    metric: str
    first_step: int
    allowance: float
    """Largest distance, as a difference of logarithms, that counts as agreement."""

    def column(self, estimate: str) -> str:
        return f"{self.part}_{self.metric}_{estimate}"


PANELS = (
    PublishedPanel("fig2a", "Figure 2, left", "train", "risk_paper", 200_000, 0.05),
    # The quantity and the runs are those of Table 3, so the allowance of Table 3 is used.
    PublishedPanel("fig2b", "Figure 2, right", "test", "risk_paper", 200_000, 0.15),
    PublishedPanel("fig3", "Figure 3", "test", "risk", 1, 0.03),
)


@dataclass(frozen=True)
class CurveDistance:
    """The largest distance between a run, or a mean of runs, and a published curve: log(our risk) - log(the curve)."""

    largest: float
    """The distance of largest magnitude, which is at the recursion ``step``."""
    step: int
    outside: float
    """The largest absolute distance from the nearer edge of the drawn line; 0 if the run is always within the line."""
    points: int
    """Number of published points that were compared."""


def find_panel(figure: str) -> PublishedPanel:
    return next(panel for panel in PANELS if panel.figure == figure)


@cache
def _points() -> pd.DataFrame:
    text = resources.files("proxlearn.paper").joinpath("published_curves.csv").read_text(encoding="utf-8")
    return pd.read_csv(io.StringIO(text))


def published_curve(figure: str, estimate: str) -> pd.DataFrame:
    """Return the points of a published curve, with the columns k, risk, low and high."""
    points = _points()
    chosen = points[(points["figure"] == figure) & (points["estimate"] == estimate)]
    return chosen[["k", "risk", "low", "high"]].sort_values("k").reset_index(drop=True)


def curve_distance(runs: Sequence[ArchivedRun], panel: PublishedPanel, estimate: str) -> CurveDistance | None:
    """Return the distance between the mean risk of the runs and a published curve.

    The result is None if no point of the curve lies in the compared range of recursions. The mean at recursion k is
    taken over the runs that reach k. Between logged recursions, the logarithm of a run's risk is interpolated linearly
    in log k.
    """
    curve = published_curve(panel.figure, estimate)
    k = curve["k"].to_numpy()
    logged = [run.metrics[run.metrics["step"] > 0] for run in runs]
    risks = [
        np.exp(np.interp(np.log(k), np.log(table["step"]), np.log(table[panel.column(estimate)]), right=np.nan))
        for table in logged
    ]
    compared = (k >= panel.first_step) & (k <= max(table["step"].max() for table in logged))
    if not compared.any():
        return None
    curve = curve[compared]
    ours = np.log(np.nanmean(np.array(risks)[:, compared], axis=0))
    middle, low, high = (ours - np.log(curve[name].to_numpy()) for name in ("risk", "low", "high"))
    place = int(np.abs(middle).argmax())
    outside = np.maximum(np.maximum(high, -low), 0)
    return CurveDistance(float(middle[place]), int(curve["k"].iloc[place]), float(outside.max()), len(curve))


LINES = {"fig2a": ("table1-float64",), "fig2b": ("table2", "table2-seeds"), "fig3": ("fig3",)}
"""Plan entries of the runs that are compared with each panel. Of the runs on WDBC, only those with beta=0.05 are
compared, because the paper's line shows this value. All runs in the paper's Figure 3 start from one initial cloud, so
one run is compared."""
OTHER_CLOUDS = "fig3-seeds"
"""Plan entry of runs whose initial clouds differ from that of the run compared with Figure 3. These runs were started
after the first comparison; they show the spread over initial clouds and have no verdict."""
ONE_CLOUD = "fig3-start"
"""Plan entry of runs that start from the initial cloud of the run compared with Figure 3, but use other noise."""
SNAP = 1e-3
"""Distance from 0 or 1 within which the published code replaces the logistic function of f by 0 or 1."""
SWITCHED = "free-energy-wdbc"
"""Plan entry of the run whose clouds show what the published code computes after it has switched to float64."""


def panel_runs(archive: Archive, panel: PublishedPanel) -> list[ArchivedRun]:
    """Return the runs that are compared with the published curves of a panel."""
    return archive.runs(*LINES[panel.figure], where=lambda run: panel.figure == "fig3" or run["beta"] == 0.05)


def panel_lines(archive: Archive, panel: PublishedPanel) -> list[tuple[str, list[ArchivedRun]]]:
    """Return the name and the runs of each line that has a verdict; each of these lines is a single run."""
    return [(f"seed {run['seed']}", [run]) for run in panel_runs(archive, panel)]


def other_lines(archive: Archive, panel: PublishedPanel) -> list[tuple[str, list[ArchivedRun]]]:
    """Return the names and runs of the lines of Figure 3 without a verdict: other clouds, and the mean of all runs."""
    others = archive.runs(OTHER_CLOUDS) if panel.figure == "fig3" else []
    if not others:
        return []
    runs = [*panel_runs(archive, panel), *others]
    return [*((f"seed {run['seed']}", [run]) for run in others), (f"mean of {len(runs)}", runs)]


def curves(archive: Archive) -> list[Path]:
    """Write curves.md and the file with its sources; return their paths."""
    rows = [["panel", "part", "estimate", "seed", "points", "largest distance", "outside", "verdict"]]
    verdicts = {}
    for panel in PANELS:
        for estimate in ESTIMATE_COLOURS:
            judged = panel_lines(archive, panel)
            for seeds, runs in judged + other_lines(archive, panel):
                distance = curve_distance(runs, panel, estimate)
                if distance is None:
                    continue
                agrees = abs(distance.largest) <= panel.allowance
                words = "agrees" if agrees else f"differs by {100 * distance.largest:+.1f} %"
                if (seeds, runs) in judged:
                    verdicts[f"the {estimate} curve of {panel.title} ({seeds})"] = words
                else:
                    words = ""
                shown = (f"{100 * distance.largest:+.1f} % at {distance.step}", f"{100 * distance.outside:.1f} %")
                counts = (seeds.removeprefix("seed "), str(distance.points))
                rows.append([panel.title, panel.part, estimate, *counts, *shown, words])
    path = archive.root / "curves.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    page = PAGE.format(
        conclusion=conclusion(verdicts, "curves"),
        curves=markdown_table(rows),
        allowances=", ".join(f"{100 * panel.allowance:g} % ({panel.title})" for panel in PANELS[:-1])
        + f" or {100 * PANELS[-1].allowance:g} % ({PANELS[-1].title})",
        figure3=figure3_text(archive),
        sine=sine_text(archive),
        switch=switch_text(archive.runs(SWITCHED)),
        sources=sources_note("curves"),
    )
    write_atomically(path, page.encode())
    runs = [run for panel in PANELS for run in panel_runs(archive, panel)]
    others = archive.runs(OTHER_CLOUDS, ONE_CLOUD, "fig4", "fig5", SWITCHED)
    return [path, write_sources(archive.root, "curves", [*runs, *others])]


def figure3_text(archive: Archive) -> str:
    """Return the text on Figure 3, an item of a Markdown list, wrapped to the width of the page."""
    text = (
        "- *Figure 3*: all weights of our runs are 1/N, so both estimates are the same curve, while the two published "
        f"curves differ by up to {100 * between_estimates('fig3'):.1f} %. {clouds_text(archive)}"
    ).replace(" %", "\xa0%")  # on the site, a line that starts with % is a comment
    return textwrap.fill(text.rstrip(), 119, subsequent_indent="  ", break_on_hyphens=False).replace("\xa0", " ")


def clouds_text(archive: Archive) -> str:
    """Return the text on the runs of Figure 3 from one initial cloud and from several, or "" if runs are missing."""
    first, others, same = (archive.runs(name) for name in (*LINES["fig3"], OTHER_CLOUDS, ONE_CLOUD))
    panel = PANELS[-1]
    training = curve_distance(first, replace(panel, part="train"), "unweighted") if first else None
    if not others or len(same) < 2 or training is None:
        return ""
    column, end = panel.column("unweighted"), min(run.last_step for run in others)
    curve = published_curve("fig3", "unweighted").query("k <= @end")
    below = 0
    for run in (*first, *others):
        logged = run.metrics[run.metrics["step"] > 0]
        ours = np.interp(np.log(curve["k"]), np.log(logged["step"]), np.log(logged[column]))
        below += bool((ours - np.log(curve["risk"])).mean() < 0)
    deviations = 100 * spread([*first, *others], column)[:, 0]
    return CLOUDS.format(
        training=f"{100 * training.largest:.0f}",
        same=len(same),
        last=min(run.last_step for run in same),
        apart=f"{100 * spread(same, column)[-1, 1]:.2f}",
        clouds=len(others) + 1,
        deviations=f"{deviations.min():.1f} to {deviations.max():.1f}",
        end=end,
        below=below,
    )


def spread(runs: Sequence[ArchivedRun], column: str) -> np.ndarray:
    """Return the standard deviation and the range, over runs, of the log of a metric, with one row per common step."""
    series = [run.metrics.set_index("step")[column].drop(0, errors="ignore") for run in runs]
    logs = np.log(pd.concat(series, axis=1, join="inner"))
    return np.column_stack([logs.std(axis=1, ddof=1), logs.max(axis=1) - logs.min(axis=1)])


def between_estimates(figure: str) -> float:
    """Return the largest distance between the two published curves of a figure, at the points of the shorter curve."""
    short, long = sorted((published_curve(figure, estimate) for estimate in ESTIMATE_COLOURS), key=len)
    other = np.interp(np.log(short["k"]), np.log(long["k"]), np.log(long["risk"]))
    return float(np.abs(np.log(short["risk"]) - other).max())


def sine_text(archive: Archive) -> str:
    """Return the text on Figures 4 and 5, for which no points are published."""
    lines = []
    for run in archive.runs("fig4"):
        first, last = (run.metrics["test_risk_weighted"].iloc[i] for i in (0, -1))
        lines.append(
            f"- *Figure 4*: no verdict, because no points are published. Our risk falls from {first:.3f} to {last:.3f} "
            f"(mean of\n  (sin x − f)², weighted) in {run.last_step} recursions. table5.md gives the mean of the last "
            f"value over seeds, for\n  N = {run['N']}."
        )
    x = np.linspace(-np.pi, np.pi, 200)
    functions = [run.model(max(run.clouds)).values(x[:, None])["weighted"] for run in archive.runs("fig5")]
    if functions:
        correlations = [float(np.corrcoef(f, np.sin(x))[0, 1]) for f in functions]
        slopes = summarise(float(f @ np.sin(x) / (np.sin(x) @ np.sin(x))) for f in functions)
        lines.append(
            f"- *Figure 5*: no verdict, because no points are published. The functions of our {len(functions)} runs "
            f"have a correlation of\n  {min(correlations):.3f} to {max(correlations):.3f} with sin x and "
            f"{slopes.text(2)} of its amplitude: they have the shape of the sine, but not yet its size."
        )
    return "\n".join(lines)


def switch_text(runs: Sequence[ArchivedRun]) -> str:
    """Return the text on the risk that the published code computes after it has switched to float64."""
    rows = [["k", "risk_paper, unweighted", "as the published code computes it in float64"]]
    values: list[float] = []
    for run in runs:
        for step in sorted(run.clouds):
            f, labels = test_outputs(run, step)
            values = [risk_paper(snapped(logistic(f)), labels), misread_risk(f, labels)]
            rows.append([str(step), *(f"{value:.5f}" for value in values)])
    if not values:
        return "No run with clouds near the last recursion is in the archive.\n\n"
    ours, read, first, second = (f"{x:.4f}" for x in (*values, published.TABLE3[0.1][0], published.TABLE3[0.5][0]))
    return markdown_table(rows) + "\n" + SWITCH.format(ours=ours, read=read, first=first, second=second)


def test_outputs(run: ArchivedRun, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the unweighted output f of the cloud at ``step`` and the labels (0 or 1) on the test rows of WDBC."""
    # A run of an earlier version lacks the settings that were added later, which are null for this dataset.
    absent = dict.fromkeys(field.name for field in fields(DatasetConfig))
    table = registry.load(DatasetConfig(**(absent | run["dataset"])))
    first = int(np.ceil(run["dataset"]["train_fraction"] * len(table.X)))
    f: np.ndarray = run.model(step).values(table.X[first:])["unweighted"].reshape(-1)
    return f, table.target[first:].astype(float)


def logistic(f: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * (1 + np.tanh(f / 2)))


def snapped(g: np.ndarray) -> np.ndarray:
    """Return g, with values within SNAP of 0 or 1 replaced by 0 or 1."""
    return np.where(g > 1 - SNAP, 1.0, np.where(g < SNAP, 0.0, g))


def risk_paper(g: np.ndarray, labels: np.ndarray) -> float:
    return float(0.5 / len(g) * np.linalg.norm(labels - g))


def misread_risk(f: np.ndarray, labels: np.ndarray) -> float:
    """Return the risk that the published code computes in float64, where its rounding routine still expects float32.

    The routine therefore reads the first half of the n 8-byte numbers as n 4-byte numbers. The upper half of a number
    just below 1 is 1.87 in float32, so this half is replaced by the bytes of 1, and the number becomes 2^-7.
    """
    g = logistic(f).astype("<f8")
    halves = g.view("<f4")[: len(g)]
    halves[halves > 1 - SNAP] = 1.0
    halves[halves < SNAP] = 0.0
    return risk_paper(g, labels)


SWITCH = """\
- The published code computes in float32 and checks every 5000 recursions whether the risk is NaN; if so, it continues
  in float64. The routine that replaces logistic(f) within 1e-3 of 0 or 1 remains compiled for float32. It then changes
  only the first 85 of the 170 test rows and sets every value near 1 among them to 2^-7. Rows of class 1 that were
  classified correctly become errors, and the curve jumps.
- The jumps are therefore a consequence of a non-finite value. With this fault, the published code computes {read} for
  our run, while Table 3 has {first} for ε = 0.1 and {second} for ε = 0.5. Without it, the risk of our run is {ours},
  close to the other three rows. The runs of these two rows also took 2 to 7 times as long as the others.
"""

CLOUDS = """\
The published curves are test risks: on the training rows, the distance of seed 0 would be {training} %. The paper's
line is the mean of 30 runs from one initial cloud. Our {same} runs from one cloud, with other noise, differ by at most
{apart} % at k = {last}, so the line shows one cloud, and it is compared with one cloud: seed 0, which was the first to
be compared and is the only long run. The rows without a verdict are runs from other clouds, which end at k = {end} and
were started after the first comparison, and the mean of all {clouds} clouds (of seed 0 alone beyond k = {end}). The
standard deviation between these clouds is {deviations} %. On average up to k = {end}, {below} of the {clouds} clouds
are below the published unweighted line, whose points are accurate to about 1 %."""
PAGE = """\
# The published curves, point by point

{conclusion}

## Figures 2 and 3

{curves}
- *Largest distance*: the log(ours / the paper's) of largest magnitude over the published points, in per cent, and its
  k. *Outside*: the distance from the nearer edge of the drawn line. The points are accurate to about 1 %.
- Figure 2 is compared from k = 2e5 on, because the recursion at which the curve leaves its plateau varies by about
  50 % between seeds. Figure 3 is compared at every k. A curve agrees if its largest distance is at most
  {allowances}.
- *Figure 2, left* shows the training rows: the paper's text says test data, but its curve starts at 0.0125 =
  0.25 / √399 and has its plateau at 0.0165 = 0.5 √173 / 399, where 399 is the number of training rows and 173 of these
  belong to class 1. On the test rows, which our right panel shows, the plateau is 0.5 √39 / 170 = 0.0184.
{figure3}

## Figures 4 and 5

{sine}

## The jumps of Table 3

{switch}- {sources}
"""
