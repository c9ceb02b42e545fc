"""Which normalisation a run gets: the table of accumulation.md, section 6, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from visiontrain import models
from visiontrain.config.parse import parse_words
from visiontrain.config.schema import PlanConfig, TrainConfig, build
from visiontrain.errors import ConfigError, Interrupted, WeightsError
from visiontrain.models.weights import load_model, model_of, read_checkpoint
from visiontrain.nn.norm import NORMS, norm_of
from visiontrain.record.events import MicroBatchDone, Notice, RunStarted
from visiontrain.training import run as recipe
from visiontrain.training.normalisation import LAYERS, Normalisation, choose_norm
from visiontrain.training.plan import make_plan
from visiontrain.training.resume import Resumed
from visiontrain.training.run import train
from visiontrain.training.start import model_to_train, normalisation_of
from visiontrain.training.statistics import AS_IT_IS

torch.set_num_threads(1)


@pytest.mark.parametrize("start", ["", "batch", "group", "frozen"])
def test_auto_swaps_nothing(start):
    """Measured: BatchNorm was ahead of both others with micro-batches of one and two images, too."""
    chosen = choose_norm("auto", start)
    assert chosen.norm == (start or "batch") and not chosen.swapped
    assert chosen.reason.startswith("norm=auto: ")


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("start", ["", "batch", "group", "frozen"])
def test_what_was_asked_for_is_done(norm, start):
    assert choose_norm(norm, start) == Normalisation(norm, f"norm={norm}", start)


@pytest.mark.parametrize(("start", "why"), [("", "from scratch has none"), ("group", "GroupNorm, which has none")])
def test_nothing_is_frozen_where_no_statistics_are(start, why):
    with pytest.raises(ConfigError, match=why) as caught:
        choose_norm("frozen", start)
    assert "norm=group" in str(caught.value) and "model=" in str(caught.value)


def test_every_swap_has_its_sentence():
    told = {
        (norm, start): Normalisation(norm, "why", start).sentence(8, 2)
        for norm in ("batch", "group", "frozen")
        for start in ("", "batch", "group", "frozen")
    }
    assert told["batch", "frozen"] == (
        "BatchNorm (why) in place of the checkpoint's frozen BatchNorm: scale, shift and statistics are kept."
    )
    assert told["batch", "group"] == "BatchNorm (why) in place of the checkpoint's GroupNorm: scale and shift are kept."
    assert told["group", "batch"] == "GroupNorm (why) in place of the checkpoint's BatchNorm: scale and shift are kept."
    assert told["group", ""] == "GroupNorm (why) in place of BatchNorm."
    assert told["group", "group"] == "GroupNorm (why), as in the checkpoint."
    assert "statistics are used and stay" in told["frozen", "batch"]
    assert told["batch", ""] == "BatchNorm sees 8 images at a time; no accumulation changes that."


def test_names_are_those_of_the_layers():
    assert set(LAYERS) == set(NORMS)


def test_sync_is_refused_with_the_reason():
    for settings in (TrainConfig, PlanConfig):
        with pytest.raises(
            ConfigError, match="arrives with several GPUs; until then take auto, batch, group or frozen"
        ):
            parse_words(settings, ["norm=sync", *(["data=x"] if settings is TrainConfig else [])])


def test_the_decision_needs_no_torch():
    code = "import sys; import visiontrain.training.normalisation; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.fixture
def settings(tiny, tmp_path, monkeypatch):
    """A run of one epoch of a narrow model."""
    monkeypatch.setattr(models, "_sizes", lambda family: {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}})
    return {
        "data": str(tiny), "project": str(tmp_path / "runs"), "device": "cpu", "workers": 0, "epochs": 1, "batch": 2,
        "nbs": 8, "imgsz": 64, "warmup_epochs": 0, "plots": False,
    }  # fmt: skip


def go(values, *callbacks):
    return train(build(TrainConfig, values), callbacks).folder


def kinds(model: nn.Module) -> list[str]:
    return [type(m).__name__ for m in model.modules()]


def test_a_decision_is_said_recorded_stored_and_kept(settings, monkeypatch):
    """GroupNorm, in model and average; resume, val and model= have it without deciding."""
    events, jobs = [], []
    begin = recipe.begin

    def watched(*arguments):
        jobs.append(begin(*arguments))
        return jobs[-1]

    def stop(event):
        events.append(event)
        if isinstance(event, MicroBatchDone) and sum(isinstance(e, MicroBatchDone) for e in events) == 6:
            os.kill(os.getpid(), signal.SIGINT)  # in the second window

    monkeypatch.setattr(recipe, "begin", watched)
    with pytest.raises(Interrupted):
        go({**settings, "norm": "group", "name": "run"}, stop)
    folder = jobs[0].folder
    state = jobs[0].state
    assert norm_of(state.model) == "group" and kinds(state.model) == kinds(state.ema.model)
    (started,) = [e for e in events if isinstance(e, RunStarted)]
    assert "GroupNorm (norm=group) in place of BatchNorm." in started.plan
    assert not [e for e in events if isinstance(e, Notice) and "BatchNorm" in e.text]

    def never(*arguments, **named):
        raise AssertionError("decided again")

    monkeypatch.setattr("visiontrain.training.start.choose_norm", never)
    last = folder / "weights" / "last.pt"
    before = json.loads((folder / "run.json").read_text())["computed"]["normalisation"]
    go({"resume": str(last)})
    after = json.loads((folder / "run.json").read_text())["computed"]["normalisation"]
    assert before == after
    assert after["norm"] == "group"
    assert after["swaps"] == [
        {
            "from": "BatchNorm",
            "to": "GroupNorm",
            "layers": kinds(load_model(last)).count("GroupNorm"),
            "reason": "norm=group",
        }
    ]
    assert read_checkpoint(last)["model"]["norm"] == "group"
    assert "BatchNorm2d" not in kinds(load_model(folder / "weights" / "best.pt"))


def test_a_start_from_a_checkpoint_keeps_what_can_be_kept(settings, monkeypatch):
    folder = go(settings)
    assert read_checkpoint(folder / "weights" / "last.pt")["model"]["norm"] == "batch"
    best = folder / "weights" / "best.pt"
    weights = read_checkpoint(best)["weights"]
    states = []
    fit = recipe.fit

    def watched(job):
        states.append((norm_of(job.state.model), {k: v.clone() for k, v in job.state.model.state_dict().items()}))
        return fit(job)

    monkeypatch.setattr(recipe, "fit", watched)
    started = {**settings, "model": str(best)}
    frozen = go({**started, "norm": "frozen"})
    go({**started, "norm": "group"})
    go({**started, "model": str(frozen / "weights" / "best.pt")})
    assert [norm for norm, _ in states] == ["frozen", "group", "frozen"]
    states.pop()  # auto went on with the frozen ones, whose scales and shifts have learned
    for norm, state in states:
        assert state.keys() <= weights.keys()
        assert len(state) == len(weights) - (0 if norm == "frozen" else 3 * sum("running_var" in k for k in weights))
        assert all(torch.equal(value, weights[name]) for name, value in state.items())
    after = read_checkpoint(frozen / "weights" / "last.pt")
    statistics = [name for name in weights if "running" in name]
    assert statistics and all(
        torch.equal(after[part][n], weights[n]) for n in statistics for part in ("weights", "ema")
    )
    assert not torch.equal(after["weights"]["model.0.bn.weight"], weights["model.0.bn.weight"])


def test_a_checkpoint_written_before_there_was_a_choice_goes_on_as_it_is(tmp_path):
    content = {"model": {"norm": "batch"}, "plan": {"images": 13}}
    config = build(TrainConfig, {"data": "x", "batch": 2})
    resumed = Resumed(tmp_path / "last.pt", content, tmp_path, config, ())
    assert normalisation_of(config, resumed) == Normalisation("batch", "as the run began")


def test_an_unknown_normalisation_in_a_checkpoint_is_named():
    content = {"model": {"family": "yolov8", "name": "yolov8n", "names": ["a"], "norm": "layer"}, "kind": "model"}
    with pytest.raises(WeightsError, match=r"normalisation 'layer' is not known here; known are batch, group, frozen"):
        model_of(content, "x.pt")


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"batch": 4}, True),  # 13 images: the last micro-batch holds one
        ({"batch": 1}, True),
        ({"batch": 5}, False),
        ({"batch": 4, "last_window": "drop"}, False),
        ({"batch": 4, "norm": "group"}, False),
        ({"batch": 4, "imgsz": 64}, False),
    ],
)
def test_one_value_has_no_variance(changes, refused, settings):
    config = build(TrainConfig, {**settings, "norm": "batch", "imgsz": 32, **changes})
    plan = make_plan(
        batch=config.batch, nbs=4, images=13, epochs=1, weight_decay=0.0, warmup_epochs=0.0,
        last_window=config.last_window, normalisation=normalisation_of(config),
    )  # fmt: skip
    with pytest.raises(ConfigError, match="norm=group") if refused else nullcontext():
        model_to_train(config, ["a"], plan, None, AS_IT_IS)
