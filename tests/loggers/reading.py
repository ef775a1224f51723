"""Metrics as the libraries of TensorBoard and MLflow read them, for comparison with metrics.csv."""

import csv
import math
from pathlib import Path

import numpy as np

Figures = dict[tuple[str, int], list[float]]
"""Metric and step -> every value found for them: one, where nothing was logged twice."""


def read_csv(folder: Path) -> Figures:
    figures: Figures = {}
    with (folder / "metrics.csv").open() as file:
        for row in csv.DictReader(file):
            step = int(row.pop("step"))
            for name, text in row.items():
                if text:
                    figures[name, step] = [
                        {"True": 1.0, "False": 0.0}[text] if text in ("True", "False") else float(text)
                    ]
    return figures


def read_events(folder: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(
        str(folder / "tensorboard"), size_guidance={"scalars": 0, "images": 0, "tensors": 0}
    ).Reload()


def read_tensorboard(folder: Path) -> Figures:
    found, figures = read_events(folder), {}
    for name in found.Tags()["scalars"]:
        for event in found.Scalars(name):
            figures.setdefault((name, event.step), []).append(event.value)
    return figures


def client(store: Path):
    from mlflow import MlflowClient

    return MlflowClient(store.as_uri())


def read_mlflow(store: Path, run_id: str) -> Figures:
    figures: Figures = {}
    for name in client(store).get_run(run_id).data.metrics:
        for metric in client(store).get_metric_history(run_id, name):
            figures.setdefault((name, metric.step), []).append(metric.value)
    return figures


def assert_same(found: Figures, expected: Figures, dtype=np.float64) -> None:
    """Check that the same metrics exist at the same steps, each once, with the same bits in ``dtype``."""
    assert found.keys() == expected.keys()
    for key, (value,) in expected.items():
        (other,) = found[key]
        assert dtype(other) == dtype(value) or (math.isnan(other) and math.isnan(value)), key
