"""Write the table of trials, the importance of the parameters, and the plot of a search."""

from __future__ import annotations

import contextlib
import shlex
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from proxlearn.files.atomic import write_atomically
from proxlearn.files.safe_read import display_path
from proxlearn.views.style import GREY, WEIGHTED, escape_mathtext, figure, house_style, plain_ticks, save
from proxlearn.views.tables import markdown

SHOWN_TRIALS = 10
SHOWN_FAILURES = 3
FEWEST_TRIALS = 4
"""Minimum number of complete trials from which the importance of the parameters is estimated."""
MOST_PANELS = 3


class SearchedParameter(Protocol):
    """The attributes of a searched parameter that the views use."""

    @property
    def key(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def is_log(self) -> bool: ...


class Search(Protocol):
    """The attributes of a search that the views use."""

    @property
    def metric(self) -> str: ...

    @property
    def maximises(self) -> bool: ...

    @property
    def overrides(self) -> tuple[str, ...]: ...

    @property
    def space(self) -> Sequence[SearchedParameter]: ...


def trials_table(search: Search, study: Any) -> pd.DataFrame:
    """Return a table of the number, state, score, parameters and last step of each trial, with the best trial first."""
    rows = []
    for trial in study.get_trials(deepcopy=False):
        last = max(trial.intermediate_values, default=None)
        state = trial.state.name.lower()
        score = trial.value if state == "complete" else None
        values = {parameter.key: trial.params.get(parameter.key) for parameter in search.space}
        rows.append({"trial": trial.number, "state": state, search.metric: score, **values, "last step": last})
    columns = ["trial", "state", search.metric, *(parameter.key for parameter in search.space), "last step"]
    table = pd.DataFrame(rows, columns=columns).astype({search.metric: float})
    if table["last step"].isna().all():
        # Without pruning, no intermediate scores are stored.
        table = table.drop(columns="last step")
    return table.sort_values([search.metric, "trial"], ascending=[not search.maximises, True], ignore_index=True)


def importances(study: Any) -> dict[str, float]:
    """Return each parameter's share of the score's variance (fANOVA); the result is empty if it cannot be estimated."""
    import optuna

    if sum(trial.state.name == "COMPLETE" for trial in study.get_trials(deepcopy=False)) < FEWEST_TRIALS:
        return {}
    with warnings.catch_warnings(), contextlib.suppress(ValueError, RuntimeError):
        warnings.simplefilter("ignore")
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))
    return {}


def render_search(folder: Path, search: Search, study: Any) -> list[Path]:
    """Write trials.csv, search.md and, if a trial has a score, the plot; return the paths of the files."""
    table = trials_table(search, study)
    write_atomically(folder / "trials.csv", table.to_csv(index=False).encode())
    write_atomically(folder / "search.md", page(folder, search, study, table).encode())
    paths = [folder / "trials.csv", folder / "search.md"]
    if table[search.metric].notna().any():
        with house_style():
            paths += draw_search(folder, search, table, importances(study))
    return paths


def page(folder: Path, search: Search, study: Any, table: pd.DataFrame) -> str:
    """Return the text of search.md: a table of all trials, and the importance of each parameter."""
    return f"# Search by {search.metric}\n\n{markdown(table)}\n{_importance_table(importances(study))}"


def _importance_table(shares: dict[str, float]) -> str:
    if not shares:
        return "There are too few complete trials to estimate the importance of the parameters.\n"
    rows = pd.DataFrame({"parameter": list(shares), "importance": [round(share, 3) for share in shares.values()]})
    return f"Importance of the parameters (share of the score's variance, fANOVA):\n\n{markdown(rows)}"


def summary(folder: Path, search: Search, study: Any) -> str:
    """Return the text that a search prints at its end: the best trials, and the command that uses the best values."""
    table = trials_table(search, study)
    counts = table["state"].value_counts()
    states = ", ".join(f"{count} {name}" for name, count in counts.items())
    trials = "1 trial" if len(table) == 1 else f"{len(table)} trials"
    lines = [f"\n{trials} ({states}), the best first:\n", markdown(table.head(SHOWN_TRIALS))]
    failed = [trial for trial in study.get_trials(deepcopy=False) if "error" in trial.user_attrs]
    lines += [f"Trial {trial.number} failed: {trial.user_attrs['error']}" for trial in failed[:SHOWN_FAILURES]]
    if len(failed) > SHOWN_FAILURES:
        lines.append(f"{len(failed) - SHOWN_FAILURES} further trials failed.")
    lines.append(("\n" if failed else "") + _importance_table(importances(study)))
    if len(table) and table[search.metric].notna().iloc[0]:
        # The values are those of the trial to the last digit, so that the command repeats the trial's settings.
        chosen = [f"{p.key}={table[p.key].iloc[0]!s}" for p in search.space]
        replaced = {"validation_fraction", *(parameter.key for parameter in search.space)}
        fixed = [word for word in search.overrides if word.partition("=")[0].lstrip("+") not in replaced]
        command = shlex.join(["proxlearn", "train", *fixed, *chosen])
        lines.append(f"Train with the best values on all training rows: {command}")
    lines.append(f"Table, plot and runs: {display_path(folder)}")
    return "\n".join(lines) + "\n"


def draw_search(folder: Path, search: Search, table: pd.DataFrame, shares: dict[str, float]) -> list[Path]:
    """Draw search.png and search.pdf: the scores against the trial number and against the most important parameters."""
    drawn = sorted(search.space, key=lambda parameter: -shares.get(parameter.key, 0.0))[:MOST_PANELS]
    columns = 1 + len(drawn)
    fig, panels = figure(3.3 * columns + 0.6, 3.2, columns)
    done = table[table[search.metric].notna()].sort_values("trial")
    scores = done[search.metric].to_numpy()
    best = np.maximum.accumulate(scores) if search.maximises else np.minimum.accumulate(scores)
    panels[0].plot(done["trial"], scores, "o", color=GREY, markersize=3.5, label="trial")
    panels[0].step(done["trial"], best, where="post", color=WEIGHTED, label="best so far")
    panels[0].set(xlabel="trial", ylabel=search.metric.replace("_", " "))
    panels[0].legend()
    panels[0].xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    for axes, parameter in zip(panels[1:], drawn, strict=True):
        values = done[parameter.key]
        if parameter.kind == "choice":
            codes, names = pd.factorize(values.astype(str), sort=True)
            values = pd.Series(codes)
            axes.set_xticks(range(len(names)), [escape_mathtext(name) for name in names])
            axes.set_xlim(-0.5, len(names) - 0.5)
        elif parameter.kind == "int":
            axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        axes.plot(values.astype(float), scores, "o", color=GREY, markersize=3.5)
        place = int(np.argmax(scores) if search.maximises else np.argmin(scores))
        axes.plot(float(values.iloc[place]), scores[place], "o", color=WEIGHTED, markersize=6)
        share = f" (importance {shares[parameter.key]:.2f})" if parameter.key in shares else ""
        axes.set(xlabel=escape_mathtext(parameter.key) + share)
        if parameter.is_log:
            axes.set_xscale("log")
            plain_ticks(axes.xaxis, few=True)
    if (scores > 0).all() and scores.max() > 10 * scores.min():
        for axes in panels:
            axes.set_yscale("log")
            plain_ticks(axes.yaxis)
    return save(fig, folder, "search")
