"""Where the events of every run go: one class each, which takes the run folder. Loggers are asked for (``loggers.py``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from visiontrain.record.events import Event
from visiontrain.record.sinks.csv import MetricsCsv, ValidationsCsv
from visiontrain.record.sinks.curves_json import CurvesJson
from visiontrain.record.sinks.drawings import PicturesSink, PlotsSink
from visiontrain.record.sinks.jsonl import UpdatesJsonl
from visiontrain.record.sinks.notebook import console
from visiontrain.record.sinks.report import Report
from visiontrain.record.sinks.run_json import RunJson
from visiontrain.record.wire import home

SINKS: dict[str, Callable[[Path], Callable[[Event], None]]] = {
    "csv": MetricsCsv,
    "validations": ValidationsCsv,
    "jsonl": UpdatesJsonl,
    "run": RunJson,
    "curves": CurvesJson,
    "pictures": PicturesSink,
    "plots": PlotsSink,
    "report": Report,  # of what the others wrote
    "console": lambda folder: home() or console(),
}
