"""TensorBoard: event files below ``<run folder>/tensorboard``, written with TensorBoard's own records.

Neither torch's nor TensorBoard's writer is used: both keep events in a thread of theirs, and a killed process would
lose what it had logged. Here every row is in the file before the run goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

from tensorboard.backend.event_processing import event_accumulator as reading
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.record_writer import RecordWriter

from proxlearn.config.schema import LoggerConfig
from proxlearn.loggers.logger import EVENTS_FOLDER, Row, RunInfo, read_rows

PNG_SIZE = slice(16, 24)
"""Where a PNG file says how wide and how high it is."""


class TensorBoardLogger:
    """A new event file for each session that has something to add; scalars are float32, as TensorBoard has them."""

    def __init__(self, config: LoggerConfig, about: RunInfo, warn: Callable[[str], None]) -> None:
        self._about, self._folder = about, about.folder / EVENTS_FOLDER
        self._file: BinaryIO | None = None
        self._shown: set[tuple[str, int]] = set()
        """Plots by their names, and settings by their text, each with its step."""

    def begin(self, metrics: Path) -> None:
        rows = {int(row["step"] or 0): row for row in read_rows(metrics)}
        wrong = self._read() ^ set(rows)
        if wrong:
            # The sign of a restart makes readers drop what they have from there on: a killed process had gone further.
            self._write(min(wrong), session_log=SessionLog(status=SessionLog.START))
            self._shown = {(tag, step) for tag, step in self._shown if step < min(wrong)}
        for step in sorted(rows):
            if wrong and step >= min(wrong):
                self.row(rows[step])
        self._write_settings(max(rows, default=0))

    def row(self, row: Row) -> None:
        numbers = {name: value for name, value in row.items() if name != "step" and value is not None}
        values = [Summary.Value(tag=name, simple_value=float(value)) for name, value in numbers.items()]
        # One record for the row: it is there or it is not.
        self._write(int(row["step"] or 0), summary=Summary(value=values))

    def pictures(self, paths: Iterable[Path], step: int) -> None:
        for path in paths:
            if (path.stem, step) in self._shown:
                continue
            content = path.read_bytes()
            size = content[PNG_SIZE]
            width, height = (int.from_bytes(each, "big") for each in (size[:4], size[4:]))
            image = Summary.Image(width=width, height=height, colorspace=4, encoded_image_string=content)
            self._write(step, summary=Summary(value=[Summary.Value(tag=path.stem, image=image)]))

    def close(self, state: str) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self) -> set[int]:
        """The logged steps, as TensorBoard itself finds them; what is shown besides is kept in mind."""
        if not self._files():
            return set()
        everything = dict.fromkeys((reading.SCALARS, reading.IMAGES, reading.TENSORS), 0)
        found = reading.EventAccumulator(str(self._folder), size_guidance=everything).Reload()
        tags = found.Tags()
        self._shown = {(tag, event.step) for tag in tags[reading.IMAGES] for event in found.Images(tag)}
        told = (event for tag in tags[reading.TENSORS] for event in found.Tensors(tag))
        self._shown |= {(_content(event.tensor_proto), event.step) for event in told}
        return {event.step for tag in tags[reading.SCALARS] for event in found.Scalars(tag)}

    def _write_settings(self, step: int) -> None:
        # Four blanks: to Markdown, text as it is.
        settings = {**self._about.settings, **self._about.other_settings}
        text = "\n".join(f"    {name}: {value}" for name, value in settings.items())
        if any(shown == text for shown, _ in self._shown):
            return
        plugin = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode()])
        self._write(step, summary=Summary(value=[Summary.Value(tag="config", metadata=plugin, tensor=tensor)]))

    def _files(self) -> list[Path]:
        return list(self._folder.glob("*tfevents*"))

    def _write(self, step: int, **what: Any) -> None:
        if self._file is None:
            self._folder.mkdir(exist_ok=True)
            # Read in the order of their names: a number, because clocks may go back.
            self._file = (self._folder / f"events.out.tfevents.{len(self._files()):010d}").open("xb")
            self._record(Event(wall_time=time.time(), file_version="brain.Event:2"))
        self._record(Event(wall_time=time.time(), step=step, **what))

    def _record(self, event: Event) -> None:
        assert self._file is not None
        RecordWriter(self._file).write(event.SerializeToString())
        self._file.flush()


def _content(tensor: TensorProto) -> str:
    return b"".join(tensor.string_val).decode()
