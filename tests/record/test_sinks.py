from __future__ import annotations

import csv
import json
import math

import pytest

from visiontrain.record.events import Counters, FactsChanged, Notice, Pictures, RunEnded
from visiontrain.record.files import write_json
from visiontrain.record.run import Recorder, default_sinks, trim
from visiontrain.record.sinks import SINKS
from visiontrain.record.sinks.csv import MetricsCsv
from visiontrain.record.sinks.jsonl import UpdatesJsonl
from visiontrain.record.sinks.run_json import RunJson

REQUIRED = [
    "epoch",
    "time",
    "micro_batches",
    "updates_attempted",
    "updates_applied",
    "images_seen",
    "targets_seen",
    "train/box_loss",
    "train/cls_loss",
    "train/dfl_loss",
    "metrics/precision",
    "metrics/recall",
    "metrics/ap50",
    "metrics/ap",
    "lr",
]


def rows_of(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def lines_of(folder):
    return [json.loads(line) for line in (folder / "updates.jsonl").read_text().splitlines()]


def record_of(folder):
    return json.loads((folder / "run.json").read_text())


def files(folder):
    return Recorder([MetricsCsv(folder), UpdatesJsonl(folder), RunJson(folder)])


def feed(recorder, events):
    for event in events:
        recorder(event)


def keys_in(value):
    if isinstance(value, dict):
        yield from value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from keys_in(item)


@pytest.mark.parametrize("name", SINKS)
def test_every_sink_takes_a_whole_run(name, tmp_path, make):
    feed(SINKS[name](tmp_path), make.run(tmp_path))


def test_metrics_csv_has_its_columns_and_the_numbers_come_back(tmp_path, make):
    feed(files(tmp_path), make.run(tmp_path))
    rows = rows_of(tmp_path)
    assert list(rows[0])[: len(REQUIRED)] == REQUIRED
    assert [int(row["images_seen"]) for row in rows] == [192, 384, 576]
    for number, row in enumerate(rows, 1):
        event = make.epoch_ended(number)
        assert float(row["time"]) == event.seconds
        assert float(row["metrics/ap"]) == event.metrics["ap"]
        assert [float(row[f"train/{part}"]) for part in event.losses] == list(event.losses.values())


def test_an_epoch_without_evaluation_has_empty_cells(tmp_path, make):
    feed(files(tmp_path), [make.started(tmp_path), make.epoch_ended(1, metrics={}, best=False)])
    assert rows_of(tmp_path)[0]["metrics/ap"] == ""
    assert record_of(tmp_path)["measured"]["metrics"] == {"best": {}, "last": {}}


def test_updates_jsonl_has_a_row_per_window_and_the_numbers_come_back(tmp_path, make):
    feed(files(tmp_path), make.run(tmp_path))
    lines = lines_of(tmp_path)
    assert [line["updates_attempted"] for line in lines] == list(range(1, 10))
    assert lines[4]["losses"] == make.window(5).losses
    assert lines[4]["lr"] == make.window(5).lr
    assert (lines[4]["window_images"], lines[4]["window_micro_batches"], lines[4]["epoch"]) == (64, 8, 2)


def test_a_skipped_window_is_a_row_with_its_reason_and_strict_json(tmp_path, make):
    skipped = make.window(
        2, applied=False, reason="loss is not finite", gradient_norm=math.nan, losses={"box_loss": math.inf}
    )
    feed(files(tmp_path), [make.started(tmp_path), make.window(1), skipped, RunEnded("failed", "stopped")])
    row = lines_of(tmp_path)[1]
    assert (row["applied"], row["reason"], row["gradient_norm"], row["losses"]) == (
        False,
        "loss is not finite",
        None,
        {"box_loss": None},
    )
    assert record_of(tmp_path)["measured"]["skipped"] == {"loss is not finite": 1}


def test_no_key_is_named_step(tmp_path, make):
    feed(files(tmp_path), make.run(tmp_path))
    keys = [*keys_in(record_of(tmp_path)), *keys_in(lines_of(tmp_path)), *rows_of(tmp_path)[0]]
    assert [key for key in keys if "step" in key.lower()] == []


def test_run_json_says_of_each_number_how_it_came_about(tmp_path, make):
    feed(files(tmp_path), make.run(tmp_path))
    record = record_of(tmp_path)
    assert (record["given"]["batch"], record["computed"]["accumulate"], record["measured"]["images_seen"]) == (
        8,
        8,
        576,
    )
    assert record["measured"]["metrics"]["best"]["ap"] == make.epoch_ended(3).metrics["ap"]
    assert record["measured"]["memory"]["peak"] == 10**9 + 9
    assert record["measured"]["seconds"] == make.epoch_ended(3).seconds
    numbers = {key for key, value in record.items() if isinstance(value, int | float)}
    assert numbers == {"schema_version"}  # every other one stands in a section


def test_run_json_knows_the_phase_of_the_work(tmp_path, make):
    recorder, phases = files(tmp_path), []
    for event in (make.started(tmp_path), make.window(1), make.epoch_ended(1), RunEnded("finished", "")):
        recorder(event)
        phases.append((record_of(tmp_path)["phase"], record_of(tmp_path)["outcome"]))
    assert phases[0] == ("preparation", "running")
    assert phases[2:] == [("attempt", "running"), ("accepted", "finished")]


def test_an_interrupted_run_is_not_accepted(tmp_path, make):
    feed(files(tmp_path), [make.started(tmp_path), make.window(1), RunEnded("interrupted", "Ctrl-C")])
    assert (record_of(tmp_path)["phase"], record_of(tmp_path)["reason"]) == ("attempt", "Ctrl-C")


def test_run_json_is_rewritten_now_and_then_within_an_epoch(tmp_path, make):
    time = [0.0]
    sink = RunJson(tmp_path, every=10.0, clock=lambda: time[0])
    sink(make.started(tmp_path))
    seen = []
    for number in range(1, 5):
        time[0] += 4.0
        sink(make.window(number))
        seen.append(record_of(tmp_path)["measured"]["updates_attempted"])
    assert seen == [0, 0, 3, 3]


def test_facts_and_warnings_of_the_run_reach_the_record(tmp_path, make):
    shrink = FactsChanged({"shrinks": [{"updates_attempted": 1, "micro_batch": 4}], "memory": {"of": "process"}})
    notices = [Notice("slow disk", "warning"), Notice("slow disk", "warning"), Notice("hello")]
    feed(files(tmp_path), [make.started(tmp_path), make.window(1), shrink, *notices, make.epoch_ended(1)])
    record = record_of(tmp_path)
    assert record["measured"]["shrinks"] == [{"updates_attempted": 1, "micro_batch": 4}]
    assert record["measured"]["memory"] == {"peak": 10**9 + 1, "of": "process"}
    assert record["warnings"] == ["slow disk"]


def test_pictures_and_curves_can_be_left_out(tmp_path):
    assert len(default_sinks(tmp_path, plots=False)) == len(default_sinks(tmp_path)) - 2


# A sink that fails


class Broken:
    name = "broken"

    def __init__(self, error):
        self.calls, self.error = 0, error

    def __call__(self, event):
        self.calls += 1
        raise self.error


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyError("x"), ZeroDivisionError()])
def test_a_failing_sink_is_reported_once_and_dropped(tmp_path, make, error):
    broken, seen = Broken(error), []
    feed(Recorder([broken, seen.append, UpdatesJsonl(tmp_path)]), make.run(tmp_path))
    warnings = [event for event in seen if isinstance(event, Notice)]
    assert broken.calls == 1
    assert len(warnings) == 1
    assert warnings[0].level == "warning"
    assert "broken failed at RunStarted" in warnings[0].text
    assert type(error).__name__ in warnings[0].text
    assert len(lines_of(tmp_path)) == 9


