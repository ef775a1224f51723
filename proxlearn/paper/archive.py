"""The archive of the runs of the paper's experiments; the tables and figures are built from the archive.

archive_files.py reads and writes the files of the archive; archive_packing.py copies finished runs into the archive.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from proxlearn.core.cloud import PointCloud
from proxlearn.paper.archive_files import RUNS, PackedRun, natural_order, read_packed_runs, write_packed_runs
from proxlearn.paper.run_plan import PLAN, RUNS_FOLDER, plan_entry
from proxlearn.predict.model import Model, build_model
from proxlearn.run.lock import FolderInUse, FolderLock
from proxlearn.views.style import LARGEST_DRAWN

WAIT_SECONDS = 60.0
"""Maximum number of seconds to wait for another process that is writing to the archive."""


@dataclass(frozen=True)
class ArchivedRun:
    """A run in the archive, with the data that the tables and figures use."""

    packed: PackedRun

    @property
    def name(self) -> str:
        """The name of the run: its plan entry and the swept values, such as ``table2/beta0.05-seed0``."""
        return self.packed.name

    @property
    def status(self) -> Mapping[str, Any]:
        return self.packed.status

    def __getitem__(self, key: str) -> Any:
        """Return the value of a setting of the run."""
        return self.packed.config[key]

    @cached_property
    def metrics(self) -> pd.DataFrame:
        table = pd.read_csv(io.StringIO(self.packed.metrics.text()), index_col=False)
        numbers = table.select_dtypes("number").columns
        return table.assign(**{name: table[name].where(table[name].abs() <= LARGEST_DRAWN) for name in numbers})

    @cached_property
    def confusion(self) -> pd.DataFrame | None:
        """The confusion counts with the columns of confusion.csv, or None if no counts of the run are archived."""
        if self.packed.confusion is None:
            return None
        cells = [
            (*key.split("/"), actual, predicted, count)
            for key, matrix in self.packed.confusion.items()
            for actual, counts in enumerate(matrix)
            for predicted, count in enumerate(counts)
        ]
        return pd.DataFrame(cells, columns=["part", "estimate", "actual", "predicted", "count"])

    @cached_property
    def points(self) -> pd.DataFrame | None:
        points = self.packed.points
        return None if points is None else pd.read_csv(io.StringIO(points.text()), index_col=False)

    @cached_property
    def free_energy(self) -> pd.DataFrame | None:
        """The free energy of the stored clouds (see ``free_energy.COLUMNS``), or None if it is not archived."""
        table = self.packed.free_energy
        return None if table is None else pd.read_csv(io.StringIO(table.text()), index_col=False)

    @property
    def clouds(self) -> Mapping[int, PointCloud]:
        """The archived clouds of the run by step."""
        return self.packed.clouds

    @property
    def last_step(self) -> int:
        """The last logged step, at which the final metrics of the run were computed."""
        return int(self.metrics["step"].iloc[-1])

    @property
    def seconds(self) -> float:
        return float(self.status["seconds"])

    def final(self, column: str) -> float:
        """Return the last logged value of a metric."""
        return float(self.metrics[column].iloc[-1])

    def model(self, step: int) -> Model:
        """Return the model with the archived cloud of ``step``, in float64."""
        assert self.packed.model is not None, "a run with archived clouds has a model description"
        return build_model(dict(self.packed.model), self.clouds[step].to("cpu", torch.float64))


class Archive:
    """The archive in the folder ``root``, which need not exist before the first run is added."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._runs: dict[str, dict[str, ArchivedRun]] = {}
        """The runs of the experiments that have been read from files, by experiment and by name."""

    def runs(self, *entries: str, where: Callable[[ArchivedRun], bool] = lambda run: True) -> list[ArchivedRun]:
        """Return the archived runs of the given plan entries for which ``where`` is true.

        The runs are in the order of ``entries``; the runs of an entry are sorted by name.
        """
        runs = []
        for entry in entries:
            experiment = self._experiment(plan_entry(entry).experiment)
            names = [name for name in experiment if name.partition("/")[0] == entry]
            runs += [experiment[name] for name in sorted(names, key=natural_order)]
        return [run for run in runs if where(run)]

    def find(self, experiment: str, name: str) -> ArchivedRun | None:
        return self._experiment(experiment).get(name)

    def add(self, experiment: str, runs: Iterable[PackedRun]) -> None:
        """Add runs of one experiment to the archive; a run replaces an archived run of the same name."""
        self.root.mkdir(parents=True, exist_ok=True)
        with _waiting_lock(self.root):
            # Another process may have added runs since this process read them.
            stored = read_packed_runs(self.root / experiment)
            stored |= {run.name: run for run in runs}
            write_packed_runs(self.root / experiment, stored.values())
        self._runs.pop(experiment, None)

    def is_foreign(self) -> bool:
        """Return whether the folder contains files, but neither packed runs nor the subfolder of the run folders."""
        if not self.root.is_dir() or not any(self.root.iterdir()):
            return False
        experiments = {entry.experiment for entry in PLAN}
        own_paths = [self.root / RUNS_FOLDER, *(self.root / name / RUNS for name in experiments)]
        return not any(path.exists() for path in own_paths)

    def _experiment(self, experiment: str) -> dict[str, ArchivedRun]:
        if experiment not in self._runs:
            packed = read_packed_runs(self.root / experiment)
            self._runs[experiment] = {name: ArchivedRun(run) for name, run in packed.items()}
        return self._runs[experiment]


@contextlib.contextmanager
def _waiting_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder inside the ``with`` block.

    If another process holds the lock, wait at most WAIT_SECONDS for its release; then raise FolderInUse.
    """
    end = time.monotonic() + WAIT_SECONDS
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(FolderLock(folder))
                break
            except FolderInUse:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        yield
