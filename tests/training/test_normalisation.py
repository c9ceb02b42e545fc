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
from visiontrain.actions import run_plan
from visiontrain.config.build import build
from visiontrain.config.schema import PlanConfig, TrainConfig
from visiontrain.errors import ConfigError, Interrupted, WeightsError
from visiontrain.models.weights import load_model, model_of, read_checkpoint
from visiontrain.nn.norm import NORMS, norm_layers, norm_of, swap_norms
from visiontrain.record.events import MicroBatchDone, Notice, RunStarted
from visiontrain.training import run as recipe
from visiontrain.training.normalisation import LAYERS, Normalisation, choose_norm
from visiontrain.training.plan import make_plan
from visiontrain.training.resume import Resumed
from visiontrain.training.run import train
from visiontrain.training.start import model_to_train, model_with, normalisation_of
from visiontrain.training.statistics import AS_IT_IS

torch.set_num_threads(1)


@pytest.mark.parametrize("start", ["", "batch", "group", "frozen"])
def test_auto_swaps_nothing(start):
    """Measured: BatchNorm was ahead of both others with micro-batches of one and two images, too."""
    chosen = choose_norm("auto", start)
    assert chosen.norm == (start or "batch") and not chosen.swapped
    assert chosen.reason.startswith("norm=auto: ")


@pytest.mark.parametrize("norm", ["batch", "sync", "group"])
@pytest.mark.parametrize("start", ["", "batch", "sync", "group", "frozen"])
def test_what_was_asked_for_is_done(norm, start):
    assert choose_norm(norm, start, ranks=2) == Normalisation(norm, f"norm={norm}", start)


def test_sync_needs_several_ranks():
    with pytest.raises(
        ConfigError, match=r"norm=sync: .* there is one\. Use norm=batch, which is the same on one rank"
    ):
        choose_norm("sync")
    with pytest.raises(ConfigError, match="norm=sync"):
        run_plan(build(PlanConfig, {"norm": "sync"}))


def test_auto_goes_on_with_sync_where_there_are_ranks():
    several = choose_norm("auto", "sync", ranks=2)
    assert several.norm == "sync" and not several.swapped
    assert choose_norm("auto", "sync") == Normalisation("batch", "norm=auto: the same on one rank", "sync")
    assert choose_norm("auto", ranks=8).norm == "batch"
    assert choose_norm("frozen", "sync").norm == "frozen"


def test_sync_in_a_plan():
    plan = run_plan(build(PlanConfig, {"norm": "sync", "ranks": 4, "batch": 8, "images": 800}))
    assert plan.sentences()[-1] == (
        "SyncBatchNorm (norm=sync) sees 8 images at a time, those of all 4 ranks, and every layer waits for them."
    )
    assert plan.facts()["normalisation"] == {"norm": "sync", "reason": "norm=sync", "start": ""}
    few = run_plan(build(PlanConfig, {"ranks": 4, "batch": 8, "images": 800})).sentences()[-1]
    assert few.startswith("BatchNorm (norm=auto: from scratch) sees 2 images at a time on each rank;") and few.endswith(
        "norm=sync takes them over the 8 images of all ranks."
    )
    assert "norm=sync" not in run_plan(build(PlanConfig, {"batch": 2, "images": 800})).sentences()[-1]


@pytest.mark.parametrize(("start", "why"), [("", "from scratch has none"), ("group", "GroupNorm, which has none")])
def test_nothing_is_frozen_where_no_statistics_are(start, why):
    with pytest.raises(ConfigError, match=why) as caught:
        choose_norm("frozen", start)
    assert "norm=group" in str(caught.value) and "model=" in str(caught.value)


