"""What is exported finds what its checkpoint finds, and says what it is."""

from __future__ import annotations

import subprocess
import sys

import cv2
import numpy as np
import onnx
import pytest
import torch

import visiontrain
from visiontrain import YOLO, cli
from visiontrain.config.build import build
from visiontrain.config.schema import ValConfig
from visiontrain.data.image import letterbox, read
from visiontrain.errors import ConfigError, ExportError, WeightsError
from visiontrain.evaluation.validation import validate
from visiontrain.exporters import EXPORTERS, check
from visiontrain.models.weights import load_model, load_network


@pytest.fixture(scope="module")
def file(checkpoints):
    """yolov8 as ONNX, made once."""
    return visiontrain.export(model=checkpoints["yolov8n"], pictures=2)


@pytest.fixture(scope="module")
def folder(checkpoints, tmp_path_factory):
    """yolo26 for OpenVINO, by way of ONNX."""
    return visiontrain.export(model=checkpoints["yolo26n"], format="openvino", pictures=2, max_det=50)


def seen(path, picture, imgsz):
    """What a file or checkpoint finds in a picture, letterboxed as prediction does it."""
    network, _ = load_network(path)
    boxed = letterbox(picture, imgsz, network.stride, network.input_size)[0]
    with torch.no_grad():
        return network(torch.from_numpy(boxed).permute(2, 0, 1)[None].float() / 255)


def scored(model, tmp_path, **settings):
    known = {"model": str(model), "device": "cpu", "workers": 0, "plots": False, "project": str(tmp_path)}
    return validate(build(ValConfig, {**known, **settings}))


def test_a_picture_of_810_x_1080_gives_the_same_scores_as_the_checkpoint(file, checkpoints, tmp_path):
    """EXP-01: the checkpoint sees a rectangle and the exported file a square, so that confidences differ."""
    noise = np.random.default_rng(0).integers(0, 255, (27, 36, 3), dtype=np.uint8)
    cv2.imwrite(str(tmp_path / "large.png"), cv2.resize(noise, (1080, 810), interpolation=cv2.INTER_CUBIC))
    mine, its = (seen(path, read(tmp_path / "large.png"), 320) for path in (checkpoints["yolov8n"], file.file))
    assert mine.boxes.shape == its.boxes.shape and its.boxes.shape[1] == (9 * 11 * 21)
    assert mine.scores.std() > 0.01  # there is something to compare
    torch.testing.assert_close(its.scores, mine.scores, atol=1e-4, rtol=0)
    torch.testing.assert_close(its.boxes, mine.boxes, atol=0.1, rtol=0)


@pytest.mark.parametrize("batch", [1, 16])
def test_validation_scores_a_file_as_its_checkpoint(file, checkpoints, tmp_path, batch):
    mine, its = (scored(path, tmp_path, batch=batch, conf=0.2) for path in (checkpoints["yolov8n"], file.file))
    assert len(mine.found.scores) > 50
    np.testing.assert_allclose(np.sort(its.found.scores), np.sort(mine.found.scores), atol=1e-4, rtol=0)
    assert its.metrics == pytest.approx(mine.metrics, abs=1e-3)


def test_prediction_with_a_file_finds_what_the_checkpoint_finds(file, folder, checkpoints, tiny):
    pictures = str(tiny.parent / "images" / "val")
    for exported, name in ((file, "yolov8n"), (folder, "yolo26n")):
        mine, its = (YOLO(path).predict(pictures, conf=0.2, max_det=50) for path in (checkpoints[name], exported))
        assert len(mine) == len(its) > 1 and sum(map(len, mine)) > 20
        for ours, theirs in zip(mine, its, strict=True):
            assert ours.names == theirs.names
            np.testing.assert_allclose(theirs.boxes.conf, ours.boxes.conf, atol=1e-4, rtol=0)
    with pytest.raises(ConfigError, match="max_det=500: it is 50"):
        YOLO(folder).predict(pictures, max_det=500)
    with pytest.raises(ConfigError, match="exported file"):
        YOLO(file).predict(pictures, half=True)
    with pytest.raises(ConfigError, match="exported files run on the CPU"):
        YOLO(file).predict(pictures, device="cuda")


