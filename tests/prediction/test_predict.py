"""Prediction as a whole: the same boxes as validation, in order, in little memory; and what it writes and says."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
import yaml

from visiontrain import YOLO, predict
from visiontrain.cli import main
from visiontrain.config.build import build
from visiontrain.config.image_size import image_size
from visiontrain.config.schema import TrainConfig, ValConfig
from visiontrain.data.dataset import EvalSet
from visiontrain.data.description import load_description
from visiontrain.data.index import open_index
from visiontrain.data.loader import evaluation_loader
from visiontrain.errors import ConfigError, DataError, OutOfMemory
from visiontrain.evaluation.evaluator import evaluate
from visiontrain.models import build_model
from visiontrain.models.weights import SCHEMA_VERSION, load_network

SIZES = ((48, 64), (64, 48), (64, 64), (40, 64), (48, 64))


@pytest.fixture(params=["yolov8n", "yolo26n"])
def family(request) -> str:
    return request.param


@pytest.fixture
def checkpoint(narrow, tmp_path) -> str:
    return made("yolov8n", tmp_path)


def made(family: str, folder: Path) -> str:
    """A checkpoint that finds much, and different things in different pictures."""
    torch.manual_seed(0)
    model = build_model(family, ("sun", "sea"))
    for name, weights in model.named_parameters():
        if name.endswith("weight"):
            weights.data += 0.2 * torch.randn_like(weights)
        if len(weights) == 2:  # the last layer of a class branch: scores far apart, about 0.3
            weights.data = torch.full_like(weights, -1) if weights.ndim == 1 else 60 * weights.data
    settings = build(TrainConfig, {"data": "none.yaml", "imgsz": 64}).leaves()
    content = {"schema_version": SCHEMA_VERSION, "kind": "model", "model": model.description(), "settings": settings}
    torch.save({**content, "weights": model.state_dict()}, folder / "best.pt")
    return str(folder / "best.pt")


@pytest.fixture
def pictures(tmp_path) -> Path:
    """Five pictures of several shapes as a split, in images/val."""
    folder = tmp_path / "images" / "val"
    folder.mkdir(parents=True)
    (tmp_path / "labels" / "val").mkdir(parents=True)
    for number, (height, width) in enumerate(SIZES):
        noise = np.random.default_rng(number).integers(0, 255, (6, 6, 3), np.uint8)
        cv2.imwrite(str(folder / f"{number}.png"), cv2.resize(noise, (width, height)))
        (tmp_path / "labels" / "val" / f"{number}.txt").write_text("0 0.5 0.5 0.4 0.4\n")
    (tmp_path / "data.yaml").write_text("train: images/val\nval: images/val\nnames: [sun, sea]\n")
    return folder


@pytest.mark.parametrize("batch", [1, 3])
def test_a_picture_predicted_and_validated_gives_the_same_boxes(family, batch, narrow, tmp_path, pictures):
    path = made(family, tmp_path)
    config = build(ValConfig, {"model": path, "conf": 0.01, "max_det": 50})
    network, _ = load_network(path)
    samples = EvalSet(open_index(load_description(str(tmp_path / "data.yaml")), "val"), image_size(64), 32)
    loader = evaluation_loader(samples, 1, 0, False, 0, 1)
    truth = evaluate(network, loader, device=torch.device("cpu"), scoring=config.scoring, class_names=("sun", "sea"),
                     index=samples.index)  # fmt: skip
    results = predict(str(pictures), model=path, conf=0.01, max_det=50, device="cpu", batch=batch)
    assert [Path(result.path).name for result in results] == [f"{number}.png" for number in range(5)]
    assert sum(map(len, results)) == len(truth.found.scores) > 20
    for number, result in enumerate(results):
        of_it = truth.found.image == number
        assert np.allclose(result.boxes.conf, truth.found.scores[of_it], atol=1e-3)
        if batch == 1:  # else rounding may swap boxes of almost one score
            assert np.allclose(result.boxes.xyxy, truth.found.boxes[of_it], atol=1e-4)
            assert result.boxes.cls.tolist() == truth.found.classes[of_it].tolist()
        assert result.orig_shape == SIZES[number] and result.boxes.xyxy[:, [1, 3]].max() <= SIZES[number][0]


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_what_the_command_line_writes_and_tells(checkpoint, pictures, tmp_path, capsys):
    runs = tmp_path / "runs"
    words = [f"model={checkpoint}", f"source={pictures}", "device=cpu", "max_det=2", "conf=0.01"]
    assert (
        main(
            [
                "predict",
                *words,
                f"project={runs}",
                "save_txt=true",
                "save_conf=true",
                "save_json=true",
                "save_crop=true",
            ]
        )
        == 0
    )
    said = capsys.readouterr().out
    assert "image 2/5" in said and "64x48 2 " in said and f"Saved in {runs / 'predict'}" in said
    written = files_in(runs / "predict")
    assert {"args.yaml", "predictions.json"} | {f"{n}.png" for n in range(5)} <= written
    rows = (runs / "predict" / "labels" / "1.txt").read_text().splitlines()
    assert len(rows) == 2 and all(len(row.split()) == 6 and 0 <= float(row.split()[1]) <= 1 for row in rows)
    content = json.loads((runs / "predict" / "predictions.json").read_text())
    assert content["names"] == ["sun", "sea"] and [len(row["boxes"]) for row in content["pictures"]] == [2] * 5
    boxes = [found["box"] for row in content["pictures"] for found in row["boxes"]]
    with_area = sum(box["x1"] < box["x2"] and box["y1"] < box["y2"] for box in boxes)
    assert sum(name.startswith(("crops/sun/", "crops/sea/")) for name in written) == with_area > 5
    args = yaml.safe_load((runs / "predict" / "args.yaml").read_text())
    assert (args["max_det"], args["source"]) == (2, str(pictures))
    before = cv2.imread(str(pictures / "1.png"))
    assert np.any(cv2.imread(str(runs / "predict" / "1.png")) != before)
    assert main(["predict", *words, "format=json", "save=false"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["boxes"] for line in lines] == [row["boxes"] for row in content["pictures"]]
    assert files_in(runs) == {f"predict/{name}" for name in written}


def test_python_writes_nothing_unasked_and_reads_the_checkpoint_once(checkpoint, pictures, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = files_in(tmp_path)
    model = YOLO(checkpoint)
    first = model(str(pictures / "0.png"), conf=0.01, device="cpu")
    read = model._loaded[1][0]
    assert model.predict(cv2.imread(str(pictures / "0.png")), conf=0.01, device="cpu")[0].boxes.data.equal(
        first[0].boxes.data
    )
    assert model._loaded[1][0] is read and files_in(tmp_path) == before
    model.predict(str(pictures / "0.png"), save=True, device="cpu")
    assert "runs/predict/predict/0.png" in files_in(tmp_path)


def test_a_list_holds_no_pictures_of_files_and_a_stream_is_read_as_it_is_asked_for(checkpoint, pictures):
    results = predict(str(pictures), model=checkpoint, device="cpu")
    assert all(result._image is None for result in results)
    assert np.array_equal(results[1].orig_img, cv2.imread(str(pictures / "1.png")))
    stream = predict(str(pictures), stream=True, model=checkpoint, device="cpu")
    next(stream)
    (pictures / "1.png").unlink()
    assert len(list(stream)) == 3


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(checkpoint, pictures, capsys):
    (pictures / "2.png").write_bytes(b"no picture")
    words = ["predict", f"model={checkpoint}", "device=cpu", "save=false"]
    assert main([*words, f"source={pictures}"]) == 0
    told = capsys.readouterr()
    assert f"warning: {pictures / '2.png'}" in told.err and told.out.count("image ") == 4
    assert main([*words, f"source={pictures / '2.png'}"]) == DataError.exit_code
    assert "nothing could be read" in capsys.readouterr().err
    assert main([*words, f"source={pictures / 'gone.png'}"]) == DataError.exit_code
    assert "gone.png: no such file or folder" in capsys.readouterr().err


def test_pictures_of_one_name_do_not_overwrite_one_another_nor_what_is_the_users(checkpoint, pictures, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "0.png").write_bytes((pictures / "1.png").read_bytes())
    settings = {"model": checkpoint, "device": "cpu", "save": True, "project": str(tmp_path / "runs")}
    predict([pictures / "0.png", other / "0.png"], **settings)
    assert {"0.png", "0_2.png"} <= files_in(tmp_path / "runs" / "predict")
    with pytest.raises(ConfigError, match="nothing is written beside your pictures"):
        predict(other, **{**settings, "project": str(tmp_path), "name": "other", "exist_ok": True})


def test_classes_and_agnostic_choose(checkpoint, pictures):
    settings = {"model": checkpoint, "device": "cpu", "conf": 0.01}
    everything = predict(str(pictures), **settings)
    assert {k for result in everything for k in result.boxes.cls.tolist()} == {0, 1}
    chosen = predict(str(pictures), classes="sea", **settings)
    assert sum(map(len, chosen)) and {k for result in chosen for k in result.boxes.cls.tolist()} == {1}
    assert sum(map(len, predict(str(pictures), agnostic=True, **settings))) < sum(map(len, everything))
    with pytest.raises(ConfigError, match="'moon' is no class of the model"):
        predict(str(pictures), classes="moon", **settings)


def test_settings_that_cannot_be_honoured_are_refused(checkpoint, pictures, tmp_path, capsys):
    with pytest.raises(ConfigError, match="half=true: float16 is for checkpoints on a CUDA device"):
        predict(str(pictures), model=checkpoint, device="cpu", half=True)
    with pytest.raises(ConfigError, match="vid_stride=2: there is no video"):
        predict(str(pictures), model=checkpoint, device="cpu", vid_stride=2)
    with pytest.raises(ConfigError, match="line_width changes nothing without save=true"):
        predict(str(pictures), model=checkpoint, line_width=2)
    with pytest.raises(ConfigError, match="write stream=True"):
        predict(0, model=checkpoint)
    assert main(["predict", "device=cpu"]) == ConfigError.exit_code
    told = capsys.readouterr().err
    assert "model is missing: which checkpoint?" in told and "source is missing: which pictures?" in told
    path = made("yolo26n", tmp_path)
    with pytest.raises(ConfigError, match="iou: yolo26n gives each object one box"):
        predict(str(pictures), model=path, device="cpu", iou=0.5)
    assert predict(str(pictures), model=path, device="cpu", iou=0.5, nms=True)


def test_fewer_pictures_at_once_where_memory_runs_out(checkpoint, pictures, monkeypatch, capsys):
    network, _ = load_network(checkpoint)
    forward, most = type(network).forward, 2

    def small(self, images):
        if len(images) > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return forward(self, images)

    settings = {"model": checkpoint, "device": "cpu", "conf": 0.01, "batch": 5}
    alike = [str(pictures / "0.png")] * 5
    whole = predict(alike, **settings)
    monkeypatch.setattr(type(network), "forward", small)
    for a, b in zip(predict(alike, **settings), whole, strict=True):
        assert np.allclose(a.boxes.conf, b.boxes.conf, atol=1e-4) and len(a) > 10
    assert "2 pictures at a time instead of 5" in capsys.readouterr().err
    most = 0
    with pytest.raises(OutOfMemory, match="one picture of 96 x 96 pixels does not fit"):
        predict(alike, **settings)


@pytest.mark.parametrize("how", [{"augment": True}, {"tile": 32}, {"augment": True, "tile": 32}])
def test_views_give_boxes_inside_the_picture_and_a_threshold_means_the_same(how, checkpoint, pictures):
    settings = {"model": checkpoint, "device": "cpu", "batch": 4, **how}
    low = predict(str(pictures), conf=0.01, **settings)
    scores = torch.cat([result.boxes.conf for result in low]).unique()
    middle = float(scores[len(scores) * 9 // 10 :][:2].mean())
    high = predict(str(pictures), conf=middle, **settings)
    plain = predict(str(pictures), model=checkpoint, device="cpu", conf=0.01)
    assert sum(map(len, low)) > sum(map(len, high)) > 10
    for many, few, once in zip(low, high, plain, strict=True):
        height, width = many.orig_shape
        assert once.boxes.data.tolist() != many.boxes.data.tolist()
        assert (many.boxes.xyxy >= 0).all() and (many.boxes.xyxy <= torch.tensor([width, height] * 2)).all()
        sure = many.boxes[many.boxes.conf > middle]
        assert sure.data.equal(few.boxes.data)


def test_a_video_is_saved_as_one_and_told_of_by_frame(checkpoint, tmp_path):
    video = cv2.VideoWriter(str(tmp_path / "v.mp4"), cv2.VideoWriter.fourcc(*"mp4v"), 10, (64, 48))
    for number in range(6):
        video.write(np.full((48, 64, 3), 40 * number, np.uint8))
    video.release()
    saving = {"save": True, "save_txt": True, "project": str(tmp_path / "runs")}
    results = predict(tmp_path / "v.mp4", model=checkpoint, device="cpu", conf=0.01, vid_stride=2, batch=2, **saving)
    assert [result.frame for result in results] == [0, 2, 4]
    folder = tmp_path / "runs" / "predict"
    assert files_in(folder) == {"args.yaml", "v.mp4", *(f"labels/v_{number}.txt" for number in (0, 2, 4))}
    saved = cv2.VideoCapture(str(folder / "v.mp4"))
    assert (saved.get(cv2.CAP_PROP_FRAME_COUNT), saved.get(cv2.CAP_PROP_FPS)) == (3, 5)
    assert results[2].orig_img.mean() == pytest.approx(160, abs=4)


def test_an_interruption_leaves_whole_what_is_finished(checkpoint, pictures, tmp_path):
    stream = predict(
        str(pictures), stream=True, model=checkpoint, device="cpu", save_json=True, project=str(tmp_path / "r")
    )
    next(stream)
    next(stream)
    with pytest.raises(KeyboardInterrupt):
        stream.throw(KeyboardInterrupt)
    content = json.loads((tmp_path / "r" / "predict" / "predictions.json").read_text())
    assert [Path(row["path"]).name for row in content["pictures"]] == ["0.png", "1.png"]
