"""augment_device=gpu in a run: refused without a GPU; where torch paints, here on the CPU, the run is the same to rounding."""

from __future__ import annotations

import csv
import json

import cv2
import numpy as np
import pytest
import torch

from visiontrain import models
from visiontrain.checks import preflight
from visiontrain.checks.trial import full_windows
from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.data.loader import training_loader
from visiontrain.data.sampler import WindowSampler
from visiontrain.distributed import ALONE
from visiontrain.errors import ConfigError
from visiontrain.training import run as recipe
from visiontrain.training.resume import resume

NARROW = {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}}


@pytest.fixture
def anywhere(monkeypatch):
    """Torch paints on the CPU what is meant for a GPU."""
    monkeypatch.setattr(recipe, "device_of", lambda config, here: torch.device("cpu"))
    monkeypatch.setattr(models, "_sizes", lambda family: NARROW)


def config_of(tiny, folder, **values):
    plain = {
        "data": str(tiny),
        "project": str(folder),
        "device": "cpu",
        "val": False,
        "imgsz": 64,
        "batch": 4,
        "nbs": 8,
        "albumentations": "none",
    }
    return build(TrainConfig, plain | {"workers": 0, "epochs": 2, "warmup_epochs": 0, **values})


def test_without_a_gpu_it_is_refused_and_says_what_to_do(tiny, tmp_path):
    config = config_of(tiny, tmp_path, augment_device="gpu")
    for begin in (
        lambda: recipe.prepare(config, None),
        lambda: preflight.preflight(config, None, None, print, print),  # before it looks at any data
    ):
        with pytest.raises(
            ConfigError, match=r"augment_device=gpu: .* this run is on cpu; .*device=0.*leave augment_device out"
        ):
            begin()
    assert not list(tmp_path.iterdir())


def test_a_run_is_the_same_to_rounding(tiny, tmp_path, anywhere, capsys):
    one, two = (
        recipe.train(
            config_of(tiny, tmp_path, augment_device=kind, workers=int(kind == "gpu"), mixup=0.3, degrees=5)
        ).folder
        for kind in ("cpu", "gpu")
    )
    first, second = (
        [json.loads(row)["losses"] for row in (each / "updates.jsonl").read_text().splitlines()] for each in (one, two)
    )
    assert len(first) == len(second) == 4
    for name, value in first[0].items():
        assert second[0][name] == pytest.approx(value, rel=2e-3)  # equal weights saw pictures that differ by rounding
    assert first != second  # or nothing was painted by torch
    rows = [list(csv.DictReader((each / "metrics.csv").open()))[-1] for each in (one, two)]
    assert rows[0]["targets_seen"] == rows[1]["targets_seen"] and int(rows[0]["images_seen"]) == 26
    drawn = [cv2.imread(str(each / "train_batch0.jpg")) for each in (one, two)]
    assert np.abs(drawn[0].astype(int) - drawn[1]).mean() < 2  # the plots of what the model saw


def test_where_samples_are_painted_may_change_as_the_device_may(tiny, tmp_path, anywhere):
    folder = recipe.train(config_of(tiny, tmp_path, augment_device="gpu", plots=False, epochs=1)).folder
    last = str(folder / "weights" / "last.pt")
    again = resume(build(TrainConfig, {"resume": last, "augment_device": "cpu"}))
    assert again.changes == ("augment_device: gpu before, cpu from now on",)
    assert again.config.augment.augment_device == "cpu"


def test_check_paints_a_micro_batch_again_and_finds_the_same_pixels(tiny, tmp_path, anywhere):
    setup = recipe.prepare(config_of(tiny, tmp_path, augment_device="gpu"), None, ALONE)
    (window,) = full_windows(setup.plan, 1)
    keys = WindowSampler([(window.start, window.stop)], 4, window.epoch)
    batch = next(training_loader(setup.samples(), keys))
    assert batch.drawings is not None and preflight._made_again(setup, window, batch)
    batch.drawings.pixels[40:60] += 1
    assert not preflight._made_again(setup, window, batch)


def test_pieces_take_more_shared_memory_than_pixels(tiny, tmp_path, anywhere, monkeypatch):
    asked = []
    monkeypatch.setattr(recipe, "fitting_workers", lambda wanted, images, *more: asked.append(images) or 0)
    for kind in ("cpu", "gpu"):
        recipe.prepare(config_of(tiny, tmp_path, augment_device=kind, mixup=0.1), None, ALONE)
    assert asked == [16, 8 * 16]
