"""From which checkpoint a run goes on, and why it does not where every one is rejected.

A folder whose checkpoints cannot be used holds somebody's results: it is never begun again over them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from proxlearn.core.neurons.registry import num_parameters
from proxlearn.errors import InputError
from proxlearn.files.atomic import write_atomically, write_json
from proxlearn.files.safe_read import MAX_TABLE_BYTES, read_bytes
from proxlearn.run import checkpoint as checkpoints
from proxlearn.run import checkpoint_file
from proxlearn.run.checkpoint import Checkpoint, MetricsPosition
from proxlearn.run.checkpoint_file import InvalidCheckpoint
from proxlearn.run.edited_settings import DIGEST_LENGTH, describe_difference
from proxlearn.run.experiment import Experiment
from proxlearn.run.log_schedule import is_logged
from proxlearn.run.metrics import MetricsLog
from proxlearn.run.metrics_version import (
    MetricsConversion,
    converted_positions,
    metrics_file_version,
    read_converted_positions,
)
from proxlearn.run.previous_session import PreviousSession
from proxlearn.run.run_folder import RunFolder

OR_OVERWRITE = "or train again with overwrite=true"


class RejectedCheckpoint(InvalidCheckpoint):
    """The file is whole and the run cannot go on from it."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


@dataclass(frozen=True)
class ResumePoints:
    """The checkpoints of a run folder, as seen by the run that wants to go on in it."""

    folder: RunFolder
    experiment: Experiment
    previous: PreviousSession

    def load(self, warn: Callable[[str], None]) -> Checkpoint | None:
        """The newest checkpoint from which the run can go on exactly; None where it has not begun."""
        steps = self.experiment.steps
        rejected: list[InvalidCheckpoint] = []

        def skip(path: Path, why: InvalidCheckpoint) -> None:
            rejected.append(why)
            skipped.append(f"skipping the checkpoint {path.name}: {why}")

        skipped: list[str] = []
        usable = checkpoints.newest_valid(self.folder.checkpoints, skip, self._require)
        if usable is None:
            self._refuse(rejected)
            return None
        for line in skipped:
            warn(line)
        if usable.cloud.step > steps:
            problem = f"{self.folder.path} is at step {usable.cloud.step} already, beyond steps={steps}"
            raise InputError(problem, f"ask for steps={usable.cloud.step} or more, or set overwrite=true")
        return checkpoints.move_to_device(replace(usable, metrics=self._mark(usable)), self.experiment.device)

    def check_settings(self, selected: bool) -> None:
        """Refuse a folder whose config is not the one that its checkpoints were made with.

        Where numbers are still to be ``selected``, the rest is compared. One checkpoint that fits is enough: a foreign
        file among them is skipped as a run goes on.
        """
        self.folder.refuse_newer_model()
        identity = self.experiment.identity if selected else self.experiment.asked_identity
        wrong: RejectedCheckpoint | None = None
        for file in checkpoint_file.valid_checkpoints(self.folder.checkpoints):
            run = str(file.state.get("run"))
            if run.startswith(identity):
                return
            wrong = wrong or self._other_run(run)
        if wrong is None and self.previous.run is not None and not self.previous.run.startswith(identity):
            wrong = self._other_run(self.previous.run)
        if wrong is not None:
            raise InputError(f"{self.folder.path} cannot be continued: {wrong}", wrong.remedy)

    def _require(self, candidate: Checkpoint) -> None:
        experiment = self.experiment
        shape = (
            experiment.config.N,
            num_parameters(experiment.problem.neuron, experiment.problem.samples.X.shape[1]),
        )
        if candidate.run != experiment.identity:
            raise self._other_run(candidate.run)
        if candidate.cloud.theta.shape != shape:
            raise RejectedCheckpoint("it belongs to another run", "copy the run folder again")
        try:
            torch.Generator(experiment.device).set_state(candidate.generator)
        except RuntimeError as error:
            raise RejectedCheckpoint(
                "its generator is for another device", "continue it on the device it began on"
            ) from error
        mark = self._mark(candidate)
        self._require_rows(mark)
        closing = final_row_step(candidate.cloud.step, experiment)
        # A checkpoint of version 0.1.0 does not hold the figures of its step, so that step is made once more.
        lacks_figures = closing is not None and candidate.proximal is None
        if lacks_figures and not MetricsLog(self.folder.metrics).holds_row(mark, candidate.cloud.step):
            raise RejectedCheckpoint("metrics.csv lacks the row of the last step", "ask for more steps")

    def _mark(self, candidate: Checkpoint) -> MetricsPosition:
        """Where metrics.csv ended when the checkpoint was written, in the present file."""
        mark = candidate.metrics
        if metrics_file_version(_first_line(self.folder.metrics)) == 1:
            return mark
        return MetricsPosition(
            *read_converted_positions(self.folder.marks).get((mark.size, mark.sha256), (mark.size, mark.sha256))
        )

    def _require_rows(self, mark: MetricsPosition) -> None:
        path = self.folder.metrics
        if not path.is_file():
            raise RejectedCheckpoint("metrics.csv is missing", f"copy it back, {OR_OVERWRITE}")
        content = read_bytes(path, MAX_TABLE_BYTES)
        if mark.size and _starts_with(content, mark):
            return
        if _starts_with(content.replace(b"\r\n", b"\n"), mark) and mark.size:
            raise RejectedCheckpoint(
                "metrics.csv was saved with other line ends (CRLF)", f"save it with LF, {OR_OVERWRITE}"
            )
        raise RejectedCheckpoint("metrics.csv was changed, or lacks rows", f"restore it, {OR_OVERWRITE}")

    def _other_run(self, run: str) -> RejectedCheckpoint:
        """What differs between the run that wrote a checkpoint and this one, as far as can be told."""
        ours = self.experiment.asked_identity
        if run.startswith(ours):
            return RejectedCheckpoint("selection.json was changed", f"restore it, {OR_OVERWRITE}")
        if run[:DIGEST_LENGTH] == ours[:DIGEST_LENGTH]:
            return RejectedCheckpoint("the data has changed since it began", f"restore it, {OR_OVERWRITE}")
        edit = describe_difference(self.experiment.config, self.previous.settings, run[:DIGEST_LENGTH])
        if edit is None:
            known = Path(self.folder.config).name
            return RejectedCheckpoint(
                f"it belongs to another run, or {known} was edited", f"undo the edit of {known}, {OR_OVERWRITE}"
            )
        began, now = edit
        return RejectedCheckpoint(
            f"it began with {began}, and config.yaml has {now}",
            f"set it back, or train with {now} in another hydra.run.dir",
        )

    def _refuse(self, rejected: list[InvalidCheckpoint]) -> None:
        """Say why no checkpoint can be used; nothing is said of a folder in which no step was made."""
        path = self.folder.path
        if not rejected:
            if self.previous.step > 0 or has_rows_beyond_first(self.folder.metrics):
                raise InputError(f"the checkpoints of {path} are missing", f"copy them back, {OR_OVERWRITE}")
            return
        reasons = list(dict.fromkeys(str(each) for each in rejected))
        # What concerns the folder as a whole comes first; single files may be damaged besides.
        cause = next((each for each in rejected if isinstance(each, RejectedCheckpoint)), None)
        ordered = sorted(reasons, key=lambda reason: reason != str(cause))
        more = f" (and {len(ordered) - 3} other reasons)" if len(ordered) > 3 else ""
        problem = f"none of the checkpoints of {path} can be used: {', '.join(ordered[:3])}{more}"
        raise InputError(problem, cause.remedy if cause else f"copy the run folder again, {OR_OVERWRITE}")


