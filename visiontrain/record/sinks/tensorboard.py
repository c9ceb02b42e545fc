"""TensorBoard: an event file in RUN/tensorboard; the step is images seen."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from visiontrain.record.events import Event, RunStarted
from visiontrain.record.plots.ink import encoded
from visiontrain.record.sinks.drawings import drawn
from visiontrain.record.sinks.points import points


class TensorBoard:
    """Writes each event's numbers and pictures at once, so that a kill loses none; TensorFlow is never imported.

    A run that goes on tells readers to forget what lies past its checkpoint; a new run removes the files of an earlier one.
    """

    name = needs = "tensorboard"

    def __init__(self, folder: Path) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._folder, self._writer_of = folder / self.name, RecordWriter
        self._file: Any = None
        self._images_seen = 0

    @staticmethod
    def look(folder: Path) -> str:
        """How to look at it."""
        return f"TensorBoard: tensorboard --logdir {folder / 'tensorboard'} (steps are images seen)"

    def __call__(self, event: Event) -> None:
        """Write what the event has."""
        if isinstance(event, RunStarted):
            self._start(event)
        if (counters := getattr(event, "counters", None)) is not None:
            self._images_seen = counters.images_seen
        if numbers := points(event):
            self._write_values([{"tag": tag, "simple_value": value} for tag, value in numbers.items()])
        if pictures := drawn(event):
            self._write_values([_picture(name, picture) for name, picture in pictures.items()])

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _start(self, event: RunStarted) -> None:
        self._folder.mkdir(exist_ok=True)
        if not event.counters.images_seen:
            for old in self._folder.glob("*.tfevents.*"):
                old.unlink()
        self._file = (self._folder / f"events.out.tfevents.{time.time_ns()}").open("xb")  # readers take them by name
        self._records = self._writer_of(self._file)
        self._images_seen = event.counters.images_seen
        self._write(0, file_version="brain.Event:2")
        if self._images_seen:
            self._write(self._images_seen + 1, session_log={"status": "START"})
        settings = event.facts.get("settings", {})
        table = "\n".join(
            ["| setting | value |", "|---|---|", *(f"| {key} | {value} |" for key, value in settings.items())]
        )
        self._write_values([_text("plan", "\n\n".join(event.plan)), _text("settings", table)])

    def _write_values(self, values: list[dict[str, Any]]) -> None:
        self._write(self._images_seen, summary={"value": values})

    def _write(self, step: int, **content: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event as Record

        self._records.write(Record(wall_time=time.time(), step=step, **content).SerializeToString())
        self._file.flush()


def _text(tag: str, text: str) -> dict[str, Any]:
    tensor = {"dtype": "DT_STRING", "string_val": [text.encode()], "tensor_shape": {"dim": [{"size": 1}]}}
    return {"tag": tag, "tensor": tensor, "metadata": {"plugin_data": {"plugin_name": "text"}}}


def _picture(name: str, picture: np.ndarray) -> dict[str, Any]:
    height, width = picture.shape[:2]
    data = encoded(picture, Path(name).suffix)
    return {
        "tag": Path(name).stem,
        "image": {"height": height, "width": width, "colorspace": 3, "encoded_image_string": data},
    }
