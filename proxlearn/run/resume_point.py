"""The checkpoint from which a run continues, or the reason why every checkpoint is rejected.

If no checkpoint can be used, an error is raised, so that no new run replaces the results in the folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from proxlearn.core.neurons.neuron import num_parameters
from proxlearn.core.schedules import is_logged
from proxlearn.core.step import REVISION
from proxlearn.errors import InputError
from proxlearn.files.atomic import write_atomically, write_json
from proxlearn.files.safe_read import MAX_TABLE_BYTES, UnreadableFile, read_bytes, read_json
from proxlearn.run import checkpoint as checkpoints
from proxlearn.run import checkpoint_file
from proxlearn.run.checkpoint import Checkpoint, MetricsPosition
from proxlearn.run.checkpoint_file import InvalidCheckpoint
from proxlearn.run.experiment import Experiment
from proxlearn.run.metrics import (
    MetricsConversion,
    MetricsLog,
    converted_positions,
    metrics_file_version,
    read_converted_positions,
)
from proxlearn.run.previous_session import PreviousSession
from proxlearn.run.run_folder import DIGEST_LENGTH, RunFolder, describe_difference
from proxlearn.terminal.streams import notice


class ForeignCheckpoint(InvalidCheckpoint):
    """Raised if a file is a valid checkpoint of another run."""


def read_identity(folder: RunFolder) -> str | None:
    """Return the identity of the run in a folder, read from its status, or None if it is unknown."""
    try:
        status = read_json(folder.status)
        if isinstance(status.get("run"), str):
            return str(status["run"])
        # Version 0.1.0 did not store the identity in status.json; the checkpoint of the step given there does.
        if type(status.get("step")) is not int:
            return None
        path = checkpoint_file.checkpoint_path(folder.checkpoints, status["step"])
        return str(checkpoint_file.read_checkpoint_file(path).state["run"])
    except (UnreadableFile, InvalidCheckpoint, KeyError, ValueError):
        return None


def require_same_run(run: str, identity: str | None) -> None:
    """Raise ForeignCheckpoint if a checkpoint's ``run`` differs from ``identity``, unless ``identity`` is None."""
    if identity is not None and run != identity:
        raise ForeignCheckpoint("it belongs to another run")


def warn_foreign(path: Path, why: InvalidCheckpoint) -> None:
    """Print a notice if a checkpoint is skipped because it belongs to another run."""
    if isinstance(why, ForeignCheckpoint):
        _warn_once(path, str(why))


@cache
def _warn_once(path: Path, why: str) -> None:
    """Print a notice once per process, because every plot of a run searches for the newest checkpoint."""
    notice(f"skipping the checkpoint {path.name}: {why}")


def newest_checkpoint_file(folder: RunFolder) -> checkpoint_file.CheckpointFile | None:
    """Return the newest checkpoint of the folder's run whose checksum matches, or None if no such checkpoint exists."""
    identity = read_identity(folder)
    for _, path in checkpoint_file.list_checkpoints(folder.checkpoints):
        try:
            file = checkpoint_file.read_checkpoint_file(path)
            require_same_run(str(file.state.get("run")), identity)
            return file
        except InvalidCheckpoint as why:
            warn_foreign(path, why)
    return None


OR_OVERWRITE = "or train again with overwrite=true"


