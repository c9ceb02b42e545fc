"""Whole runs on a small data set: what stops, what is skipped, what is resumed, what is left behind."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal

import pytest
import torch

from visiontrain import models
from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.errors import ConfigError, DataError, Interrupted, TrainingStopped, WeightsError
from visiontrain.losses import DetectionLoss, LossSum, Term
from visiontrain.models.weights import load_model, read_checkpoint
from visiontrain.record.events import EpochEnded, MicroBatchDone, WindowClosed
from visiontrain.training import run as recipe
from visiontrain.training.precision import Precision
from visiontrain.training.run import train


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    """A sixteenth of the width: the machinery is tested here, not the network."""
    size = {"depth": 0.33, "width": 0.0625, "widest": 1024}
    monkeypatch.setattr(models, "_sizes", lambda family: {"n": size})


@pytest.fixture
def settings(tiny, tmp_path):
    """Settings of a run of 3 epochs of 4 windows or so."""
    return {
        "data": str(tiny),
        "project": str(tmp_path / "runs"),
        "device": "cpu",
        "workers": 0,
        "epochs": 3,
        "batch": 2,
        "nbs": 4,
        "norm": "batch",  # running statistics are the hardest to restore
        "imgsz": 64,
        "warmup_epochs": 1,
        "close_mosaic": 1,
        "plots": False,
    }


def go(values, *callbacks):
    return train(build(TrainConfig, values), callbacks)


def tensors(path):
    content = read_checkpoint(path)
    flat = {f"{part}/{name}": t for part in ("weights", "ema") for name, t in content[part].items()}
    for number, values in content["optimizer"]["state"].items():
        flat |= {f"optimizer/{number}/{name}": torch.as_tensor(v) for name, v in values.items() if v is not None}
    return flat


def assert_same_state(left, right):
    left, right = tensors(left), tensors(right)
    assert left.keys() == right.keys()
    assert [name for name in left if not torch.equal(left[name], right[name])] == []


def rows(folder, name="updates.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def stop_at(window, action):
    """A callback that acts when a window with this number of attempts has closed."""

    def callback(event):
        if isinstance(event, WindowClosed) and event.counters.updates_attempted == window:
            action()

    return callback


def interrupt_in_window(number):
    """A callback that sends Ctrl-C in the middle of a window: after its first micro-batch was announced."""
    seen = []

    def callback(event):
        if isinstance(event, MicroBatchDone):
            seen.append(event)
            if len(seen) == number:
                os.kill(os.getpid(), signal.SIGINT)

    return callback


def test_a_run_leaves_what_it_promises(settings):
    result = go({**settings, "plots": True})
    assert result.outcome == "finished"
    names = {str(p.relative_to(result.folder)) for p in result.folder.rglob("*") if p.is_file()}
    assert {
        "args.yaml",
        "run.json",
        "metrics.csv",
        "updates.jsonl",
        "weights/last.pt",
        "weights/best.pt",
        "results.png",
        "curves.json",
        "report.html",
    } <= names
    assert any(name.startswith("train_batch0") for name in names)
    assert any(name.startswith("val_labels") for name in names)
    assert any(name.startswith("val_predictions") for name in names)
    record = json.loads((result.folder / "run.json").read_text())
    assert record["phase"] == "accepted"
    assert record["measured"]["updates_applied"] == len(rows(result.folder)) == record["computed"]["updates_planned"]
    assert record["measured"]["images_seen"] == 3 * 13
    best = load_model(result.folder / "weights" / "best.pt")
    assert best.class_names == ("sun", "sea")


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_a_run_that_was_interrupted_in_a_window_ends_as_one_that_was_not(settings, optimizer):
    settings["optimizer"] = optimizer
    whole = go({**settings, "name": "whole"})
    with pytest.raises(Interrupted, match="resume="):
        go({**settings, "name": "cut"}, interrupt_in_window(11))  # the second micro-batch of its window
    folder = whole.folder.parent / "cut"
    assert json.loads((folder / "run.json").read_text())["outcome"] == "interrupted"
    resumed = go({"resume": str(folder / "weights" / "last.pt")})
    assert resumed.outcome == "finished"
    assert_same_state(whole.folder / "weights" / "last.pt", folder / "weights" / "last.pt")
    clocked = {"seconds", "memory"}
    mine, theirs = (
        [{k: v for k, v in row.items() if k not in clocked} for row in rows(f)] for f in (folder, whole.folder)
    )
    assert mine == theirs
    with (folder / "metrics.csv").open() as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2", "3"]


def test_rows_past_the_checkpoint_are_cut_and_run_again(settings):
    whole = go({**settings, "name": "whole"})

    class Crash(RuntimeError):
        pass

    def crash():
        raise Crash

    # a callback cannot stop a run, so the crash comes from the loss, in epoch 3, after the checkpoint of epoch 2
    calls = []

    def fail(batch):
        calls.append(batch)
        if len(calls) == 17:
            crash()

    show = recipe._nothing
    recipe._nothing = fail
    try:
        with pytest.raises(Crash):
            go({**settings, "name": "cut"})
    finally:
        recipe._nothing = show
    folder = whole.folder.parent / "cut"
    before = len(rows(folder))
    at = read_checkpoint(folder / "weights" / "last.pt")["state"]
    assert at["updates_attempted"] < before
    go({"resume": str(folder / "weights" / "last.pt")})
    assert [r["updates_attempted"] for r in rows(folder)] == [r["updates_attempted"] for r in rows(whole.folder)]
    assert_same_state(whole.folder / "weights" / "last.pt", folder / "weights" / "last.pt")


def test_a_finished_run_is_resumed_to_nothing(settings):
    result = go({**settings, "epochs": 1})
    before = (result.folder / "weights" / "last.pt").read_bytes()
    again = go({"resume": str(result.folder / "weights" / "last.pt")})
    assert again.outcome == "finished"
    assert (result.folder / "weights" / "last.pt").read_bytes() == before
    assert len(rows(result.folder)) == len(rows(again.folder))


def test_resume_true_takes_the_newest_run(settings):
    go({**settings, "epochs": 1})
    result = go({"resume": "true", "project": settings["project"]})
    assert result.outcome == "finished"


def test_resume_refuses_what_would_change_the_run_and_says_why(settings):
    last = go({**settings, "epochs": 1}).folder / "weights" / "last.pt"
    with pytest.raises(ConfigError, match="imgsz=96: this run was begun with imgsz="):
        go({"resume": str(last), "imgsz": 96})
    with pytest.raises(WeightsError, match="cannot be resumed"):
        go({"resume": str(last.with_name("best.pt"))})
    with pytest.raises(WeightsError, match="no such checkpoint"):
        go({"resume": str(last.with_name("lost.pt"))})


def test_a_setting_typed_again_without_a_change_changes_nothing(settings):
    """optimizer=auto chose lr0 because none was given: lr0=0.01 on resume is the stored value, not a new wish."""
    whole = go({**settings, "name": "whole"})
    with pytest.raises(Interrupted):
        go({**settings, "name": "cut"}, interrupt_in_window(9))
    last = whole.folder.parent / "cut" / "weights" / "last.pt"
    go({"resume": str(last), "lr0": 0.01, "batch": 2})
    assert_same_state(whole.folder / "weights" / "last.pt", last)


def test_resume_with_other_classes_is_refused(settings, tmp_path, tiny):
    last = go({**settings, "epochs": 1}).folder / "weights" / "last.pt"
    other = tmp_path / "other.yaml"
    other.write_text(tiny.read_text().replace("sun", "moon") + f"path: {tiny.parent}\n")
    with pytest.raises(ConfigError, match="moon"):
        go({"resume": str(last), "data": str(other)})


def test_patience_stops_and_more_patience_goes_on(settings, monkeypatch):
    monkeypatch.setattr(recipe, "score", _falling(recipe.score))
    result = go({**settings, "epochs": 4, "patience": 1})
    assert result.outcome == "stopped early"
    last = result.folder / "weights" / "last.pt"
    assert read_checkpoint(last)["state"]["epoch"] == 2
    best = (result.folder / "weights" / "best.pt").read_bytes()
    assert go({"resume": str(last)}).outcome == "stopped early"
    assert go({"resume": str(last), "patience": 50}).outcome == "finished"
    assert (result.folder / "weights" / "best.pt").read_bytes() == best  # a worse epoch replaces nothing


def _falling(score):
    values = iter([0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.04, 0.03, 0.02])

    def falling(*args):
        result = score(*args)
        result.metrics["ap"] = next(values)
        return result

    return falling


class Broken(DetectionLoss):
    """Not finite, or with an overflowing gradient, in chosen micro-batches."""

    def __init__(self, gains, calls, kind):
        super().__init__(gains)
        self.calls, self.kind, self.seen = calls, kind, 0

    def __call__(self, output, targets):
        loss = super().__call__(output, targets)
        self.seen += 1
        if self.seen not in self.calls:
            return loss
        term = loss.terms["detect"]
        if self.kind == "loss":
            return LossSum({"detect": Term(term.total * float("inf"), term.weight)}, loss.parts)
        output.scores.register_hook(lambda g: g * float("inf"))
        return loss


def with_loss(monkeypatch, calls, kind):
    monkeypatch.setitem(recipe.LOSSES, "detection", lambda gains: Broken(gains, calls, kind))
    recipe.LOSSES["detection"].part_names = DetectionLoss.part_names


@pytest.mark.parametrize("kind", ["loss", "gradient"])
@pytest.mark.parametrize("call", [9, 10], ids=["first micro-batch", "last micro-batch"])
def test_a_window_that_is_not_finite_changes_nothing(settings, monkeypatch, kind, call):
    settings["warmup_epochs"] = 0  # windows of two micro-batches: calls 9 and 10 are one window
    settings["epochs"] = 2
    states = []

    def look(event):
        if isinstance(event, WindowClosed):
            states.append((event, snapshot()))

    jobs = []
    begin = recipe.begin
    monkeypatch.setattr(recipe, "begin", lambda *a: jobs.append(begin(*a)) or jobs[-1])

    def snapshot():
        state = jobs[-1].state
        everything = {**state.model.state_dict(), **{f"ema.{k}": v for k, v in state.ema.model.state_dict().items()}}
        for number, values in state.optimizer.state_dict()["state"].items():
            everything |= {f"optimizer.{number}.{k}": torch.as_tensor(v) for k, v in values.items()}
        return {k: v.clone() for k, v in everything.items()}, state.progress_images

    with_loss(monkeypatch, {call}, kind)
    go(settings, look)
    bad = [i for i, (event, _) in enumerate(states) if not event.applied]
    assert len(bad) == 1
    event, (after, progress) = states[bad[0]]
    _, (before, progress_before) = states[bad[0] - 1]
    assert [name for name in before if not torch.equal(before[name], after[name])] == []
    assert progress == progress_before  # the schedule and the EMA's horizon stand still
    assert event.counters.updates_attempted == event.counters.updates_applied + 1
    assert event.reason == {"loss": "non-finite loss", "gradient": "gradient overflow"}[kind]


def test_an_overflow_runs_the_same_images_again_at_a_lower_scale(settings, monkeypatch):
    settings.update(warmup_epochs=0, epochs=1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4)
    monkeypatch.setattr(recipe, "choose_precision", lambda device, amp: Precision(device, scaler=scaler))
    with_loss(monkeypatch, {3, 5}, "gradient")  # window 2 twice: micro-batches 3 and 5 overflow
    events = []
    result = go(settings, events.append)
    windows = [e for e in events if isinstance(e, WindowClosed)]
    assert [(w.applied, w.scale) for w in windows[:4]] == [(True, 16), (False, 16), (False, 8), (True, 4)]
    assert windows[1].images == windows[2].images == windows[3].images
    record = json.loads((result.folder / "run.json").read_text())["measured"]
    assert record["skipped"] == {"gradient overflow": 2}
    assert record["images_seen"] == 13  # nobody was lost and nobody counted twice


def test_ten_skipped_windows_in_a_row_stop_the_run_and_the_checkpoint_stays_good(settings, monkeypatch):
    settings["epochs"] = 6
    with_loss(monkeypatch, set(range(8, 500)), "loss")
    with pytest.raises(TrainingStopped, match="10 windows in a row") as error:
        go(settings)
    last = next((p for p in [error.value.args[0].split("checkpoint is ")[1].split(". Try")[0]]), None)
    assert all(t.isfinite().all() for t in tensors(last).values())


def test_the_same_seed_gives_the_same_weights_for_any_workers(settings):
    settings["epochs"] = 2
    alone = go({**settings, "name": "alone"})
    helped = go({**settings, "name": "helped", "workers": 2})
    assert_same_state(alone.folder / "weights" / "last.pt", helped.folder / "weights" / "last.pt")


def test_one_short_window_in_an_epoch_still_trains(settings):
    settings.update(epochs=1, nbs=64, batch=8, warmup_epochs=0)
    result = go(settings)
    (row,) = rows(result.folder)
    assert row["applied"] and row["images_seen"] == 13 and row["lr"] > 0
    torch.manual_seed(0)
    fresh = models.build_model("yolov8n", ["sun", "sea"])
    trained = read_checkpoint(result.folder / "weights" / "last.pt")["weights"]
    assert not torch.equal(trained["model.0.conv.weight"], fresh.state_dict()["model.0.conv.weight"])


def test_lr_scale_reaches_the_updates_and_the_record(settings):
    """Rule 70: windows of 4 images, a sixteenth of 64."""
    settings.update(epochs=1, warmup_epochs=0, optimizer="SGD", lr0=0.16, lr_scale="linear", lrf=1)
    folder = go(settings).folder
    assert {row["lr"] for row in rows(folder)} == {0.01}
    record = json.loads((folder / "run.json").read_text())
    assert (record["computed"]["optimizer"]["lr0"], record["computed"]["optimizer"]["lr_factor"]) == (0.01, 1 / 16)
    assert any("lr_scale=linear: lr0 0.16 x 4/64 = 0.01" in sentence for sentence in record["plan"])


def test_a_dropped_last_window_is_named_in_the_record(settings):
    settings.update(epochs=2, nbs=4, batch=4, warmup_epochs=0, last_window="drop")
    result = go(settings)
    record = json.loads((result.folder / "run.json").read_text())
    left = record["computed"]["last_window"]["images_left_out"]
    assert [len(names) for names in left.values()] == [1, 1]
    assert record["measured"]["images_seen"] == 24


def test_an_epoch_not_validated_has_an_empty_score_and_the_last_one_always_has_one(settings):
    events = []
    go({**settings, "epochs": 2, "val": False}, events.append)
    metrics = [e.metrics for e in events if isinstance(e, EpochEnded)]
    assert metrics[0] == {} and "ap" in metrics[1]


def test_a_moved_data_set_is_given_anew_on_resume(settings, tiny, tmp_path):
    shutil.copytree(tiny.parent, tmp_path / "here")
    with pytest.raises(Interrupted):
        go({**settings, "data": str(tmp_path / "here" / "data.yaml")}, interrupt_in_window(9))
    (tmp_path / "here").rename(tmp_path / "there")
    last = tmp_path / "runs" / "run" / "weights" / "last.pt"
    with pytest.raises(DataError, match="here"):
        go({"resume": str(last)})
    assert go({"resume": str(last), "data": str(tmp_path / "there" / "data.yaml")}).outcome == "finished"


def test_resume_with_an_optimizer_of_other_groups_is_refused(settings):
    last = go({**settings, "epochs": 1}).folder / "weights" / "last.pt"
    content = torch.load(last, weights_only=True)
    content["optimizer"]["param_groups"].pop()
    content["state"]["epoch"] = 0
    torch.save(content, last)
    with pytest.raises(WeightsError, match="parameter groups"):
        go({"resume": str(last)})


def test_weights_that_are_not_finite_never_replace_a_good_checkpoint(settings, monkeypatch):
    def poison(event):
        if isinstance(event, EpochEnded) and event.epoch == 2:
            jobs[-1].state.ema.model.model["0"].conv.weight.data[0] = float("nan")

    jobs = []
    begin = recipe.begin
    monkeypatch.setattr(recipe, "begin", lambda *a: jobs.append(begin(*a)) or jobs[-1])
    with pytest.raises(TrainingStopped, match="averaged weights are not finite"):
        go(settings, poison)
    content = read_checkpoint(jobs[-1].last)
    assert content["state"]["epoch"] == 1
    assert all(t.isfinite().all() for t in tensors(jobs[-1].last).values())


def test_many_runs_in_one_process_hold_no_more_files_than_one(settings):
    settings.update(epochs=1, workers=1)
    go(settings)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        go(settings)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_ctrl_c_while_the_result_is_scored_is_an_interrupted_run_too(settings, monkeypatch):
    load = recipe.load_model

    def interrupted(path):
        os.kill(os.getpid(), signal.SIGTERM)
        return load(path)

    monkeypatch.setattr(recipe, "load_model", interrupted)
    with pytest.raises(Interrupted, match="SIGTERM"):
        go({**settings, "epochs": 1})
    monkeypatch.setattr(recipe, "load_model", load)
    assert go({"resume": "true", "project": settings["project"]}).outcome == "finished"


def test_signals_are_given_back_after_a_run(settings):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    go({**settings, "epochs": 1})
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