def test_two_sinks_that_fail_at_everything_do_not_stop_a_run(tmp_path, make):
    feed(Recorder([Broken(OSError()), Broken(OSError())]), make.run(tmp_path))


def test_ctrl_c_is_not_a_failing_sink(tmp_path, make):
    with pytest.raises(KeyboardInterrupt):
        Recorder([Broken(KeyboardInterrupt())])(make.started(tmp_path))


def test_sinks_are_closed_after_an_error_too(tmp_path, make):
    closed = []

    class Holding:
        def __init__(self, name, error=None):
            self.name, self.error = name, error

        def __call__(self, event):
            pass

        def close(self):
            closed.append(self.name)
            if self.error:
                raise self.error

    with pytest.raises(RuntimeError, match="the run's own"), Recorder([Holding("a", OSError()), Holding("b")]):
        raise RuntimeError("the run's own")
    assert closed == ["a", "b"]


# Resume


def test_rows_past_the_checkpoint_are_cut(tmp_path, make):
    trim(tmp_path, Counters())
    feed(files(tmp_path), make.run(tmp_path))
    whole = [(tmp_path / name).read_bytes() for name in ("metrics.csv", "updates.jsonl")]
    trim(tmp_path, make.counters(3, 1))
    assert [row["epoch"] for row in rows_of(tmp_path)] == ["1"]
    assert [line["updates_attempted"] for line in lines_of(tmp_path)] == [1, 2, 3]
    feed(files(tmp_path), [make.started(tmp_path, resumed_epoch=1), *make.epoch(2), *make.epoch(3)])
    assert [(tmp_path / name).read_bytes() for name in ("metrics.csv", "updates.jsonl")] == whole


