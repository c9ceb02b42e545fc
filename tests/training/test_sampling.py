"""Whole runs with everything that decides which pictures are seen, how often and at which size."""

from __future__ import annotations

import json

import pytest
import torch
from training.test_run import assert_same_state, interrupt_in_window

from visiontrain import models
from visiontrain.api import plan
from visiontrain.checks.preflight import at_largest
from visiontrain.cli import main
from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.distributed import Ranks
from visiontrain.errors import ConfigError, Interrupted
from visiontrain.models.weights import read_checkpoint
from visiontrain.training import autobatch
from visiontrain.training.run import train

pytestmark = pytest.mark.usefixtures("narrow")


@pytest.fixture
def settings(tiny, tmp_path):
    return {
        "data": str(tiny), "project": str(tmp_path / "runs"), "device": "cpu", "workers": 0, "epochs": 2, "batch": 2,
        "nbs": 4, "norm": "batch", "imgsz": 64, "warmup_epochs": 0, "close_mosaic": 1, "plots": False,
        "fraction": 0.8, "balance": "images", "balance_threshold": 0.9, "class_weights": "sun:2", "multi_scale": 0.5, "rect": True,
    }  # fmt: skip


def go(values, *callbacks):
    return train(build(TrainConfig, values), callbacks)


def test_a_run_with_all_of_it_is_resumed_inside_an_epoch_bit_for_bit(settings):
    shapes = []
    hook = torch.nn.modules.module.register_module_forward_pre_hook(
        lambda module, args: shapes.append(tuple(args[0].shape[2:])) if isinstance(module, models.Detector) else None
    )
    whole = go({**settings, "name": "whole", "val": False})
    hook.remove()
    assert len(set(shapes)) > 1 and all(shapes[i] == shapes[i + 1] for i in range(0, 4, 2))  # one size for a window
    with pytest.raises(Interrupted):
        go({**settings, "name": "cut", "val": False}, interrupt_in_window(4))
    last = whole.folder.parent / "cut" / "weights" / "last.pt"
    assert read_checkpoint(last)["state"]["position"] > 0
    with pytest.raises(ConfigError, match="windows of 4"):
        go({"resume": str(last), "nbs": 8})
    go({"resume": str(last)})
    assert_same_state(whole.folder / "weights" / "last.pt", last)
    content = read_checkpoint(last)
    assert content["state"]["images_seen"] == 20 and content["plan"]["images"] == 10
    told = json.loads((whole.folder / "run.json").read_text())["plan"]
    for part in (
        "10 of 13 train pictures",
        "balance=images",
        "class_weights: from 1",
        "Each window has a size of its own",
    ):
        assert any(part in sentence for sentence in told), part


def test_val_scores_what_was_trained_on(settings, tmp_path, capsys):
    common = {**settings, "epochs": 1, "rect": False, "multi_scale": 0, "balance": "none", "class_weights": "none"}
    del common["balance_threshold"]
    for choice, names in (({"classes": "sea"}, ["sun", "sea"]), ({"single_cls": True}, ["item"])):
        run = go({**common, **choice, "name": "-".join(choice)})
        best = run.folder / "weights" / "best.pt"
        about = read_checkpoint(best)["model"]
        assert (about["names"], about["nc"]) == (names, len(names))
        words = f"model={best} project={tmp_path / 'val'} device=cpu workers=0 plots=false batch=4 format=json".split()
        capsys.readouterr()
        assert main(["val", *words]) == 0
        scores = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert scores["ap"] == run.metrics["ap"]
        if "classes" in choice:
            assert scores["per_class"]["sun"]["instances"] == 0 < scores["per_class"]["sea"]["instances"]
            assert main(["val", *words, "classes=all"]) == 0
            assert json.loads(capsys.readouterr().out.splitlines()[-1])["per_class"]["sun"]["instances"] > 0


def test_the_plan_counts_the_fraction(tiny):
    assert plan(data=str(tiny), fraction=0.5).images == 6
    assert plan(images=118287, fraction=0.1).images == 11829


def test_memory_is_planned_for_the_largest_window(tiny, monkeypatch):
    """batch=auto and the preflight look at the largest size that rect and multi_scale give; the BatchNorm check at the smallest."""
    index = read_split(load_description(tiny), "train")
    values = {"data": str(tiny), "imgsz": "64,96", "multi_scale": 0.5, "batch": 4}
    for more, largest in (({}, (96, 128)), ({"rect": True}, (96, 96)), ({"multi_scale": 0}, (64, 96))):
        config = build(TrainConfig, {**values, **more})  # the pictures are square
        tried = at_largest(config, index)
        assert tried.imgsz == largest and not tried.sampling.rect and not tried.sampling.multi_scale
        sizes = []
        monkeypatch.setattr(autobatch, "crowded", lambda *given, seen=sizes: seen.append(given[2]) or 1 / 0)
        probe = autobatch.Probe(
            config, index, Ranks(torch.device("cpu")), lambda: models.build_model("yolov8n", index.names)
        )
        with pytest.raises(ZeroDivisionError):
            probe.window(1)
        assert sizes == [largest]
    settings = {**values, "imgsz": 64, "batch": 1, "norm": "batch", "device": "cpu", "workers": 0}
    with pytest.raises(ConfigError, match="imgsz=32: BatchNorm cannot train on one image of this size"):
        go(settings)
