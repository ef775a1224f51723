"""Methods that exist for the tests alone: cells find them by module and function, in whatever process they run."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path

import numpy as np

from proxlearn.baselines.method import FittedMethod, Request


def first(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    return _told("first", X, y, request)


def second(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    return _told("second", X, y, request)


def _told(name: str, X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    """Leaves a line in the folder that the command was given in, for all but trials."""
    rows = hashlib.sha256(X.tobytes() + y.tobytes()).hexdigest()
    if not request.trial:
        with Path("calls.txt").open("a") as file:
            file.write(f"{name} {request.dataset} {request.seed} {rows}\n")
    return FittedMethod(lambda rows: np.full(len(rows), 0.25))


def broken(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    raise ValueError("two lines\nof words")


def killed(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def improbable(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    return FittedMethod(lambda rows: np.full(len(rows), np.nan))