@pytest.mark.parametrize("lost", range(1, 60, 7))
def test_a_half_written_last_line_is_survived(tmp_path, make, lost):
    feed(files(tmp_path), [make.started(tmp_path), *make.epoch(1), *make.epoch(2)])
    for name in ("metrics.csv", "updates.jsonl"):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[:-lost])
    trim(tmp_path, make.counters(5, 1))
    assert [row["epoch"] for row in rows_of(tmp_path)] == ["1"]
    assert [line["updates_attempted"] for line in lines_of(tmp_path)] == [1, 2, 3, 4, 5]


def test_zeros_of_a_power_cut_are_cut(tmp_path, make):
    feed(files(tmp_path), [make.started(tmp_path), *make.epoch(1)])
    for name in ("metrics.csv", "updates.jsonl"):
        with (tmp_path / name).open("ab") as file:
            file.write(b"\0" * 40 + b"\n")
    trim(tmp_path, make.counters(9, 3))
    assert (len(rows_of(tmp_path)), len(lines_of(tmp_path))) == (1, 3)


def test_a_half_written_header_begins_anew(tmp_path, make):
    (tmp_path / "metrics.csv").write_text("epoch,ti")
    trim(tmp_path, make.counters(1, 0))
    feed(files(tmp_path), [make.started(tmp_path), make.epoch_ended(1)])
    assert [row["epoch"] for row in rows_of(tmp_path)] == ["1"]


def test_a_new_run_in_an_old_folder_begins_anew(tmp_path, make):
    feed(files(tmp_path), make.run(tmp_path))
    trim(tmp_path, Counters())
    feed(files(tmp_path), [make.started(tmp_path), *make.epoch(1)])
    assert (len(rows_of(tmp_path)), len(lines_of(tmp_path))) == (1, 3)
    assert record_of(tmp_path)["measured"]["resumes"] == []


def test_the_record_of_a_resumed_run_counts_as_if_never_killed(tmp_path, make):
    skipped = make.window(2, applied=False, reason="not finite", clipped=True)
    first = [make.started(tmp_path), make.window(1, clipped=True), skipped, make.window(3), make.epoch_ended(1)]
    lost = make.window(4, applied=False, reason="not finite")
    feed(files(tmp_path), [*first, lost, make.epoch_ended(2)])
    before = record_of(tmp_path)
    assert before["measured"]["skipped"] == {"not finite": 2}
    before["started"] = "2026-01-02T03:04:05+00:00"
    before["measured"]["shrinks"] = [{"updates_attempted": n, "micro_batch": 4} for n in (2, 4)]
    write_json(tmp_path / "run.json", before)

    trim(tmp_path, make.counters(3, 1))
    recorder = files(tmp_path)
    recorder(make.started(tmp_path, resumed_epoch=1))
    record = record_of(tmp_path)
    assert record["started"] == before["started"]
    assert record["phase"] == "attempt"
    measured = record["measured"]
    assert [shrink["updates_attempted"] for shrink in measured["shrinks"]] == [2]
    assert (measured["updates_attempted"], measured["epochs"], measured["clipped"]) == (3, 1, 2)
    assert measured["skipped"] == {"not finite": 1}
    assert measured["metrics"]["best"] == {"epoch": 1, **make.epoch_ended(1).metrics}
    assert [resume["updates_attempted"] for resume in measured["resumes"]] == [3]
    feed(recorder, [make.window(4), make.epoch_ended(2)])
    assert record_of(tmp_path)["measured"]["skipped"] == {"not finite": 1}


def test_a_pictures_event_without_pictures_draws_nothing(tmp_path):
    SINKS["pictures"](tmp_path)(Pictures("train_batch0", (), (), (), None, ("cat",)))
    assert list(tmp_path.iterdir()) == []