def test_raw_boxes_reach_out_of_the_picture_and_found_ones_do_not(file, tmp_path):
    """EXP-03."""
    raw = seen(file.file, np.zeros((64, 64, 3), np.uint8), 96).boxes
    assert raw.min() < 0
    found = scored(file.file, tmp_path, conf=0.2).found.boxes
    assert found.min() >= 0 and found.max() <= 64


def test_a_model_without_nms_gives_its_best_rows_to_openvino(folder, checkpoints, tmp_path):
    mine, its = (scored(path, tmp_path, max_det=50) for path in (checkpoints["yolo26n"], folder.file))
    np.testing.assert_allclose(its.found.scores, mine.found.scores, atol=1e-4, rtol=0)
    assert its.metrics == pytest.approx(mine.metrics, abs=1e-3) and folder.parity.compared == 100


@pytest.mark.parametrize("name", ["yolov8n", "yolo11n", "yolo26n"])
def test_torchscript_takes_other_sizes_than_the_one_that_was_traced(name, checkpoints, tmp_path):
    out = tmp_path / "a.torchscript"
    visiontrain.export(model=checkpoints[name], format="torchscript", pictures=1, out=out)
    images = torch.rand(3, 3, 160, 32)
    with torch.no_grad():
        mine, its = load_model(checkpoints[name])(images), load_network(out)[0](images)
    if mine.end_to_end:
        best = mine.scores.flatten(1).topk(60).values
        torch.testing.assert_close(its.scores.amax(-1)[:, :60], best, atol=1e-6, rtol=0)
        assert its.boxes.shape[1] == 300 and not its.scores[:, 2 * mine.boxes.shape[1] :].any()
    else:
        torch.testing.assert_close(its.scores, mine.scores, atol=1e-6, rtol=0)
        torch.testing.assert_close(its.boxes, mine.boxes, atol=1e-3, rtol=0)


def test_a_file_holds_nothing_of_the_machine_it_was_made_on(file):
    content = file.file.read_bytes()
    assert b"/visiontrain/" not in content and b"site-packages" not in content
    model = onnx.load(file.file)
    onnx.checker.check_model(model, full_check=True)
    sides = [side.dim_param or side.dim_value for side in model.graph.input[0].type.tensor_type.shape.dim]
    assert sides == ["batch", 3, "height", "width"] and [o.name for o in model.graph.output] == ["output0"]
    assert model.opset_import[0].version == 18


def test_a_file_is_named_after_its_checkpoint_and_stands_for_its_path(file, folder, checkpoints):
    assert file.file == checkpoints["yolov8n"].with_suffix(".onnx")
    assert {each.name for each in folder.file.iterdir()} == {"best.xml", "best.bin", "metadata.yaml"}
    assert visiontrain.YOLO(file).model == str(file.file)
    assert not list(file.file.parent.glob(".*"))


