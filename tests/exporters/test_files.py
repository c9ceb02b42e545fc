"""Exported files in the place of models: what they refuse, and NMS inside them. The models are stand-ins that export in a second."""

from __future__ import annotations

from dataclasses import replace

import onnx
import pytest
import torch
from torch import nn

from visiontrain import cli
from visiontrain.errors import ConfigError, WeightsError
from visiontrain.exporters.layout import Layout
from visiontrain.exporters.onnx import write_onnx
from visiontrain.models.exported import device_for
from visiontrain.models.exported.metadata import Metadata, from_texts
from visiontrain.models.weights import load_network
from visiontrain.nn.head import DetectorOutput
from visiontrain.prediction.decode import select
from visiontrain.prediction.nms import as_they_are, non_max_suppression

DENSE = Metadata(
    name="yolov8n", family="yolov8", names=["a", "b"], stride=32, imgsz=64, norm="batch", licence="", dynamic=True, batch=None,
    nms=False, end_to_end=False, conf=None, iou=None, max_det=None, settings={}, version="0", date="2026-01-01T00:00:00+00:00",
)  # fmt: skip
SUPPRESSED = replace(DENSE, nms=True, conf=0.3, iou=0.5, max_det=20)


class Told(nn.Module):
    """Boxes and scores that stand in the picture: of each cell of 4 x 4 a box around its place, as large as its pixels say."""

    def forward(self, images):
        cells = torch.nn.functional.avg_pool2d(images, 4).flatten(2).transpose(1, 2)
        place = torch.arange(cells.shape[1], device=images.device).unsqueeze(-1) * torch.tensor([0.7, 0.3])
        centre, half = place.expand(images.shape[0], -1, -1), 4 + 30 * cells[..., 2:]
        return DetectorOutput(torch.cat((centre - half, centre + half), -1), cells[..., :2])


@pytest.fixture(scope="module")
def suppressed(tmp_path_factory):
    path = tmp_path_factory.mktemp("nms") / "a.onnx"
    write_onnx(Layout(Told(), SUPPRESSED), SUPPRESSED, path)
    return path


@pytest.fixture(scope="module")
def fixed(tmp_path_factory):
    path = tmp_path_factory.mktemp("fixed") / "a.onnx"
    metadata = replace(DENSE, dynamic=False, batch=2, imgsz=[64, 96])
    write_onnx(Layout(Told(), metadata), metadata, path)
    return path


@pytest.mark.parametrize("spread", [1.0, 6.0, 0.01])
def test_nms_inside_is_that_of_prediction(suppressed, spread):
    """Per class, several classes of one box, the best max_det of the picture; with little spread nothing scores above conf."""
    torch.manual_seed(0)
    cells = (torch.rand(3, 3, 24, 16) * spread).clamp(max=1)
    images = cells.repeat_interleave(4, 2).repeat_interleave(4, 3)
    mine = Told()(images)
    expected = non_max_suppression(select(mine.boxes, mine.scores, 0.3), iou=0.5, max_det=20)
    its = load_network(suppressed)[0](images)
    assert its.end_to_end and its.boxes.shape == (3, 20, 4)
    found = as_they_are(select(its.boxes, its.scores, 0.0, max_candidates=20))
    assert [len(each) for each in found] == [len(each) for each in expected]
    assert any(map(len, found)) == (spread > 0.1)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.scores, other.scores, atol=1e-5, rtol=0)
        torch.testing.assert_close(one.boxes.sort(0).values, other.boxes.sort(0).values, atol=1e-4, rtol=0)
        assert one.classes.sort().values.tolist() == other.classes.sort().values.tolist()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_file_of_fixed_batch_takes_any_number_of_pictures(fixed, count):
    network, settings = load_network(fixed)
    images = torch.rand(count, 3, 64, 96)
    assert network.input_size == (64, 96) and settings["imgsz"] == [64, 96]
    torch.testing.assert_close(network(images).scores, Told()(images).scores)
    torch.testing.assert_close(network(images).boxes, Told()(images).boxes, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("asked", "said"),
    [({"conf": 0.1}, "scores below 0.3"), ({"iou": 0.7}, "it is 0.5"), ({"max_det": 21}, "it is 20")],
)
def test_what_is_inside_cannot_be_asked_otherwise(suppressed, asked, said):
    network, _ = load_network(suppressed)
    with pytest.raises(ConfigError, match=said):
        network.require(asked)
    network.require({"conf": 0.4, "iou": 0.5, "max_det": 10, "imgsz": (640, 640), "batch": 3})
    assert "conf=0.3 iou=0.5 max_det=20" in network.about_nms
    with pytest.raises(ConfigError, match="NMS is inside"):
        network.use_nms(False)


