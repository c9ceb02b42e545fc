"""imgsz=height,width from the words to the checkpoint and back (AUG-09 of public reports: [h, w] became the larger one)."""

from __future__ import annotations

import json

import pytest
import torch
import yaml

from visiontrain import models
from visiontrain.cli import main
from visiontrain.config.build import build
from visiontrain.config.parse import parse_words
from visiontrain.config.schema import TrainConfig
from visiontrain.errors import ConfigError
from visiontrain.models.weights import read_checkpoint
from visiontrain.training.resume import resume
from visiontrain.training.run import train

pytestmark = pytest.mark.usefixtures("narrow")


def test_height_and_width_reach_the_model_the_files_and_validation(tiny, tmp_path, capsys):
    shapes = []

    def watch(module, args):
        shapes.append(tuple(args[0].shape[2:]))

    hook = torch.nn.modules.module.register_module_forward_pre_hook(
        lambda module, args: watch(module, args) if isinstance(module, models.Detector) else None
    )
    words = [f"data={tiny}", f"project={tmp_path}", "imgsz=64,96", "epochs=1", "batch=4", "nbs=8", "workers=0"]
    config = parse_words(TrainConfig, [*words, "device=cpu", "plots=false", "mosaic=0.5", "warmup_epochs=0"])
    result = train(config)
    hook.remove()
    assert set(shapes[:4]) == {(64, 96)}  # training
    assert set(shapes[4:]) == {(96, 96)}  # square pictures in validation fit into 64 x 64 and get their margin
    assert json.loads((result.folder / "run.json").read_text())["given"]["settings"]["imgsz"] == [64, 96]
    assert yaml.safe_load((result.folder / "args.yaml").read_text())["imgsz"] == [64, 96]
    again = parse_words(TrainConfig, [f"cfg={result.folder / 'args.yaml'}"])
    assert again.imgsz == config.imgsz == (64, 96)
    last = result.folder / "weights" / "last.pt"
    assert read_checkpoint(last)["model"]["imgsz"] == [64, 96]
    assert resume(build(TrainConfig, {"resume": str(last), "imgsz": "64,96"})).config.imgsz == (64, 96)
    with pytest.raises(ConfigError, match=r"imgsz=64: this run was begun with imgsz=\[64, 96\]"):
        resume(build(TrainConfig, {"resume": str(last), "imgsz": 64}))
    best = str(result.folder / "weights" / "best.pt")
    said = f"model={best} project={tmp_path / 'val'} device=cpu workers=0 plots=false batch=4".split()
    assert main(["val", *said, "format=json"]) == 0  # as trained
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["ap"] == result.metrics["ap"]
    assert yaml.safe_load((tmp_path / "val" / "val" / "args.yaml").read_text())["imgsz"] == [64, 96]