class RejectedCheckpoint(InvalidCheckpoint):
    """Raised if a file is a valid checkpoint from which this run cannot continue."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


def generator_state(checkpoint: Checkpoint) -> Tensor:
    """Return the state of the noise generator in a checkpoint; raise RejectedCheckpoint if it is not valid.

    Revision 1 stored the state of the device's generator. A CPU generator cannot load the state of a GPU generator, so
    the CPU generator is then seeded with a hash of the stored state.
    """
    generator = torch.Generator()
    try:
        generator.set_state(checkpoint.generator)
    except RuntimeError as error:
        if checkpoint.revision != 1:
            remedy = OR_OVERWRITE.removeprefix("or ")
            raise RejectedCheckpoint("its random generator state is not valid", remedy) from error
        digest = hashlib.sha256(checkpoint.generator.numpy().tobytes()).digest()
        generator.manual_seed(int.from_bytes(digest[:7], "little"))
    return generator.get_state()


@dataclass(frozen=True)
class ResumePoints:
    """The checkpoints in a run folder; ``load`` returns the checkpoint from which the run continues."""

    folder: RunFolder
    experiment: Experiment
    previous: PreviousSession

    def load(self, warn: Callable[[str], None]) -> Checkpoint | None:
        """Return the newest checkpoint from which the run can continue, or None if the run has not started.

        The continued run gives bit-identical results, unless another revision of the recursion computed the checkpoint.
        ``warn`` is called with a message in that case, and for every skipped checkpoint.
        """
        steps = self.experiment.steps
        rejected: list[tuple[Path, InvalidCheckpoint]] = []
        checkpoint = checkpoints.newest_valid(
            self.folder.checkpoints, lambda path, reason: rejected.append((path, reason)), self._require_usable
        )
        if checkpoint is None:
            self._refuse([reason for _, reason in rejected])
            return None
        for path, reason in rejected:
            warn(f"skipping the checkpoint {path.name}: {reason}")
        step = checkpoint.cloud.step
        if step > steps:
            problem = f"{self.folder.path} is already at step {step}, beyond steps={steps}"
            raise InputError(problem, f"set steps={step} or more, or set overwrite=true")
        if checkpoint.revision != REVISION:
            warn(
                f"the checkpoint of step {step} was computed by revision {checkpoint.revision} of the recursion; the "
                f"run continues with revision {REVISION}, which agrees with it up to rounding but not bit for bit"
            )
        checkpoint = replace(
            checkpoint,
            metrics=self._present_position(checkpoint),
            generator=generator_state(checkpoint),
            revision=REVISION,
        )
        return checkpoints.move_to_device(checkpoint, self.experiment.device)

    def check_settings(self, selected: bool) -> None:
        """Raise InputError if the config of the folder does not match its checkpoints.

        If ``selected`` is false, some hyperparameters are still to be selected, and only the other settings are
        compared. One matching checkpoint is enough, because a checkpoint of another run is skipped when the run
        continues.
        """
        self.folder.refuse_newer_model()
        identity = self.experiment.identity if selected else self.experiment.config_identity
        mismatch: RejectedCheckpoint | None = None
        for file in checkpoint_file.valid_checkpoints(self.folder.checkpoints):
            run = str(file.state.get("run"))
            if run.startswith(identity):
                return
            mismatch = mismatch or self._other_run(run)
        if mismatch is None and self.previous.run is not None and not self.previous.run.startswith(identity):
            mismatch = self._other_run(self.previous.run)
        if mismatch is not None:
            raise InputError(f"{self.folder.path} cannot be continued: {mismatch}", mismatch.remedy)

    def _require_usable(self, candidate: Checkpoint) -> None:
        """Raise RejectedCheckpoint if this run cannot continue from ``candidate``."""
        experiment = self.experiment
        shape = (
            experiment.config.N,
            num_parameters(experiment.problem.neuron, experiment.problem.samples.X.shape[1]),
        )
        if candidate.run != experiment.identity:
            raise self._other_run(candidate.run)
        if candidate.cloud.theta.shape != shape:
            raise RejectedCheckpoint("it belongs to another run", "copy the run folder again")
        generator_state(candidate)
        position = self._present_position(candidate)
        self._require_rows(position)
        final_step = final_row_step(candidate.cloud.step, experiment)
        # A checkpoint of version 0.1.0 does not contain the metrics of its step, so the step is repeated.
        lacks_metrics = final_step is not None and candidate.proximal is None
        if lacks_metrics and not MetricsLog(self.folder.metrics).holds_row(position, candidate.cloud.step):
            raise RejectedCheckpoint("metrics.csv lacks the row of the last step", "set steps=... to a larger number")

    def _present_position(self, candidate: Checkpoint) -> MetricsPosition:
        """Return the position in metrics.csv to which a checkpoint refers, even if the file was converted later."""
        stored = candidate.metrics
        if metrics_file_version(_first_line(self.folder.metrics)) == 1:
            return stored
        converted = read_converted_positions(self.folder.marks)
        return MetricsPosition(*converted.get((stored.size, stored.sha256), (stored.size, stored.sha256)))

    def _require_rows(self, position: MetricsPosition) -> None:
        """Raise RejectedCheckpoint if metrics.csv lacks the rows that were written before a checkpoint."""
        path = self.folder.metrics
        if not path.is_file():
            raise RejectedCheckpoint("metrics.csv is missing", f"copy it back, {OR_OVERWRITE}")
        content = read_bytes(path, MAX_TABLE_BYTES)
        if position.size and _starts_with(content, position):
            return
        if _starts_with(content.replace(b"\r\n", b"\n"), position) and position.size:
            raise RejectedCheckpoint(
                "metrics.csv was saved with different line endings (CRLF)", f"save it with LF, {OR_OVERWRITE}"
            )
        raise RejectedCheckpoint("metrics.csv was changed or lacks rows", f"restore it, {OR_OVERWRITE}")

    def _other_run(self, run: str) -> RejectedCheckpoint:
        """Return the error for a checkpoint of another run; it describes how that run differs, if this is known."""
        identity = self.experiment.config_identity
        if run.startswith(identity):
            return RejectedCheckpoint("selection.json was changed", f"restore it, {OR_OVERWRITE}")
        if run[:DIGEST_LENGTH] == identity[:DIGEST_LENGTH]:
            return RejectedCheckpoint("the data have changed since the run started", f"restore them, {OR_OVERWRITE}")
        difference = describe_difference(self.experiment.config, self.previous.settings, run[:DIGEST_LENGTH])
        if difference is None:
            return RejectedCheckpoint(
                "the checkpoint belongs to another run, or config.yaml was edited",
                f"undo the edit of config.yaml, {OR_OVERWRITE}",
            )
        original, present = difference
        return RejectedCheckpoint(
            f"the run started with {original}, but config.yaml has {present}",
            f"restore {original} in config.yaml, or train with {present} in another hydra.run.dir",
        )

    def _refuse(self, rejected: list[InvalidCheckpoint]) -> None:
        """Raise an InputError that states why no checkpoint can be used; do nothing if the run has not started."""
        path = self.folder.path
        if not rejected:
            if self.previous.step > 0 or has_rows_beyond_first(self.folder.metrics):
                raise InputError(f"the checkpoints of {path} are missing", f"copy them back, {OR_OVERWRITE}")
            return
        reasons = list(dict.fromkeys(str(error) for error in rejected))
        # A reason that concerns the whole folder comes first; single files may also be damaged.
        cause = next((error for error in rejected if isinstance(error, RejectedCheckpoint)), None)
        ordered = sorted(reasons, key=lambda reason: reason != str(cause))
        more = "; ..." if len(ordered) > 3 else ""
        problem = f"none of the checkpoints of {path} can be used ({'; '.join(ordered[:3])}{more})"
        raise InputError(problem, cause.remedy if cause else f"copy the run folder again, {OR_OVERWRITE}")


def load_resume_point(
    folder: RunFolder, experiment: Experiment, previous: PreviousSession, warn: Callable[[str], None]
) -> Checkpoint | None:
    """Return the checkpoint from which the run continues, or None for a new run; see ``ResumePoints.load``."""
    return ResumePoints(folder, experiment, previous).load(warn)


def final_row_step(step: int, experiment: Experiment) -> int | None:
    """Return ``step`` if it is the last step of the run and is not on the logging schedule; otherwise, return None."""
    return step if step == experiment.steps and not is_logged(step, experiment.config.log_every) else None


def convert_metrics(folder: RunFolder, experiment: Experiment, now: Checkpoint) -> Checkpoint:
    """Convert metrics.csv from version 1 to version 2, and return the checkpoint ``now`` with the new metrics position.

    Rows after ``now`` are removed, except for the final row of a finished run. The new positions of the stored
    checkpoints are written first. If the process is killed before the file is replaced, the old file and the old
    positions remain valid; afterwards, the old positions are translated to those in the new file.
    """
    if not now.metrics.size or metrics_file_version(_first_line(folder.metrics)) != 1:
        return now
    content = folder.metrics.read_bytes()
    final_step = final_row_step(now.cloud.step, experiment)
    old = content[: now.metrics.size]
    final_row = content[now.metrics.size :].partition(b"\n")[0] + b"\n"
    if final_step is not None and MetricsLog(folder.metrics).holds_row(now.metrics, final_step):
        old += final_row
    states = {int(file.state["step"]): file.state for file in checkpoint_file.valid_checkpoints(folder.checkpoints)}
    convert = MetricsConversion(vars(experiment.settings), lambda step: states.get(step, {}).get("epsilon"))
    new = convert(old.decode()).encode()
    positions = [(state["metrics_size"], state["metrics_sha256"]) for state in states.values()]
    write_json(folder.marks, converted_positions(old, new, positions))
    write_atomically(folder.metrics, new)
    new_position = read_converted_positions(folder.marks)[(now.metrics.size, now.metrics.sha256)]
    return replace(now, metrics=MetricsPosition(*new_position))


def has_rows_beyond_first(path: Path) -> bool:
    """Return whether metrics.csv has a row for a step after step 0."""
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


def _starts_with(content: bytes, position: MetricsPosition) -> bool:
    """Return whether ``content`` begins with the bytes that ``position`` describes."""
    is_long_enough = len(content) >= position.size
    return is_long_enough and hashlib.sha256(content[: position.size]).hexdigest() == position.sha256
