"""From a checkpoint to other classes, with and without frozen layers, for every family and normalisation."""

from __future__ import annotations

import json

import pytest
import torch
from training.test_run import assert_same_state, interrupt_in_window
from training.test_sampling import go

from visiontrain.config.build import build
from visiontrain.config.schema import ValConfig
from visiontrain.errors import ConfigError, Interrupted
from visiontrain.evaluation.validation import validate
from visiontrain.losses import DualDetectionLoss
from visiontrain.models import MODELS
from visiontrain.models.weights import load_model, read_checkpoint
from visiontrain.nn.norm import norm_of
from visiontrain.training import setup as preparing

pytestmark = pytest.mark.usefixtures("narrow")


@pytest.fixture
def sea(tiny, tmp_path):
    """The same pictures with the labels of one class."""
    for file in (tiny.parent / "labels").rglob("*.txt"):
        rows = [row[1:] for row in file.read_text().splitlines() if row.startswith("1")]
        mine = tmp_path / "sea" / file.relative_to(tiny.parent)
        mine.parent.mkdir(parents=True, exist_ok=True)
        mine.write_text("".join(f"0{row}\n" for row in rows))
    (tmp_path / "sea/images").symlink_to(tiny.parent / "images")
    (tmp_path / "sea/data.yaml").write_text("train: images/train\nval: images/val\nnames: [sea]\n")
    return str(tmp_path / "sea/data.yaml")


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("family", sorted(MODELS))
def test_a_checkpoint_of_one_class_becomes_one_of_two(short_run, sea, family, norm):
    """Saved, loaded, validated and fine-tuned again; the plan says what was taken over, the record has it."""
    first = go({**short_run, "data": sea, "model": f"{family}n", "norm": norm, "name": "one"})
    best = first.folder / "weights/best.pt"
    second = go({**short_run, "model": str(best), "name": "two"})
    record = json.loads((second.folder / "run.json").read_text())
    (said,) = (sentence for sentence in record["plan"] if sentence.startswith("Transferred"))
    assert record["computed"]["transferred"]["fresh"] == ["sun"]
    assert "1 of 2 classes by name (sea); fresh: sun; 1 of 2 rows" in said
    model = load_model(second.folder / "weights/best.pt")
    assert norm_of(model) == norm and model.class_names == ("sun", "sea")
    found = validate(build(ValConfig, {"model": str(second.folder / "weights/best.pt"), "plots": False, "workers": 0,
                                       "project": short_run["project"], "device": "cpu"}))  # fmt: skip
    assert found.metrics["ap"] == pytest.approx(second.metrics["ap"], abs=1e-12)


@pytest.mark.parametrize("family", ["yolo26", "yolov8"])
def test_what_is_frozen_stays_and_a_resumed_run_keeps_it_so(short_run, family):
    start = go({**short_run, "model": f"{family}n", "name": "start"}).folder / "weights/best.pt"
    given = {**short_run, "model": str(start), "freeze": "backbone"}
    whole = go({**given, "name": "whole"})
    with pytest.raises(Interrupted):
        go({**given, "name": "cut"}, interrupt_in_window(4))
    last = whole.folder.parent / "cut/weights/last.pt"
    go({"resume": str(last)})
    assert_same_state(whole.folder / "weights/last.pt", last)
    before, after = load_model(start).state_dict(), read_checkpoint(last)
    backbone = [name for name in before if int(name.split(".")[1]) < MODELS[family].backbone]
    for weights in (after["weights"], after["ema"]):
        assert all(torch.equal(before[name], weights[name]) for name in backbone)
        assert not all(torch.equal(before[name], weights[name]) for name in before)


def test_a_frozen_name_that_is_not_there_is_said_before_anything_is_written(short_run, tmp_path):
    with pytest.raises(ConfigError, match=r"nothing to train called model\.30"):
        go({**short_run, "freeze": "model.30"})
    assert not (tmp_path / "runs").exists()


def test_nms_cannot_be_left_out_where_there_is_one_head(short_run, tmp_path):
    with pytest.raises(ConfigError, match="nms=false: yolov8n finds each object several times and needs NMS"):
        go({**short_run, "nms": False})
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("nms", "head"), [(None, "one-to-one head, which needs no NMS"), (True, "one-to-many head, with NMS")]
)
def test_the_plan_says_which_head_is_scored(short_run, nms, head):
    given = {} if nms is None else {"nms": nms}
    run = go({**short_run, "model": "yolo26n", **given})
    record = json.loads((run.folder / "run.json").read_text())
    assert sum(head in sentence for sentence in record["plan"]) == 1


def test_the_shares_of_two_heads_follow_the_images_of_applied_windows(short_run, monkeypatch):
    """From 0.8 to 0.1 over the run, one share in all micro-batches of a window; the first call is the proof of terms."""
    seen = []

    class Watched(DualDetectionLoss):
        def __call__(self, output, targets):
            seen.append(self.share)
            return super().__call__(output, targets)

        def at(self, progress):
            return Watched(self.gains, self.class_weights, progress)

    monkeypatch.setitem(preparing.LOSSES, "dual_detection", Watched)
    go({**short_run, "model": "yolo26n", "epochs": 2})
    windows = [4, 4, 4, 1] * 2
    done = [sum(windows[:k]) / 26 for k, images in enumerate(windows) for _ in range(-(-images // 2))]
    assert seen[1:] == pytest.approx([0.8 - 0.7 * progress for progress in done])
