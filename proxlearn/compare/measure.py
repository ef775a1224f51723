"""One cell done: load, scale by the training part, fit with the clock running, score on the test part."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from proxlearn.baselines.method import Request
from proxlearn.baselines.registry import load_fit
from proxlearn.compare.cells import DONE, FAILED, Cell, CellRecord
from proxlearn.compare.spec import SCALINGS
from proxlearn.compare.splits import split_of
from proxlearn.core.compile_time import COMPILE_TIME
from proxlearn.core.scores import accuracy_share, apply_probability_floor, probability_scores
from proxlearn.core.thread_limit import usable_threads
from proxlearn.data import registry
from proxlearn.errors import ProxlearnError, RunError

AGAIN = "correct it, and give the same command again"


def run_cell(cell: Cell, folder: Path, threads: int) -> int:
    """What a process of its own does: whatever comes of the cell is in its file."""
    # Told to stop, it goes in good order: a process that is cut off leaves the system's semaphores behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    print(f"{cell.title} ...", flush=True)
    try:
        record = measure(cell, folder, threads)
        cell.write(folder, record)
    except Exception as error:
        if not isinstance(error, ProxlearnError):
            traceback.print_exc()
        words = str(error) if isinstance(error, ProxlearnError) else f"{type(error).__name__}: {error}"
        record = CellRecord(FAILED, {}, " ".join(words.split())[:300])
        cell.write(folder, record)
    print(f"{cell.title}: {record.error or record.figures}", flush=True)
    return int(record.state != DONE)


def measure(cell: Cell, folder: Path, threads: int) -> CellRecord:
    """The cell's figures; raises whatever keeps it from having any."""
    table = registry.load(cell.dataset)
    split = split_of(folder, table, cell.dataset, cell.split)
    if (table.sha256, split.sha256) != (cell.data_sha256, cell.split_sha256):
        raise RunError("the data or its split have changed since the command began", AGAIN)
    scaler = SCALINGS[cell.scaling](table.X[split.train])
    y = 2.0 * table.target - 1.0
    fit = load_fit(cell.method)
    request = Request(cell.dataset.name, cell.seed, cell.preset, threads, cell.temperature, progress=_say)
    threads = usable_threads(threads)
    torch.set_num_threads(threads)
    with threadpool_limits(threads):
        X = scaler(table.X[split.train])
        # Compilation is paid for once a machine, and is nobody's training time: a sampler's long fit is tried before;
        # which passes a network needs its fit alone can tell, and a fit that had to wait for one is made again.
        if cell.method.block == "sampler":
            fit(X, y[split.train], replace(request, trial=True))
        while True:
            compiled, start = COMPILE_TIME.passes, time.monotonic()
            fitted = fit(X, y[split.train], request)
            seconds = time.monotonic() - start
            if cell.method.block != "network" or COMPILE_TIME.passes == compiled:
                break
        probability = fitted.probability(scaler(table.X[split.test]))
    figures = {**scores(probability, y[split.test] > 0), "seconds": seconds}
    return CellRecord(DONE, figures, None, fitted.notes, threads)


def scores(probability: np.ndarray, positive: np.ndarray) -> dict[str, float]:
    """How good the class +1's probabilities are, by the definitions of core/scores.py."""
    p = torch.from_numpy(np.asarray(probability, dtype=np.float64))
    labels = torch.from_numpy(positive).long()
    if p.shape != labels.shape or not bool(((p >= 0) & (p <= 1)).all()):
        raise RunError("the method's answers are no probabilities", "report it, or try other settings")
    both = apply_probability_floor(torch.stack((1 - p, p)))
    found = probability_scores(both, labels, "test")
    return {
        "accuracy": float(accuracy_share((p > 0.5) == (labels > 0))),
        "log_likelihood": -float(found["log_loss_test"]),
        "calibration_error": float(found["calibration_error_test"]),
    }


def _say(text: str) -> None:
    print(f"  {text}", flush=True)
