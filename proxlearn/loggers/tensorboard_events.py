"""The TensorBoard logger: event files in ``<run folder>/tensorboard``, in the record format of TensorBoard.

The writers of torch and TensorBoard buffer events in a thread, so that a killed process loses logged rows. This logger
writes every row to the file before the run continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

from tensorboard.backend.event_processing.event_accumulator import IMAGES, SCALARS, TENSORS, EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.record_writer import RecordWriter

from proxlearn.config.schema import LoggerConfig
from proxlearn.loggers.logger import EVENTS_FOLDER, Row, RunInfo, read_rows

PNG_SIZE = slice(16, 24)
"""Bytes of a PNG file that encode the width and the height of the image."""


class TensorBoardLogger:
    """A logger that writes one event file per session that has new data; scalars are float32, as in TensorBoard."""

    def __init__(self, config: LoggerConfig, info: RunInfo, warn: Callable[[str], None]) -> None:
        self._info, self._folder = info, info.folder / EVENTS_FOLDER
        self._file: BinaryIO | None = None
        self._logged: set[tuple[str, int]] = set()
        """The logged plots and settings, as pairs of a tag and a step; a tag is a plot's name or the settings' text."""

    def begin(self, metrics: Path) -> None:
        rows = {int(row["step"] or 0): row for row in read_rows(metrics)}
        different = self._read() ^ set(rows)
        if different:
            # A killed process may have logged further steps; a restart event makes readers discard the events from its
            # step on.
            self._write(min(different), session_log=SessionLog(status=SessionLog.START))
            self._logged = {(tag, step) for tag, step in self._logged if step < min(different)}
        for step in sorted(rows):
            if different and step >= min(different):
                self.log_row(rows[step])
        self._write_settings(max(rows, default=0))

    def log_row(self, row: Row) -> None:
        numbers = {name: value for name, value in row.items() if name != "step" and value is not None}
        values = [Summary.Value(tag=name, simple_value=float(value)) for name, value in numbers.items()]
        # A row is written as a single record, so that it is never partially logged.
        self._write(int(row["step"] or 0), summary=Summary(value=values))

    def log_plots(self, paths: Iterable[Path], step: int) -> None:
        for path in paths:
            if (path.stem, step) in self._logged:
                continue
            content = path.read_bytes()
            size = content[PNG_SIZE]
            width, height = (int.from_bytes(side, "big") for side in (size[:4], size[4:]))
            image = Summary.Image(width=width, height=height, colorspace=4, encoded_image_string=content)
            self._write(step, summary=Summary(value=[Summary.Value(tag=path.stem, image=image)]))

    def close(self, state: str) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self) -> set[int]:
        """Return the logged steps, read with TensorBoard; store the logged plots and settings in ``_logged``."""
        if not self._files():
            return set()
        all_events = dict.fromkeys((SCALARS, IMAGES, TENSORS), 0)
        events = EventAccumulator(str(self._folder), size_guidance=all_events).Reload()
        tags = events.Tags()
        self._logged = {(tag, event.step) for tag in tags[IMAGES] for event in events.Images(tag)}
        texts = (event for tag in tags[TENSORS] for event in events.Tensors(tag))
        self._logged |= {(_text(event.tensor_proto), event.step) for event in texts}
        return {event.step for tag in tags[SCALARS] for event in events.Scalars(tag)}

    def _write_settings(self, step: int) -> None:
        # In Markdown, four spaces mark preformatted text.
        settings = {**self._info.settings, **self._info.other_settings}
        text = "\n".join(f"    {name}: {value}" for name, value in settings.items())
        if any(name == text for name, _ in self._logged):
            return
        plugin = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode()])
        self._write(step, summary=Summary(value=[Summary.Value(tag="config", metadata=plugin, tensor=tensor)]))

    def _files(self) -> list[Path]:
        return list(self._folder.glob("*tfevents*"))

    def _write(self, step: int, **content: Any) -> None:
        if self._file is None:
            self._folder.mkdir(exist_ok=True)
            # Event files are read in the order of their names, which are numbered because a clock may be set back.
            self._file = (self._folder / f"events.out.tfevents.{len(self._files()):010d}").open("xb")
            self._record(Event(wall_time=time.time(), file_version="brain.Event:2"))
        self._record(Event(wall_time=time.time(), step=step, **content))

    def _record(self, event: Event) -> None:
        assert self._file is not None
        RecordWriter(self._file).write(event.SerializeToString())
        self._file.flush()


def _text(tensor: TensorProto) -> str:
    return b"".join(tensor.string_val).decode()