def test_val_hands_over_what_was_given(suppressed, fixed, tiny, tmp_path, capsys):
    words = [f"data={tiny}", "workers=0", f"project={tmp_path}", "plots=false"]
    assert cli.main(["val", f"model={suppressed}", "conf=0.001", *words]) == 2
    assert cli.main(["val", f"model={fixed}", "imgsz=64", *words]) == 2
    assert cli.main(["val", f"model={fixed}", "device=cuda", *words]) == 2
    said = capsys.readouterr().err
    assert "conf=0.001" in said and "imgsz=64: it is 64,96" in said and "exported files run on the CPU" in said


def test_auto_is_the_cpu_for_exported_files():
    assert [device_for("a.onnx", "auto"), device_for("a_openvino_model/", "CPU"), device_for("a.pt", "auto")] == [
        "cpu",
        "cpu",
        "auto",
    ]


@pytest.mark.parametrize("name", ["a.onnx", "a.torchscript", "a_openvino_model"])
@pytest.mark.parametrize("content", [b"", b"nonsense" * 40])
def test_damaged_files_are_refused(name, content, tmp_path):
    with pytest.raises(WeightsError, match="no such file"):
        load_network(tmp_path / name)
    if name.endswith("_model"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metadata.yaml").write_bytes(content)
        (tmp_path / name / "a.xml").write_bytes(content)
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(WeightsError, match=name):
        load_network(tmp_path / name)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema_version": "2"}, "metadata schema 2"),
        ({"schema_version": None}, "not exported by visiontrain"),
        ({"stride": "[1"}, "cannot be read"),
        ({"stride": '"32"'}, r"damaged \(stride\)"),
        ({"names": "[1]"}, "damaged"),
        ({"imgsz": "[1, 2, 3]"}, "damaged"),
        ({"dynamic": "false"}, "damaged"),
        ({"max_det": None}, r"damaged \(max_det\)"),
    ],
)
def test_metadata_are_read_as_they_were_written_and_checked(changes, said, tmp_path):
    texts = DENSE.texts()
    assert from_texts(texts, tmp_path) == DENSE
    for key, value in changes.items():
        texts.pop(key) if value is None else texts.update({key: value})
    with pytest.raises(WeightsError, match=said):
        from_texts(texts, tmp_path)


THEIRS = {"names": "{0: 'a', 1: 'b'}", "stride": "32", "imgsz": "[64, 96]", "task": "detect", "license": "AGPL-3.0"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [({}, ""), ({"task": "segment"}, "task segment"), ({"names": "__import__('os')"}, "cannot be read"), ({"names": "['a']"}, "5, anchors")],
)  # fmt: skip
def test_an_ultralytics_file_of_the_same_layout_is_read(fixed, changes, said, tmp_path):
    model = onnx.load(fixed)
    onnx.helper.set_model_props(model, {**THEIRS, **changes})
    path = tmp_path / "theirs.onnx"
    path.write_bytes(model.SerializeToString())
    if said:
        with pytest.raises(WeightsError, match=said):
            load_network(path)
        return
    network, _ = load_network(path)
    images = torch.rand(3, 3, 64, 96)
    assert (network.class_names, network.licence, network.input_size) == (("a", "b"), "AGPL-3.0", (64, 96))
    torch.testing.assert_close(network(images).scores, Told()(images).scores)
