"""Loggers that fail at each place where they can, or hang: the run goes on."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from visiontrain.config.loggers import LOGGERS
from visiontrain.record.beside import Beside
from visiontrain.record.events import EpochEnded, Notice, RunEnded, WindowClosed
from visiontrain.record.run import Recorder
from visiontrain.record.sinks.loggers import logger_class, make_loggers

pytestmark = pytest.mark.usefixtures("nobody_logged_in")


class Planted:
    """A logger as a user writes one: it takes the run folder and events, and fails as it is told to."""

    at, error = "", RuntimeError("planted")

    def __init__(self, folder):
        self.fail("start")

    def __call__(self, event):
        self.fail(type(event).__name__)

    def close(self):
        self.fail("close")

    def fail(self, where):
        if where == self.at:
            raise self.error


def notices(sinks, events):
    """The warnings of a run whose events come at the pace of one that trains."""
    seen = []
    with Recorder([*sinks, seen.append]) as recorder:
        for event in events:
            recorder(event)
            time.sleep(0.02 if isinstance(event, WindowClosed | EpochEnded) else 0)
    return [event.text for event in seen if isinstance(event, Notice)], seen


@pytest.mark.parametrize("at", ["start", "RunStarted", "EpochEnded", "RunEnded", "close"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SystemExit(3), KeyError("x")], ids=str)
def test_a_logger_that_fails_anywhere_is_told_once_and_the_run_goes_on(at, error, tmp_path, make, monkeypatch):
    monkeypatch.setattr(Planted, "at", at)
    monkeypatch.setattr(Planted, "error", error)
    told, seen = notices([Beside("planted", lambda: Planted(tmp_path))], make.run(tmp_path))
    assert len(told) == 1 and told[0].startswith("planted ")
    assert "wanted to end the program" in told[0] if isinstance(error, SystemExit) else str(error) in told[0]
    assert sum(isinstance(event, WindowClosed) for event in seen) == 9 and any(isinstance(e, RunEnded) for e in seen)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("RunStarted", "not ready after 0.2 s"),
        ("WindowClosed", "3 events behind"),
        ("RunEnded", "not done after 0.2 s"),
    ],
)
def test_a_logger_that_hangs_keeps_no_window_waiting(kind, words, tmp_path, make):
    def hang(event):
        if type(event).__name__ == kind:
            time.sleep(2)

    started = time.monotonic()
    told, _ = notices([Beside("slow", lambda: hang, patience=0.2, behind=3)], make.run(tmp_path))
    assert len(told) == 1 and words in told[0]
    assert time.monotonic() - started < 1.5


@pytest.mark.parametrize("name", LOGGERS)
def test_a_file_in_the_way_of_its_folder_leaves_a_logger_out(name, tmp_path, make):
    (tmp_path / name).write_text("of the user's")
    told, _ = notices(make_loggers(name, tmp_path), make.run(tmp_path))
    assert len(told) == 1 and told[0].startswith(f"{name} failed at RunStarted and is left out")
    assert (tmp_path / name).read_text() == "of the user's"


def test_a_full_disk_and_a_folder_that_is_gone_leave_out_who_needs_them(tmp_path, make):
    tensorboard, mlflow = (logger_class(name)(tmp_path) for name in ("tensorboard", "mlflow"))
    events = [make.started(tmp_path), *make.epoch(1)]
    for sink in (tensorboard, mlflow):
        sink(events[0])
    tensorboard._file = tensorboard._records._writer = Path("/dev/full").open("wb")  # noqa: SIM115
    (tmp_path / "mlflow").rename(tmp_path / "away")
    told, _ = notices([tensorboard, mlflow], events[1:])
    assert [text.split(" failed at ")[0] for text in told[:2]] == ["tensorboard", "mlflow"]
    assert "No space left on device" in told[0]


def test_training_goes_on_without_a_logger_that_fails(short_run, narrow, monkeypatch):
    from visiontrain import train

    monkeypatch.setattr(Planted, "at", "WindowClosed")
    monkeypatch.setattr(Planted, "error", SystemExit(1))
    monkeypatch.setitem(LOGGERS, "planted", f"{__name__}.Planted")
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Planted.__module__])
    seen = []
    run = train(loggers="planted", callbacks=[seen.append], **short_run)
    assert run.outcome == "finished"
    assert sum(isinstance(e, Notice) and e.text.startswith("planted ") for e in seen) == 1
