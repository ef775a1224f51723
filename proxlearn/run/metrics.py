"""metrics.csv: one row a logged step. Between logged steps nothing is computed."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from proxlearn.core import energy, scores
from proxlearn.core.cloud import PointCloud
from proxlearn.core.problem import Problem, Samples
from proxlearn.core.recursion import Hyper, Info
from proxlearn.run.files import write_atomically

Row = dict[str, float | int | bool | None]


def measure(problem: Problem, test: Samples, cloud: PointCloud, info: Info | None, hyper: Hyper) -> Row:
    """Every reported figure of one moment; those of the proximal step are empty where none was made."""
    row: Row = {"step": cloud.step}
    for part, samples in (("train", problem.samples), ("test", test)):
        row |= {f"{part}_{name}": value for name, value in scores.scores(problem.neuron, cloud, samples).items()}
    train_risk = cloud.log_rho.new_tensor(row["train_risk_weighted"])
    row["discrete_free_energy"] = float(energy.discrete_free_energy(train_risk, cloud.log_rho, hyper.beta))
    row["ess"] = float(energy.effective_sample_size(cloud.log_rho))
    row["mass"] = float(cloud.rho.sum())
    proximal: Row = dict.fromkeys(PROXIMAL)
    if info is not None:
        before, after = info.prox_objective()
        solution = info.solution
        figures = (float(before), float(after), float(info.kernel_offdiag()), solution.rounds)
        proximal = dict(zip(PROXIMAL, (*figures, float(solution.error), solution.converged), strict=True))
    return row | proximal


PROXIMAL = (
    "prox_objective_before",
    "prox_objective_after",
    "kernel_offdiag",
    "sinkhorn_rounds",
    "sinkhorn_error",
    "converged",
)


class MetricsLog:
    """The CSV file of one run, appended row by row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: io.TextIOWrapper | None = None

    def start(self, keep: Callable[[int], bool]) -> None:
        """Open for appending; rows of an earlier session that ``keep`` refuses are cut off."""
        rows = self._rows()
        if rows:
            header, body = rows[0], rows[1:]
            kept = [row for row in body if len(row) == len(header) and row[0].isdigit() and keep(int(row[0]))]
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows([header, *kept] if kept else [])
            write_atomically(self.path, text.getvalue().encode())
        self._file = open(self.path, "a", newline="", encoding="utf-8")  # noqa: SIM115 (closed by __exit__)

    @property
    def empty(self) -> bool:
        assert self._file is not None
        return self._file.tell() == 0

    def write(self, row: Row) -> None:
        assert self._file is not None
        writer = csv.writer(self._file, lineterminator="\n")
        if self.empty:
            writer.writerow(row)
        writer.writerow("" if value is None else repr(value) for value in row.values())
        self._file.flush()

    def sync(self) -> None:
        """Make the rows durable: called before each checkpoint that relies on them."""
        assert self._file is not None
        os.fsync(self._file.fileno())

    def _rows(self) -> list[list[str]]:
        if not self.path.exists():
            return []
        with open(self.path, newline="", encoding="utf-8") as file:
            return list(csv.reader(file))

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()
