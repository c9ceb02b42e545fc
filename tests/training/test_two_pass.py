"""Runs of a detector whose loss terms share parameters; what a window in two passes computes is in tests/laws."""

from __future__ import annotations

import json
import os
import signal

import pytest
import torch
from laws.test_out_of_memory import everything, fitted, of_kind, windows_of_an_epoch
from laws.toys import relative
from laws.two_terms import HelpedDetector, HelpedLoss
from training.test_run import assert_same_state

from visiontrain import models
from visiontrain.checks.preflight import preflight
from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.errors import ConfigError, Interrupted
from visiontrain.models.weights import read_checkpoint
from visiontrain.record.events import MicroBatchDone, WindowClosed
from visiontrain.training import run as recipe
from visiontrain.training import start as beginning
from visiontrain.training.precision import Precision
from visiontrain.training.run import prepare, train

pytestmark = pytest.mark.usefixtures("helped")
NARROW = {"depth": 0.33, "width": 0.0625, "widest": 1024}


@pytest.fixture
def helped(monkeypatch):
    """The family and its loss, for one test; a sixteenth of the width."""
    monkeypatch.setattr(models, "_sizes", lambda family: {"n": NARROW})
    monkeypatch.setitem(models.MODELS, "helped", HelpedDetector)
    monkeypatch.setitem(recipe.LOSSES, "helped", HelpedLoss)


@pytest.fixture
def settings(tiny, tmp_path):
    values = {"data": str(tiny), "project": str(tmp_path / "runs"), "device": "cpu", "workers": 0, "plots": False}
    values |= {"epochs": 1, "batch": 4, "nbs": 8, "imgsz": 64, "warmup_epochs": 0, "close_mosaic": 1, "val": False}
    return values | {"model": "helpedn"}


def test_a_run_says_and_records_that_its_windows_run_twice(settings):
    events = []
    result = train(build(TrainConfig, settings), [events.append])
    record = json.loads((result.folder / "run.json").read_text())
    model = HelpedDetector("helpedn", ["sun", "sea"], **NARROW)
    shared = [name for name, _ in model.named_parameters() if not name.startswith("model.22.")]
    sentence = f"The loss terms detect and count share {len(shared)} parameter tensors, so each window runs twice"
    assert [line for line in record["plan"] if line.startswith(sentence)]
    assert record["computed"]["window_passes"] == 2
    assert record["measured"]["updates_applied"] == 2
    assert [e.images for e in of_kind(events, WindowClosed)] == [8, 5]
    assert sum(e.images for e in of_kind(events, MicroBatchDone)) == 13  # the bar counts one pass
    content = read_checkpoint(result.folder / "weights" / "last.pt")
    assert {int(v) for k, v in content["weights"].items() if k.endswith("num_batches_tracked")} == {4}
    assert content["state"]["provisional"].keys() == {"detect", "count"}


def test_a_run_with_one_term_says_nothing(settings):
    result = train(build(TrainConfig, {**settings, "model": "yolov8n"}))
    record = json.loads((result.folder / "run.json").read_text())
    assert record["computed"]["window_passes"] == 1
    assert "twice" not in " ".join(record["plan"])


def test_a_run_that_goes_on_ends_as_one_that_was_not_stopped(settings, tmp_path):
    def interrupt(event):
        if isinstance(event, WindowClosed) and event.epoch == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    whole = train(build(TrainConfig, {**settings, "epochs": 2, "name": "whole"}))
    with pytest.raises(Interrupted):
        train(build(TrainConfig, {**settings, "epochs": 2, "name": "cut"}), [interrupt])
    last = tmp_path / "runs" / "cut" / "weights" / "last.pt"
    train(build(TrainConfig, {"resume": str(last)}))
    assert_same_state(whole.folder / "weights" / "last.pt", last)


def run_under_pressure(settings, monkeypatch, failing):
    """An epoch in float64 whose loss finds no memory at the calls in ``failing``."""
    calls = []

    class Pressed(HelpedLoss):
        def __call__(self, output, targets):
            calls.append(torch.is_grad_enabled())
            if len(calls) in failing:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().__call__(output, targets)

    begin = recipe.job_of

    def without_the_proof(*arguments):
        job = begin(*arguments)
        calls.clear()
        return job

    start = beginning.starting_model
    with monkeypatch.context() as patch:
        patch.setattr(beginning, "starting_model", lambda *a: start(*a).double())
        patch.setattr(recipe, "choose_precision", lambda device, amp: Precision(device, torch.float64))
        patch.setattr(recipe, "job_of", without_the_proof)
        patch.setitem(recipe.LOSSES, "helped", Pressed)
        return fitted({**settings, "norm": "group"}, windows_of_an_epoch), calls


def test_out_of_memory_in_either_pass_costs_nothing(settings, monkeypatch):
    """Calls 1 and 2 of the loss are the first pass of the first window, 3 and 4 its second."""
    calm, passes = run_under_pressure(settings, monkeypatch, ())
    assert passes == [False, False, True, True] * 2
    for failing in ((2,), (4,), (5, 7)):
        pressed, _ = run_under_pressure(settings, monkeypatch, failing)
        assert len(pressed.state.shrinks) == len(failing)
        assert pressed.state.ledger.closed == {"applied": 13}
        assert relative(everything(pressed.state), everything(calm.state)) <= 1e-9


def test_blocks_computed_again_change_no_bit(settings):
    plain, again = (
        fitted({**settings, "checkpoint_blocks": blocks, "name": f"{blocks}"}, windows_of_an_epoch)
        for blocks in (False, True)
    )
    assert torch.equal(everything(plain.state), everything(again.state))


def test_a_detector_that_keeps_its_terms_apart_in_words_alone_is_refused(settings, monkeypatch):
    """A dual head must never fall into two passes unasked."""

    def apart(model):
        aux = list(model.model["22"].aux.parameters())
        own = {id(p) for p in aux}
        return {"detect": [p for p in model.parameters() if p.requires_grad and id(p) not in own], "count": aux}

    monkeypatch.setattr(HelpedDetector, "term_parameters", apart)
    with pytest.raises(
        ConfigError, match=r"'count' reaches \d+ parameters of another term.*or let term_parameters\(\)"
    ):
        train(build(TrainConfig, settings))


def test_the_check_passes(settings):
    setup = prepare(build(TrainConfig, settings), None)
    found = preflight(setup.config, setup.train, setup.val, lambda plan: None, lambda what: None)
    assert not found.failed, found.failed
