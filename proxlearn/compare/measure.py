"""Compute the result of one cell: scale the data, time the fit on the training part, and score the test part."""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from proxlearn.baselines.registry import Request, load_fit
from proxlearn.compare.cells import Cell, CellResult
from proxlearn.compare.spec import SCALINGS, SPLITS
from proxlearn.compare.splits import stored_split
from proxlearn.core.compile_time import COMPILE_TIME
from proxlearn.core.metrics import accuracy_share, apply_probability_floor, probability_scores
from proxlearn.data import registry
from proxlearn.errors import RunError
from proxlearn.jobs.result_cache import ResultCache
from proxlearn.portability import usable_threads

RETRY = "check the data, then repeat the same command"


def run_cell(cell: Cell, output: Path) -> dict[str, Any]:
    """Compute and return the result of a cell; this function runs as a job in a separate process."""
    # On a request to stop, the process exits cleanly, because a killed process would leave system semaphores behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    print(f"{cell.title} ...", flush=True)
    result = measure(cell, output, torch.get_num_threads())
    print(f"{cell.title}: {result.figures}", flush=True)
    return result.values()


def measure(cell: Cell, output: Path, threads: int) -> CellResult:
    """Fit the method of a cell to the training part, score it on the test part, and return the result."""
    table = registry.load(cell.dataset)
    split = stored_split(ResultCache(output / SPLITS), table, cell.dataset, cell.split)
    if split is None or (table.sha256, split.sha256) != (cell.data_sha256, cell.split_sha256):
        raise RunError("the data or the stored split changed after the command started", RETRY)
    scaler = SCALINGS[cell.scaling](table.X[split.train])
    y = 2.0 * table.target - 1.0
    fit = load_fit(cell.method)
    request = Request(cell.dataset.name, cell.seed, cell.preset, threads, cell.temperature, progress=_print_progress)
    threads = usable_threads(threads)
    torch.set_num_threads(threads)
    with threadpool_limits(threads):
        X = scaler(table.X[split.train])
        # Compilation happens once per machine and is not training time. A trial precedes the long fit of a sampler.
        # The passes that a network needs are known only after its fit, so a fit that compiled a pass is repeated.
        if cell.method.block == "sampler":
            fit(X, y[split.train], replace(request, trial=True))
        while True:
            compiled, start = COMPILE_TIME.passes, time.monotonic()
            fitted = fit(X, y[split.train], request)
            seconds = time.monotonic() - start
            if cell.method.block != "network" or COMPILE_TIME.passes == compiled:
                break
        probability = fitted.probability(scaler(table.X[split.test]))
    return CellResult({**scores(probability, y[split.test] > 0), "seconds": seconds}, fitted.notes, threads)


def scores(probability: np.ndarray, positive: np.ndarray) -> dict[str, float]:
    """Return the accuracy, log-likelihood and calibration error of predicted probabilities of the class +1."""
    p = torch.from_numpy(np.asarray(probability, dtype=np.float64))
    labels = torch.from_numpy(positive).long()
    if p.shape != labels.shape or not bool(((p >= 0) & (p <= 1)).all()):
        raise RunError(
            "the predictions of the method are not probabilities",
            "choose other methods with --method, or report this as a bug",
        )
    both = apply_probability_floor(torch.stack((1 - p, p)))
    test_scores = probability_scores(both, labels, "test")
    return {
        "accuracy": float(accuracy_share((p > 0.5) == (labels > 0))),
        "log_likelihood": -float(test_scores["log_loss_test"]),
        "calibration_error": float(test_scores["calibration_error_test"]),
    }


def _print_progress(text: str) -> None:
    print(f"  {text}", flush=True)
