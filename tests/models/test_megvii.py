"""YOLOX's checkpoints as its authors write them: read, told of, refused."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
import torch

import visiontrain
from visiontrain import cli
from visiontrain.errors import WeightsError
from visiontrain.models.megvii import for_our_pixels
from visiontrain.models.weights import load_model, read_checkpoint

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def published(shared):
    return shared / "reference" / "parity" / "yolox-nano-random.pth"


@pytest.fixture
def state(published):
    return torch.load(published, weights_only=True)["model"]


def test_convert_and_predict(published, shared, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["convert", f"weights={published}", "out=ours.pt"]) == 0
    said = capsys.readouterr().out
    assert "yolox_nano, 80 classes, 912,159 parameters" in said
    assert "licence Apache-2.0 (of the published weights; the file names none); weights under" in said
    ours, theirs = load_model(tmp_path / "ours.pt"), load_model(published)
    assert all(torch.equal(a, b) for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True))
    assert ours.licence.startswith("Apache-2.0") and ours.class_names[:2] == ("person", "bicycle")
    assert read_checkpoint("ours.pt")["model"]["imgsz"] == 416
    picture = next((shared / "data" / "coco128").rglob("*.jpg"))
    found = [visiontrain.predict(picture, model=file, device="cpu", conf=0)[0] for file in ("ours.pt", published)]
    assert len(found[0].boxes) and np.array_equal(*(each.boxes.xyxy for each in found))


def test_what_training_left_in_a_file_is_passed_over(published, state, tmp_path):
    """Their trainer stores an OrderedDict with versions in it, an optimizer, and scores that are NumPy's."""
    weights = OrderedDict(state)
    weights._metadata = OrderedDict({"": {"version": 1}})
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    layer(torch.ones(2)).sum().backward()
    optimizer.step()
    content = {"start_epoch": 3, "model": weights, "optimizer": optimizer.state_dict(), "best_ap": np.float64(0.3)}
    torch.save(content, tmp_path / "latest_ckpt.pth")
    torch.save(
        {"model": {name: t.half() if t.is_floating_point() else t for name, t in state.items()}, "amp": {}},
        tmp_path / "half.pt",
    )
    whole = load_model(published).state_dict()
    for name, tolerance in (("latest_ckpt.pth", 0), ("half.pt", 1e-2)):
        read = load_model(tmp_path / name).state_dict()
        for key, tensor in read.items():
            assert tensor.dtype == whole[key].dtype
            torch.testing.assert_close(tensor, whole[key], rtol=tolerance, atol=tolerance)


def test_classes_that_are_not_cocos_are_numbered(state, tmp_path):
    few = {name: t[:3] if "cls_preds" in name else t for name, t in state.items()}
    torch.save({"model": few}, tmp_path / "mine.pth")
    assert load_model(tmp_path / "mine.pth").class_names == ("class0", "class1", "class2")


def without(state, name):
    return {key: tensor for key, tensor in state.items() if key != name}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda s: without(s, "backbone.C3_n4.conv1.conv.weight"),
            r"nearest is yolox_nano, of which 1 differ, the first model.23.cv1",
        ),
        (lambda s: {**s, "head.more": torch.ones(1)}, "of which 1 differ, the first model.24.more"),
        (
            lambda s: {**s, "head.stems.0.conv.weight": torch.ones(60, 64, 1, 1)},
            "the first model.24.stems.0.conv.weight",
        ),
        (lambda s: without(s, "head.cls_preds.0.weight"), "number of classes is not known"),
        (lambda s: {**s, "head.cls_preds.0.weight": torch.ones(())}, "number of classes is not known"),
        (lambda s: {**s, "head.scale": 1.0}, r"a weight that is no tensor, head\.scale"),
        (lambda s: {**s, 7: torch.ones(1)}, "not named by short text"),
        (lambda s: {**s, "x" * 300: torch.ones(1)}, "not named by short text"),
        (lambda s: {f"teacher.{name}": t for name, t in s.items()}, "no visiontrain checkpoint"),
    ],
)
def test_other_files_are_refused_with_the_reason(state, tmp_path, change, reason):
    torch.save({"model": change(state)}, tmp_path / "other.pth")
    with pytest.raises(WeightsError, match=reason):
        read_checkpoint(tmp_path / "other.pth")


def test_the_first_convolution_sees_what_it_saw():
    """There: blue, green, red of the four pixels of a block, the left ones first, each from top to bottom."""
    torch.manual_seed(0)
    weight, picture = torch.randn(2, 12, 3, 3), torch.rand(1, 3, 8, 8)
    bgr = picture.flip(1)
    theirs = torch.cat([bgr[..., y::2, x::2] for x in (0, 1) for y in (0, 1)], 1)
    ours = torch.nn.functional.pixel_unshuffle(picture, 2)
    torch.testing.assert_close(
        torch.nn.functional.conv2d(ours, for_our_pixels(weight)), torch.nn.functional.conv2d(theirs, weight)
    )


def test_it_is_trained_on_and_keeps_licence_and_pixels(published, short_run, capsys):
    run = visiontrain.train(**short_run, model=published)
    said = capsys.readouterr().out
    assert "licence Apache-2.0" in said and "yolox's recipe" in said and "0 of 2 classes by name" in said
    model = load_model(run.best)
    assert model.licence.startswith("Apache-2.0") and float(model.model["0"].white) == 255