def test_every_swap_has_its_sentence():
    told = {
        (norm, start): Normalisation(norm, "why", start).sentence(8, 2)
        for norm in ("batch", "sync", "group", "frozen")
        for start in ("", "batch", "sync", "group", "frozen")
    }
    assert told["batch", "frozen"] == (
        "BatchNorm (why) in place of the checkpoint's frozen BatchNorm: scale, shift and statistics are kept."
    )
    assert told["batch", "sync"] == (
        "BatchNorm (why) in place of the checkpoint's SyncBatchNorm: scale, shift and statistics are kept."
    )
    assert told["sync", "sync"] == "SyncBatchNorm (why) sees 8 images at a time, as BatchNorm on one rank."
    assert told["batch", "group"] == "BatchNorm (why) in place of the checkpoint's GroupNorm: scale and shift are kept."
    assert told["group", "batch"] == "GroupNorm (why) in place of the checkpoint's BatchNorm: scale and shift are kept."
    assert told["group", ""] == "GroupNorm (why) in place of BatchNorm."
    assert told["group", "group"] == "GroupNorm (why), as in the checkpoint."
    assert "statistics are used and stay" in told["frozen", "batch"]
    assert told["batch", ""] == "BatchNorm sees 8 images at a time; no accumulation changes that."


def test_names_are_those_of_the_layers():
    assert set(LAYERS) == set(NORMS)


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


def test_a_checkpoint_with_sync_is_batchnorm_again_and_goes_on_with_sync(settings, tmp_path):
    """The same tensors: for val and model= on one process as BatchNorm, in the run that is resumed as it was."""
    model = models.build_model("yolov8n", ["a"])
    swap_norms(model, "sync")
    normalisation = Normalisation("sync", "norm=sync")
    content = {
        "model": model.description(), "kind": "training", "ema": model.state_dict(),
        "plan": {"normalisation": normalisation.facts()},
    }  # fmt: skip
    assert content["model"]["norm"] == "sync"
    loaded = model_of(content, "last.pt")
    assert norm_of(loaded) == "batch" and "SyncBatchNorm" not in kinds(loaded)
    assert all(torch.equal(a, b) for a, b in zip(loaded.state_dict().values(), content["ema"].values(), strict=True))
    config = build(TrainConfig, settings)
    resumed = Resumed(tmp_path / "last.pt", content, tmp_path, config, ())
    plan = make_plan(
        batch=2, nbs=8, images=13, epochs=1, weight_decay=0.0, warmup_epochs=0.0,
        normalisation=normalisation_of(config, resumed),
    )  # fmt: skip
    assert plan.normalisation == normalisation  # on one rank, too
    again = model_to_train(config, ["a"], plan, resumed, AS_IT_IS)
    assert kinds(again).count("SyncBatchNorm") == norm_layers(model) == norm_layers(again)
    assert norm_of(model_with(config, ["a"], "sync")) == "batch"  # tried alone, it must wait for nobody


def test_an_unknown_normalisation_in_a_checkpoint_is_named():
    content = {"model": {"family": "yolov8", "name": "yolov8n", "names": ["a"], "norm": "layer"}, "kind": "model"}
    with pytest.raises(
        WeightsError, match=r"normalisation 'layer' is not known here; known are sync, batch, group, frozen"
    ):
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
        ({"batch": 2, "ranks": 2, "last_window": "drop"}, True),
        ({"batch": 10, "ranks": 2}, True),  # of the last three, one rank gets one
        ({"batch": 2, "ranks": 2, "last_window": "drop", "norm": "sync"}, False),  # BN-02
        ({"batch": 10, "ranks": 2, "norm": "sync"}, False),
        ({"batch": 4, "ranks": 2, "norm": "sync"}, True),
    ],
)
def test_one_value_has_no_variance(changes, refused, settings):
    ranks = changes.get("ranks", 1)
    changes = {name: value for name, value in changes.items() if name != "ranks"}
    config = build(TrainConfig, {**settings, "norm": "batch", "imgsz": 32, **changes})
    plan = make_plan(
        batch=config.batch, nbs=4, images=13, epochs=1, weight_decay=0.0, warmup_epochs=0.0, ranks=ranks,
        last_window=config.last_window, normalisation=normalisation_of(config, ranks=ranks),
    )  # fmt: skip
    with pytest.raises(ConfigError, match="norm=group") if refused else nullcontext():
        model_to_train(config, ["a"], plan, None, AS_IT_IS)