def load_resume_point(
    folder: RunFolder, experiment: Experiment, earlier: PreviousSession, warn: Callable[[str], None]
) -> Checkpoint | None:
    """The newest checkpoint of earlier sessions from which this run can go on exactly; None where it has not begun."""
    return ResumePoints(folder, experiment, earlier).load(warn)


def final_row_step(step: int, experiment: Experiment) -> int | None:
    """``step``, if it is a run's last one and logged for that reason only: then its row must outlive a resume."""
    return step if step == experiment.steps and not is_logged(step, experiment.config.log_every) else None


def convert_metrics(folder: RunFolder, experiment: Experiment, now: Checkpoint) -> Checkpoint:
    """Bring a metrics.csv of version 1 to version 2, up to the rows of ``now``; returns it with its new mark.

    The marks of the stored checkpoints are written first: killed before the file is replaced, the run has its old file
    and the old marks; afterwards the new file, in which the old marks are looked up.
    """
    if not now.metrics.size or metrics_file_version(_first_line(folder.metrics)) != 1:
        return now
    content = folder.metrics.read_bytes()
    closing = final_row_step(now.cloud.step, experiment)
    old = content[: now.metrics.size]
    row = content[now.metrics.size :].partition(b"\n")[0] + b"\n"
    if closing is not None and MetricsLog(folder.metrics).holds_row(now.metrics, closing):
        old += row
    states = {int(file.state["step"]): file.state for file in checkpoint_file.valid_checkpoints(folder.checkpoints)}
    convert = MetricsConversion(vars(experiment.settings), lambda step: states.get(step, {}).get("epsilon"))
    new = convert(old.decode()).encode()
    positions = [(state["metrics_size"], state["metrics_sha256"]) for state in states.values()]
    table = converted_positions(old, new, positions)
    write_json(folder.marks, table)
    write_atomically(folder.metrics, new)
    return replace(
        now, metrics=MetricsPosition(*read_converted_positions(folder.marks)[(now.metrics.size, now.metrics.sha256)])
    )


def has_rows_beyond_first(path: Path) -> bool:
    """Whether a metrics.csv tells of a step that was made."""
    try:
        with path.open("rb") as file:
            return len([line for line, _ in zip(file, range(3), strict=False)]) > 2
    except OSError:
        return False


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.readline(10_000).decode("utf-8", "replace")
    except OSError:
        return ""


def _starts_with(content: bytes, mark: MetricsPosition) -> bool:
    return len(content) >= mark.size and hashlib.sha256(content[: mark.size]).hexdigest() == mark.sha256