def test_nothing_is_written_over_unless_asked(file, checkpoints, tmp_path, capsys):
    before = file.file.read_bytes()
    assert cli.main(["export", f"model={checkpoints['yolov8n']}"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert file.file.read_bytes() == before
    out = tmp_path / "x.torchscript"
    out.write_bytes(b"old")
    words = [
        "export",
        f"model={checkpoints['yolov8n']}",
        f"out={out}",
        "format=torchscript",
        "exist_ok=true",
        "pictures=1",
    ]
    assert cli.main(words) == 0 and out.stat().st_size > 1000
    theirs = tmp_path / "theirs_openvino_model"
    theirs.mkdir()
    (theirs / "thesis.txt").write_text("dear")
    with pytest.raises(ConfigError, match="is no openvino export"):
        visiontrain.export(model=checkpoints["yolov8n"], out=theirs, format="openvino", exist_ok=True)
    assert (theirs / "thesis.txt").exists()


def test_a_file_that_differs_is_removed(checkpoints, tmp_path, monkeypatch):
    monkeypatch.setitem(EXPORTERS, "torchscript", _of_another_model(EXPORTERS["torchscript"]))
    with pytest.raises(ExportError, match="does not find what the checkpoint finds") as raised:
        visiontrain.export(model=checkpoints["yolov8n"], format="torchscript", out=tmp_path / "x.torchscript")
    assert raised.value.exit_code == 1 and not list(tmp_path.iterdir())


def _of_another_model(write):
    """Writes a model one bias of which is moved a little."""

    def written(layout, metadata, out):
        bias = layout.model.head.cv3[0][2].bias
        bias.data += 0.01
        write(layout, metadata, out)
        bias.data -= 0.01

    return written


def test_detections_of_one_alone_are_counted():
    from visiontrain.prediction.nms import Detections

    boxes = torch.tensor([[0.0, 0, 9, 9], [50, 50, 60, 60]])
    one = Detections(boxes, torch.tensor([0.9, 0.8]), torch.tensor([0, 1]))
    other = Detections(boxes + 1e-3, torch.tensor([0.9, 0.7]), torch.tensor([0, 0]))
    distance, score = check._nearest(one, other)
    assert distance[0] == pytest.approx(1e-3, rel=0.01) and distance[1].isinf() and score[0] == 0


@pytest.mark.parametrize(
    "words",
    [["train", "data=shapes"], ["train", "data=shapes", "resume={}"], ["plan", "images=9"], ["convert", "weights={}", "out=o.pt"],
     ["export"], ["check", "data={data}"]],
)  # fmt: skip
def test_an_exported_file_is_not_trained_resumed_or_converted(words, file, tiny, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    filled = [word.format(file.file, data=tiny) for word in words]
    model = [] if "{}" in "".join(words) else [f"model={file.file}"]
    assert cli.main([*filled, *model]) == WeightsError.exit_code
    assert "an exported file" in capsys.readouterr().err


def test_openvino_sends_and_keeps_nothing(folder, tmp_path):
    """Its telemetry is sent as the package is imported, and notes an identity in the home folder."""
    code = (
        "import sys, pathlib; from visiontrain.models.weights import load_network; "
        "load_network(pathlib.Path(sys.argv[1])); print('openvino' in sys.modules, [m for m in sys.modules if 'openvino_tele' in m])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(folder.file)], capture_output=True, text=True,
        env={"HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert result.stdout.strip() == "True []", result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"conf": 0.1}, "changes nothing without nms=true"),
        ({"batch": 2}, "takes any number of pictures"),
        ({"format": "torchscript", "dynamic": False}, "TorchScript takes any size"),
        ({"format": "torchscript", "nms": True}, "TorchScript has no NMS"),
        ({"format": "onnx", "out": "a.pt"}, "must end in .onnx"),
        ({"format": "tflite"}, "must be onnx, torchscript or openvino"),
        ({"half": True}, "changes nothing in export"),
        ({"opset": 12}, "opset 18"),
        ({"max_det": 9}, "exported with all its predictions"),
    ],
)
def test_settings_that_change_nothing_are_refused(words, said, checkpoints):
    with pytest.raises(ConfigError, match=said):
        visiontrain.export(model=checkpoints["yolo11n"], **words)


def test_metadata_are_those_of_the_contract(file, folder, checkout):
    from test_contracts import differences, documented

    table = documented((checkout / "docs" / "contracts.md").read_text("utf-8"), "An exported file")
    for path in (file.file, folder.file):
        assert differences(load_network(path)[0].metadata.values(), table) == []


def test_check_tries_an_export_and_leaves_nothing(tiny, user_cache, capsys):
    words = [f"data={tiny}", "model=yolo26n", "preflight=false", "imgsz=64", "export=torchscript"]
    assert cli.main(["check", *words]) == 0
    said = capsys.readouterr().out
    assert "pass   export to torchscript" in said and "0 of 1 export failed" in said
    assert not [path for path in user_cache.rglob("*") if "export" in path.name or "trial" in path.name]
    assert cli.main(["check", f"data={tiny}", "export=tflite"]) == 2


def test_check_tells_of_a_model_that_cannot_be_exported(tiny, user_cache, capsys, monkeypatch):
    def refuses(layout, metadata, out):
        raise ExportError("no ONNX for this layer")

    monkeypatch.setitem(EXPORTERS, "torchscript", refuses)
    words = [f"data={tiny}", "preflight=false", "imgsz=64", "export=torchscript", "format=json"]
    assert cli.main(["check", *words]) == 1
    said = capsys.readouterr().out
    assert "FAIL   export to torchscript" in said and "no ONNX for this layer" in said and '"passed": false' in said
