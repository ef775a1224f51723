"""Runs of a second or less, and the comparison of two runs."""

import json
import multiprocessing
import os
from dataclasses import replace
from functools import cache
from pathlib import Path

from proxlearn.config.compose import compose, parse
from proxlearn.config.schema import TrainConfig
from proxlearn.run.checkpoint_file import list_checkpoints
from proxlearn.run.config_validation import validate_config
from proxlearn.run.observed_status import Outcome
from proxlearn.run.train import train

FULL = os.environ.get("PROXLEARN_FAULTS") == "full"
"""`make test-faults` draws all that the issue asks for; `make test` a part of it."""

# Processes to be killed: forked from one that has imported everything, because torch alone takes seconds.
FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(
    [
        "proxlearn.commands.train",
        "proxlearn.run.train",
        "proxlearn.views.run.run_views",
        "proxlearn.core.fused.sharded_step",
    ]
)


@cache
def composed(*overrides: str) -> TrainConfig:
    return validate_config(compose(parse(list(overrides))))


def small(*overrides: str, **changes) -> TrainConfig:
    """Return the config of a sine run with eight particles; further changes are fields of the schema."""
    base = composed("dataset=sine", "N=8", "dataset.points=10", "threads=1", "checkpoint_every=5", *overrides)
    return replace(base, **changes)


def run(config: TrainConfig, folder: Path) -> Outcome:
    return train(config, folder, "a test")


def status(folder: Path) -> dict:
    return json.loads((folder / "status.json").read_text())


def assert_same_run(folder: Path, reference: Path) -> None:
    """Compare two runs bit for bit: every checkpoint of the reference (cloud, generator, precision), row and metric."""
    assert (folder / "metrics.csv").read_bytes() == (reference / "metrics.csv").read_bytes()
    checkpoints = {step: path.read_bytes() for step, path in list_checkpoints(folder / "checkpoints")}
    for step, path in list_checkpoints(reference / "checkpoints"):
        assert checkpoints[step] == path.read_bytes(), f"checkpoint {step} differs"
    assert (folder / "accuracy.csv").read_bytes() == (reference / "accuracy.csv").read_bytes()
    for key in ("state", "step", "switched_at", "unmet", "dtype"):
        assert status(folder)[key] == status(reference)[key], key
    leftovers = [path for path in folder.rglob(".*") if path.is_file()]
    assert not leftovers, leftovers
