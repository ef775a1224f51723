"""All views of a run folder, and the words a run ends with."""

from __future__ import annotations

from pathlib import Path

from proxlearn.views.run import confusion, curves, images, learned_function, regions, tables
from proxlearn.views.run.run_data import read_run_data
from proxlearn.views.style import house_style


def render_run(folder: Path) -> list[Path]:
    """Draw everything that this run's files allow; returns the files written."""
    run = read_run_data(folder)
    model = run.model
    paths = tables.write_accuracy(run)
    with house_style():
        paths += curves.draw_risk(run) + curves.draw_health(run)
        if run.confusion is not None:
            paths += confusion.draw_confusion(run)
        if len(model["columns"]) == 1 and model["task"] != "multiclass":
            paths += learned_function.draw_function(run)
        if len(model["columns"]) == 2 and model["classes"]:
            paths += regions.draw_regions(run)
        if model["image"] and model["neuron"].startswith("softmax"):
            paths += images.draw_images(run)
    return paths


def summary(folder: Path) -> str:
    """The end of a run on the terminal: its table, what to know about it, where things are."""
    run = read_run_data(folder)
    status = run.status
    lines = [f"\n{run.title}: {status['state']} at step {status['step']} after {status['seconds']:.1f} s\n"]
    if run.accuracy is not None:
        lines.append(tables.markdown(run.accuracy))
        lines += [tables.sentence(run.figures_note)] if run.figures_note else []
    lines += tables.remarks(run)
    shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    lines.append(f"\nRisk curve: {shown / 'risk.png'}; the rest of the results beside it.")
    return "\n".join(lines) + "\n"
