from __future__ import annotations

import inspect

import pytest
import torch

from tools.plain_train import plain_train
from visiontrain import models
from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.models.weights import read_checkpoint
from visiontrain.training.run import train

torch.set_num_threads(1)


@pytest.fixture
def config(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(models, "_sizes", lambda family: {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}})
    values = {
        "data": str(tiny),
        "project": str(tmp_path / "runs"),
        "device": "cpu",
        "workers": 0,
        "epochs": 2,
        "batch": 2,
        "nbs": 4,
        "imgsz": 64,
        "warmup_epochs": 1,
        "close_mosaic": 1,
        "plots": False,
        "val": False,
    }
    return build(TrainConfig, values)


def test_it_gives_what_the_trainer_gives(config, capsys):
    """Recovery, evaluation and record are around the numbers, not in them: the averaged weights are equal bit for bit."""
    plain = plain_train(config).state_dict()
    trained = read_checkpoint(train(config).folder / "weights" / "last.pt")["ema"]
    assert plain.keys() == trained.keys()
    for name, value in plain.items():
        assert torch.equal(value, trained[name]), name
    assert "epoch 2" in capsys.readouterr().out


def test_it_stays_readable():
    assert len(inspect.getsource(plain_train).splitlines()) <= 60
