"""Metrics as the libraries of TensorBoard and MLflow read them, for comparison with metrics.csv."""

import csv
import json
import math
import os
from pathlib import Path

import numpy as np

from proxlearn.loggers.logger import LOGGER_KINDS

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
    for name, value in LOGGER_KINDS["mlflow"].environment.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    return MlflowClient(store.as_uri())


def read_mlflow(store: Path, run_id: str) -> Figures:
    figures: Figures = {}
    for name in client(store).get_run(run_id).data.metrics:
        for metric in client(store).get_metric_history(run_id, name):
            figures.setdefault((name, metric.step), []).append(metric.value)
    return figures


def read_wandb(store: Path, run_id: str) -> Figures:
    """What the offline runs of one id hold, read with wandb's own format."""
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    figures: Figures = {}
    for path in sorted((store / "wandb").glob(f"offline-run-*-{run_id}/*.wandb")):
        data = DataStore()
        data.open_for_scan(str(path))
        records = [Record.FromString(block) for block in iter(data.scan_data, None)]
        data.close()
        for record in records:
            for item in record.history.item if record.WhichOneof("record_type") == "history" else ():
                name = item.key or "/".join(item.nested_key)
                if not name.startswith(("_", "plots")):
                    figures.setdefault((name, record.history.step.num), []).append(json.loads(item.value_json))
    return figures


def assert_same(found: Figures, expected: Figures, dtype=np.float64) -> None:
    """Check that the same metrics exist at the same steps, each once, with the same bits in ``dtype``."""
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    for key, (value,) in expected.items():
        (other,) = found[key]
        assert dtype(other) == dtype(value) or (math.isnan(other) and math.isnan(value)), key
