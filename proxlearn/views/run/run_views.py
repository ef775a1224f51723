"""Write all tables and plots of a run folder, and compose the summary that a run prints at its end."""

from __future__ import annotations

from pathlib import Path

from proxlearn.files.safe_read import display_path
from proxlearn.views.run import accuracy_page, curves, model_plots
from proxlearn.views.run.run_data import RunData, read_run_data
from proxlearn.views.style import house_style
from proxlearn.views.tables import markdown


def render_run(folder: Path) -> list[Path]:
    """Write all tables and plots for which the run folder has the necessary files; return their paths."""
    run = read_run_data(folder)
    paths = accuracy_page.write_accuracy(run)
    with house_style():
        paths += curves.draw_risk(run) + curves.draw_health(run)
        if run.confusion is not None:
            paths += model_plots.draw_confusion(run)
        if has_learned_function(run):
            paths += model_plots.draw_function(run)
        if has_regions(run):
            paths += model_plots.draw_regions(run)
        if run.model["image"] and run.model["neuron"].startswith("softmax"):
            paths += model_plots.draw_images(run)
    return paths


def has_learned_function(run: RunData) -> bool:
    """Return whether f is a single function of one feature, which can be drawn as a curve."""
    has_several_targets = isinstance(run.model.get("target"), list)
    return len(run.model["columns"]) == 1 and run.model["task"] != "multiclass" and not has_several_targets


def has_regions(run: RunData) -> bool:
    """Return whether the data have classes and two features, so that decision regions can be drawn."""
    return len(run.model["columns"]) == 2 and bool(run.model["classes"])


def summary(folder: Path) -> str:
    """Return the text that a run prints at its end: its results, remarks, and the path of the risk curve."""
    run = read_run_data(folder)
    status = run.status
    lines = [f"\n{run.title}: {status['state']} at step {status['step']} after {status['seconds']:.1f} s\n"]
    if run.accuracy is not None:
        lines.append(markdown(run.accuracy))
        lines += [accuracy_page.as_sentence(run.results_note)] if run.results_note else []
    lines += accuracy_page.remarks(run)
    lines.append(f"\nRisk curve: {display_path(folder / 'risk.png')}; the other results are in the same folder.")
    return "\n".join(lines) + "\n"
