"""Checkpoints from elsewhere: what Ultralytics' files mean, and every way between them, ours and safetensors."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

import visiontrain
from visiontrain import cli
from visiontrain.boxes import xywh_to_xyxy
from visiontrain.errors import ConfigError, WeightsError
from visiontrain.models import build_model, convert
from visiontrain.models.convert import convert_weights
from visiontrain.models.transfer import for_classes
from visiontrain.models.weights import load_model, read_checkpoint
from visiontrain.nn.norm import swap_norms

REFERENCES = ("yolov8n", "yolo11n", "yolo26n")
HOMES = {"Conv": "conv", "Detect": "head", "DualDetect": "head"}


def same(one, two):
    one, two = one.state_dict(), two.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


# ---- The reference files


@pytest.mark.parametrize("name", REFERENCES)
def test_a_file_of_theirs_gives_their_boxes_and_scores(shared, name):
    folder = shared / "reference" / "parity"
    expected, batch = np.load(folder / f"{name}-expected.npz"), np.load(folder / "batch.npz")
    model = load_model(folder / f"{name}-random.pt")
    about = model.description()
    assert (about["name"], about["nc"], about["licence"], about["norm"]) == (name, 80, "AGPL-3.0", "batch")
    assert about["sppf_activation"] is (name != "yolo26n")
    assert model.parameter_count() == expected["params"]
    if name == "yolo26n":
        model.use_nms(True)  # what the file holds is of the head that needs it
    with torch.inference_mode():
        found = model(torch.from_numpy(batch["images"]).float() / 255)
    boxes, scores = torch.from_numpy(expected["eval/0"]).mT.split((4, 80), -1)
    torch.testing.assert_close(found.boxes, xywh_to_xyxy(boxes), rtol=0, atol=1e-3)
    torch.testing.assert_close(found.scores, scores, rtol=0, atol=1e-5)
    assert "ultralytics" not in sys.modules


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
def test_convert_writes_one_of_ours(shared, tmp_path, monkeypatch, capsys, ending):
    monkeypatch.chdir(tmp_path)
    source = shared / "reference" / "parity" / "yolov8n-random.pt"
    assert cli.main(["convert", f"weights={source}", f"out=new/ours{ending}"]) == 0
    said, out = capsys.readouterr().out, tmp_path / "new" / f"ours{ending}"
    assert f"read {source}: yolov8n, 80 classes, 3,157,200 parameters" in said
    assert "licence AGPL-3.0 (as stored in the file)" in said and f"written to {out}" in said
    assert [path.name for path in out.parent.iterdir()] == [out.name]
    theirs, ours = load_model(source), load_model(out)
    assert same(theirs, ours) and theirs.description() == ours.description()
    before = out.read_bytes()
    assert cli.main(["convert", f"weights={source}", f"out={out}"]) == 2
    assert "nothing is written over" in capsys.readouterr().err and out.read_bytes() == before


# ---- Files made here: their classes by name, with our weights


def their_class(module, name):
    """A class that pickles by a name of theirs."""
    whole = sys.modules.setdefault(module, types.ModuleType(module))
    made = type(name, (nn.Module,), {"__module__": module})
    setattr(whole, name, made)
    return made


def as_theirs(module, kinds):
    """The module with all below it as layers of theirs, or of torch."""
    name = type(module).__name__
    kind = {"ModuleDict": nn.Sequential, "Predictor": nn.Conv2d}.get(name)
    if kind is None and type(module).__module__.startswith("torch."):
        kind = type(module)
    if kind is None:
        if name not in kinds:
            kinds[name] = their_class(f"ultralytics.nn.modules.{HOMES.get(name, 'block')}", name.removeprefix("Dual"))
        kind = kinds[name]
    made = kind.__new__(kind)
    made.__dict__.update(module.__dict__)
    made._modules = {key: as_theirs(child, kinds) for key, child in module._modules.items()}
    return made


@pytest.fixture
def theirs(tmp_path, narrow, monkeypatch):
    """Writes a file as Ultralytics does: ``change`` alters the model, ``content`` the dictionary around it."""

    def make(
        family="yolov8",
        change=lambda model: None,
        names=("sun", "sea"),
        half=True,
        wrap="",
        under="ema",
        other="nothing",
        **content,
    ):
        torch.manual_seed(0)
        model = build_model(f"{family}n", names)
        for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm2d)):
            nn.init.uniform_(norm.running_mean), nn.init.uniform_(norm.running_var)
        change(model)
        with monkeypatch.context() as patch:
            for module in ("nn", "nn.tasks", "nn.modules.conv", "nn.modules.block", "nn.modules.head"):
                patch.setitem(sys.modules, f"ultralytics.{module}", types.ModuleType(f"ultralytics.{module}"))
            patch.setitem(sys.modules, "ultralytics", types.ModuleType("ultralytics"))
            root = their_class("ultralytics.nn.tasks", "DetectionModel")()
            root.model = as_theirs(model.model, {})
            root.names, root.stride = dict(enumerate(names)), torch.tensor([8.0, 16.0, 32.0])
            root.__dict__.update(content.pop("state", {}))
            if wrap:
                outer = their_class("ultralytics.nn.tasks", wrap)()
                outer.student_model = root
                root = outer
            root = root.half() if half else root
            about = {
                "license": "AGPL-3.0",
                "version": "8.4.190",
                "train_args": {"imgsz": 96},
                "model": None,
                "ema": root,
            }
            torch.save({**about, **content}, tmp_path / "theirs.pt")
            model = model.half().float() if half else model
        assert "ultralytics" not in sys.modules
        return tmp_path / "theirs.pt", model.eval()

    return make


@pytest.mark.parametrize("family", ["yolov8", "yolo11", "yolo26"])
def test_family_classes_weights_and_size_are_read(theirs, family):
    path, model = theirs(family)
    content = read_checkpoint(path)
    assert content["model"] == model.description() | {"licence": "AGPL-3.0", "imgsz": 96}
    assert {t.dtype for t in content["weights"].values()} == {torch.float32, torch.int64}
    assert same(load_model(path), model)


@pytest.mark.parametrize("activation", [nn.SiLU, nn.Identity])
@pytest.mark.parametrize("family", ["yolov8", "yolo26"])
def test_the_activation_of_sppf_is_that_of_the_file_and_stays(theirs, tmp_path, family, activation):
    """Three files on: theirs, ours, safetensors."""

    def change(model):
        model.model["9"].cv1.act = activation()

    path, _ = theirs(family, change)
    for out in ("a.pt", "b.safetensors", "c.pt"):
        convert_weights(path, tmp_path / out)
        path = tmp_path / out
        assert type(load_model(path).model["9"].cv1.act) is activation


@pytest.mark.parametrize(("under", "other"), [("ema", "nothing"), ("ema", "empty"), ("model", "nothing")])
def test_the_average_goes_before_the_model_and_either_will_do(theirs, under, other):
    path, model = theirs(under=under, other=other)
    assert same(load_model(path), model)


def test_a_student_of_a_distillation_is_unwrapped(theirs):
    path, model = theirs(wrap="DistillationModel")
    assert same(load_model(path), model)


def test_weights_without_a_licence_say_so(theirs, capsys, tmp_path):
    path, _ = theirs(license=None)
    assert "licence unknown: the file names none" in "\n".join(convert_weights(path, tmp_path / "o.pt").sentences())


def fuse(model):
    conv = model.model["0"]
    conv.conv = nn.Conv2d(3, len(conv.bn.weight), 3, 2, 1)
    del conv.bn


def relu(model):
    model.model["3"].act = nn.ReLU()


def eps(model):
    model.model["3"].bn.eps = 1e-5


def stride(model):
    model.model["3"].conv.stride = (1, 1)


def wider(model):
    model.model["3"].conv = nn.Conv2d(8, 24, 3, 2, 1, bias=False)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"change": fuse}, "a fused export"),
        ({"change": relu}, r"its model.3.act is ReLU, here it is SiLU"),
        ({"change": eps}, r"its model.3.bn has 1e-05 eps, yolov8n has 0.001"),
        ({"change": stride}, r"its model.3.conv has another stride, yolov8n has \(2, 2\)"),
        ({"change": wider}, r"are those of no model here; nearest is yolov8n, of which 1 differ, the first model.3.conv"),
        ({"state": {"names": {0: "a"}}}, "are those of no model here"),
        ({"state": {"names": {1: "a", 2: "b"}}}, "not named by short text, numbered from 0"),
        ({"state": {"names": {0: "a", 1: 7}}}, "not named by short text"),
        ({"state": {"names": None}}, "does not name its classes"),
        ({"state": {"stride": torch.tensor([8.0, 16.0, 64.0])}}, "strides are not known or do not end with 32"),
        ({"state": {"stride": None}}, "strides are not known"),
        ({"wrap": "SegmentationModel", "ema": None}, "no visiontrain checkpoint"),
    ],
)  # fmt: skip
def test_a_model_that_would_compute_something_else_is_refused(theirs, settings, reason):
    path, _ = theirs(**settings)
    with pytest.raises(WeightsError, match=reason):
        load_model(path)


def test_a_segmentation_model_is_refused(tmp_path, monkeypatch):
    for module in ("ultralytics", "ultralytics.nn", "ultralytics.nn.tasks"):
        monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
    torch.save({"model": their_class("ultralytics.nn.tasks", "SegmentationModel")()}, tmp_path / "seg.pt")
    with pytest.raises(
        WeightsError, match=r"ultralytics.nn.tasks.SegmentationModel; of theirs, DetectionModel is read"
    ):
        load_model(tmp_path / "seg.pt")


def test_a_class_branch_of_another_width_is_read(theirs):
    """As of a model that was fine-tuned from one with more classes."""
    wide = build_model("yolov8n", ["sun", "sea"], class_width=24).model["22"]

    def change(model):
        model.model["22"] = wide

    path, _ = theirs(change=change)
    assert load_model(path).class_width == 24 == read_checkpoint(path)["model"]["class_width"]


def test_for_other_classes_the_activation_and_the_licence_stay(theirs):
    def change(model):
        model.model["9"].cv1.act = nn.Identity()

    path, _ = theirs(change=change)
    made, _ = for_classes(load_model(path), ["sea", "sand", "sun"])
    about = made.description()
    assert (about["sppf_activation"], about["licence"], about["nc"]) == (False, "AGPL-3.0", 3)


# ---- Between ours


def ours(path, norm="batch", **more):
    torch.manual_seed(1)
    model = build_model("yolov8n", ["sun", "sea"])
    swap_norms(model, norm)
    about = {
        "schema_version": 1,
        "kind": "model",
        "model": model.description() | {"imgsz": 64},
        "settings": {"imgsz": 64},
    }
    torch.save(
        {**about, "given": [], "versions": {}, "data_fingerprint": "", "weights": model.state_dict(), **more}, path
    )
    return model


@pytest.mark.parametrize("norm", ["batch", "group", "frozen", "sync"])
@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
def test_normalisation_survives_conversion(tmp_path, narrow, norm, ending):
    model = ours(tmp_path / "a.pt", norm)
    convert_weights(tmp_path / "a.pt", tmp_path / f"b{ending}")
    found = load_model(tmp_path / f"b{ending}")
    assert same(found, model)
    assert found.description()["norm"] == ("batch" if norm == "sync" else norm)


def test_of_a_run_the_average_is_converted(tmp_path, narrow):
    average = {key: value + 1 for key, value in ours(tmp_path / "x.pt").state_dict().items()}
    ours(tmp_path / "a.pt", kind="training", ema=average, optimizer={}, metrics={"ap": 0.5}, epoch=3)
    convert_weights(tmp_path / "a.pt", tmp_path / "b.safetensors")
    content = read_checkpoint(tmp_path / "b.safetensors")
    assert content["kind"] == "model" and "ema" not in content and "optimizer" not in content
    assert (content["metrics"], content["epoch"]) == ({"ap": 0.5}, 3)
    assert all(torch.equal(content["weights"][key], average[key]) for key in average)


def test_safetensors_are_those_of_the_format(tmp_path, narrow):
    """Another reader finds the same numbers."""
    model = ours(tmp_path / "a.pt")
    convert_weights(tmp_path / "a.pt", tmp_path / "b.safetensors")
    found = load_file(tmp_path / "b.safetensors")
    assert found.keys() == model.state_dict().keys()
    assert all(torch.equal(found[key], tensor) for key, tensor in model.state_dict().items())
    with safe_open(tmp_path / "b.safetensors", "pt") as file:
        assert file.metadata()["format"] == "pt"
    size = int.from_bytes((tmp_path / "b.safetensors").read_bytes()[:8], "little")
    assert size % 8 == 0


def test_a_conversion_that_fails_leaves_nothing(tmp_path, narrow, monkeypatch):
    ours(tmp_path / "a.pt")

    def full(content, file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(convert, "write_safetensors", full)
    with pytest.raises(ConfigError, match=r"b.safetensors: cannot be written: No space left"):
        convert_weights(tmp_path / "a.pt", tmp_path / "b.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["weights=a.pt"], "out must be given"),
        (["weights=a.pt", "out=b.pth"], "must end in .pt or .safetensors"),
        (["weights=a.pt", "out=b.pt", "format=coco"], "format changes nothing where weights are converted"),
        (["weights=a.pt", "out=b.pt", "data=shapes"], "data changes nothing where weights are converted"),
        (["weights=a.pt", "out=b.pt"], "a.pt: no such checkpoint"),
    ],
)
def test_words_of_convert(tmp_path, monkeypatch, capsys, words, reason):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["convert", *words]) in (2, 4)
    assert reason in capsys.readouterr().err


def test_a_file_of_theirs_is_scored_and_trained_on(theirs, tiny, tmp_path, monkeypatch, capsys):
    """model=theirs.pt in val and train; the licence goes along into the checkpoint."""
    monkeypatch.chdir(tmp_path)
    path, _ = theirs(train_args={"imgsz": 64})
    assert cli.main(["val", f"model={path}", f"data={tiny}", "batch=2", "workers=0", "plots=false", "device=cpu"]) == 0
    assert "licence AGPL-3.0" in capsys.readouterr().out
    run = visiontrain.train(
        model=path, data=tiny, epochs=1, batch=2, nbs=4, imgsz=64, workers=0, plots=False, device="cpu", norm="batch"
    )
    assert "licence AGPL-3.0" in capsys.readouterr().out
    assert read_checkpoint(run.best)["model"]["licence"] == "AGPL-3.0"
