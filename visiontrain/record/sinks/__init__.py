"""Where events go. A logger is one class in its own file and one line here; it takes the run folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from visiontrain.record.events import Event
from visiontrain.record.sinks.csv import MetricsCsv, ValidationsCsv
from visiontrain.record.sinks.drawings import PicturesSink, PlotsSink
from visiontrain.record.sinks.jsonl import UpdatesJsonl
from visiontrain.record.sinks.notebook import console
from visiontrain.record.sinks.run_json import RunJson
from visiontrain.record.wire import home

SINKS: dict[str, Callable[[Path], Callable[[Event], None]]] = {
    "csv": MetricsCsv,
    "validations": ValidationsCsv,
    "jsonl": UpdatesJsonl,
    "run": RunJson,
    "pictures": PicturesSink,
    "plots": PlotsSink,
    "console": lambda folder: home() or console(),
}
