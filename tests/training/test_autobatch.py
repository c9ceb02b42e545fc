from __future__ import annotations

import numpy as np
import pytest
import torch

from visiontrain import models
from visiontrain.config.build import build
from visiontrain.config.image_size import ImageSize
from visiontrain.config.schema import AUTO, PlanConfig, TrainConfig, ValConfig
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.distributed import Ranks
from visiontrain.errors import ConfigError, OutOfMemory
from visiontrain.memory import NoRoom
from visiontrain.models import build_model
from visiontrain.training import autobatch
from visiontrain.training import run as recipe
from visiontrain.training.autobatch import Probe, candidates, choose, crowded, find_batch, search, try_all

CPU = Ranks(torch.device("cpu"))


class Allocator:
    """A device on which a batch needs a fixed part and a part for each image."""

    def __init__(self, total, fixed=100, each=50):
        self.total, self.fixed, self.each, self.asked = total, fixed, each, []

    def __call__(self, batch):
        self.asked.append(batch)
        needed = self.fixed + self.each * batch
        return NoRoom("CUDA out of memory") if needed > self.total else needed

    def found(self, sizes):
        return choose(try_all(sizes, self, self.total), self.total, "a test")


@pytest.mark.parametrize(
    ("nbs", "images", "ranks", "expected"),
    [
        (64, 10**6, 1, [1, 2, 4, 8, 16, 32, 64]),
        (60, 10**6, 1, [1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60]),
        (64, 13, 1, [1, 2, 4, 8]),
        (64, 10**6, 4, [4, 8, 16, 32, 64]),
        (7, 3, 2, [2]),
    ],
)
def test_an_update_takes_nbs_images_whatever_fits(nbs, images, ranks, expected):
    assert candidates(nbs, images, ranks) == expected


def test_the_largest_with_a_margin_and_nothing_beyond_the_first_that_fails():
    device = Allocator(total=1000)
    choice = device.found(candidates(64, 10**6))
    assert choice.batch == 16  # 900 bytes: exactly nine tenths
    assert device.asked == [1, 2, 4, 8, 16, 32]
    assert [(t.batch, t.peak, bool(t.said)) for t in choice.tried[-2:]] == [(16, 900, False), (32, 0, True)]
    assert "batch=auto: 16" in choice.sentence() and "10% of them stay free" in choice.sentence()
    assert "more than nbs" not in choice.sentence()
    assert "larger ones would be more than nbs" in Allocator(total=9999).found(candidates(64, 10**6)).sentence()
    assert Allocator(total=999).found(candidates(64, 10**6)).batch == 8  # it would run, but into the margin


def test_more_memory_never_gives_less_and_the_same_gives_the_same():
    found = [Allocator(total).found(candidates(64, 10**6)).batch for total in range(200, 20000, 100)]
    assert found == sorted(found) and found[-1] == 64
    assert found == [Allocator(total).found(candidates(64, 10**6)).batch for total in range(200, 20000, 100)]


@pytest.mark.parametrize("total", [120, 160], ids=["runs out", "only without the margin"])
def test_where_nothing_fits_it_says_so(total):
    with pytest.raises(OutOfMemory, match=r"not even batch=1 fits.*smaller imgsz or a smaller model") as error:
        Allocator(total).found(candidates(64, 10**6))
    assert error.value.exit_code == 5


@pytest.fixture
def index(tiny):
    return read_split(load_description(str(tiny)), "train")


def test_the_most_crowded_pictures_come_first(index):
    counts = np.sort(np.diff(index.box_ends, prepend=0))[::-1]
    batch = crowded(index, 3, ImageSize(64, 64), 4)
    assert torch.bincount(batch.targets.image, minlength=3).tolist() == [counts[i : i + 4].sum() for i in (0, 4, 8)]
    assert batch.images.shape == (3, 3, 64, 64)
    assert batch.targets.boxes.min() >= 0 and batch.targets.boxes.max() <= 64
    assert (
        len(crowded(index, 20, ImageSize(64, 64), 1).targets) == counts.sum() + counts[:7].sum()
    )  # 13 pictures, then again


def test_the_probe_runs_real_windows_on_a_model_of_its_own_and_leaves_random_numbers_alone(index, monkeypatch):
    monkeypatch.setattr(models, "_sizes", lambda family: {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}})
    monkeypatch.setattr(autobatch, "candidates", lambda *arguments: [1, 2])
    made = []

    def model():
        made.append(build_model("yolov8n", index.names))
        return made[-1]

    random = torch.get_rng_state()
    choice = search(build(TrainConfig, {"data": "d", "imgsz": 64}), index, CPU, model)
    assert torch.equal(torch.get_rng_state(), random)
    (probed,) = made
    assert choice.batch == 2 and [t.batch for t in choice.tried] == [1, 2]
    assert all(0 < t.peak < choice.within for t in choice.tried)
    assert all(p.grad is None for p in probed.parameters())
    torch.manual_seed(0)
    fresh = build_model("yolov8n", index.names)
    torch.manual_seed(0)
    search(build(TrainConfig, {"data": "d", "imgsz": 64}), index, CPU, model)
    moved = [k for k, v in fresh.named_parameters() if not torch.equal(v, made[1].get_parameter(k))]
    assert "model.0.conv.weight" in moved  # an update was really made


def test_the_probe_reports_what_does_not_fit(index, monkeypatch):
    monkeypatch.setattr(models, "_sizes", lambda family: {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}})
    probe = Probe(
        build(TrainConfig, {"data": "d", "imgsz": 64}), index, CPU, lambda: build_model("yolov8n", index.names)
    )

    def validation(images):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(probe, "validation", validation)
    assert probe(1) == NoRoom("OutOfMemoryError: CUDA out of memory")


def test_on_the_cpu_it_has_no_meaning_and_is_16(tiny, tmp_path):
    config = build(TrainConfig, {"data": str(tiny), "batch": "auto", "device": "cpu", "project": str(tmp_path)})
    assert config.batch == AUTO
    setup = recipe.prepare(config, None)
    setup.val_loader.close()
    assert setup.config.batch == setup.plan.batch == 16 and setup.val_loader.batch == 32
    assert "no meaning on the CPU: 16" in setup.auto.sentence()
    assert find_batch(config, setup.train, CPU, lambda: None, deterministic=True).tried == ()


def test_other_verbs_need_a_number():
    for settings in (PlanConfig, ValConfig):
        with pytest.raises(ConfigError, match="batch=auto: takes a whole number at least 1"):
            build(settings, {"batch": "auto"})
