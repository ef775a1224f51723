"""The grid: which cells there are, and how those that are missing are done, several processes side by side.

Each cell has a process of its own, so that one that fails, or is killed for its memory, leaves the others alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

from tqdm import tqdm

from proxlearn.compare.cells import DONE, FAILED, Cell, CellRecord
from proxlearn.compare.spec import AUTHORS, AUTHORS_SEEDS, LOG, ComparisonSpec, Name, scaling_of
from proxlearn.compare.splits import split_of
from proxlearn.config.schema import DatasetConfig
from proxlearn.data import registry
from proxlearn.jobs.subprocess_job import run_in_subprocess

PRELOAD = (
    "proxlearn.compare.measure",
    "proxlearn.baselines.networks",
    "proxlearn.core.fused.fused_step",
    "sklearn.calibration",
    "sklearn.ensemble",
    "sklearn.linear_model",
    "sklearn.svm",
)
"""So that a process starts at once, and no import is taken for training time."""


def cells_of(asked: ComparisonSpec, folder: Path) -> list[Cell]:
    """Split by split, so that whatever is there when somebody stops it is there for all methods."""
    tables = {config.name: registry.load(config) for config in asked.datasets}
    made = []
    for config, name in dataset_splits(asked):
        table = tables[config.name]
        split = split_of(folder, table, config, name)
        for method in asked.methods:
            if method.only and config.name not in method.only:
                continue
            made.append(
                Cell(
                    method,
                    config,
                    table.sha256,
                    name,
                    split.sha256,
                    len(split.test) / len(split.train),
                    scaling_of(asked.protocol, method, config.name),
                    asked.preset,
                    asked.temperature,
                )
            )
    return made


def dataset_splits(asked: ComparisonSpec) -> Iterator[tuple[DatasetConfig, Name]]:
    """Every dataset with every one of its splits."""
    for number in range(max((asked.splits, *asked.exceptions.values()))):
        for config in asked.datasets:
            if number < asked.exceptions.get(config.name, asked.splits):
                yield config, number
    for config in asked.datasets if asked.authors else ():
        if config.name in AUTHORS_SEEDS:
            yield config, AUTHORS


def is_finished(cell: Cell, folder: Path) -> bool:
    record = cell.read(folder)
    return record is not None and record.state == DONE


def run_cells(cells: list[Cell], folder: Path, jobs: int, threads: int) -> None:
    """Do the cells, ``jobs`` at a time; how each one ended is in its file. Ctrl-C ends those at work."""
    stopped = threading.Event()
    with ThreadPoolExecutor(jobs) as pool, tqdm(total=len(cells), desc="compare", unit="cell") as bar:
        waiting: dict[Future[None], Cell] = {
            pool.submit(_supervise, cell, folder, threads, stopped): cell for cell in cells
        }
        try:
            for done in as_completed(waiting):
                done.result()
                bar.set_postfix_str(waiting[done].title, refresh=False)
                bar.update()
        except BaseException:
            stopped.set()
            pool.shutdown(cancel_futures=True)
            raise


def _supervise(cell: Cell, folder: Path, threads: int, stopped: threading.Event) -> None:
    """Have a cell done, and say in its file what it could not say itself."""
    from proxlearn.compare.measure import run_cell

    if stopped.is_set():
        return
    (folder / cell.path).unlink(missing_ok=True)
    code = run_in_subprocess(
        run_cell,
        (cell, folder, threads),
        preload=PRELOAD,
        log=folder / LOG,
        directory=Path.cwd(),
        stop=stopped.is_set,
    )
    if cell.read(folder) is None and not stopped.is_set():
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        cell.write(folder, CellRecord(FAILED, {}, f"its process {how}; see {LOG}"))
