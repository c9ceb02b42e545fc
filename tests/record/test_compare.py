"""Two real runs side by side: what differs, what is warned of, what is refused."""

from __future__ import annotations

import json
import shutil

import cv2
import numpy as np
import pytest
import torch

from visiontrain import cli, models
from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.errors import ConfigError
from visiontrain.record import compare as compared
from visiontrain.record.compare import Comparison, Pair, Point, compare
from visiontrain.record.compare_text import as_text
from visiontrain.record.plots.comparison import draw_comparison
from visiontrain.record.plots.ink import class_colour
from visiontrain.training.run import train


@pytest.fixture(scope="module")
def runs(tiny, tmp_path_factory):
    """``long`` has 3 epochs at A=2, ``short`` 2 epochs at A=1 with another lr0: two kinds of difference at once."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("runs")
    known = {"data": str(tiny), "project": str(root), "device": "cpu", "workers": 0, "imgsz": 64, "nbs": 4}
    known |= {"plots": False, "close_mosaic": 0, "optimizer": "AdamW"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "_sizes", lambda family: {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}})
        train(build(TrainConfig, {**known, "name": "long", "epochs": 3, "batch": 2}))
        train(build(TrainConfig, {**known, "name": "short", "epochs": 2, "batch": 4, "lr0": 0.002}))
    yield root
    torch.set_num_threads(threads)


@pytest.fixture
def copy(runs, tmp_path):
    """A copy of ``long`` whose run.json is changed: ``copy(name, **{"measured.data.fingerprint": ...})``; None takes a key out."""

    def make(name: str, **changes):
        folder = shutil.copytree(runs / "long", tmp_path / name)
        record = json.loads((folder / "run.json").read_text())
        for path, value in changes.items():
            *parents, key = path.split("/")
            section = record
            for parent in parents:
                section = section[parent]
            if value is None:
                del section[key]
            else:
                section[key] = value
        (folder / "run.json").write_text(json.dumps(record))
        return folder

    return make


def test_what_differs_and_nothing_else(runs):
    result = compare(runs / "long", runs / "short")
    assert result.given["epochs"] == Pair(3, 2) and result.given["lr0"] == Pair(0.01, 0.002)
    assert result.given.keys() == {"epochs", "lr0", "batch", "name"}
    assert result.computed["accumulate"] == Pair(2, 1) and result.computed["micro_batch"] == Pair(2, 4)
    assert result.computed["images_planned"] == Pair(39, 26)
    assert "images_per_update" not in result.computed and "weight_decay_used" not in result.computed


def test_what_was_measured_stands_beside_each_other_with_the_difference(runs):
    result = compare(runs / "long", runs / "short")
    records = [json.loads((runs / name / "run.json").read_text())["measured"] for name in ("long", "short")]
    for which in ("best", "last"):
        for metric in ("ap", "ap50"):
            pair = result.measured[f"{which}.{metric}"]
            assert (pair.a, pair.b) == tuple(record["metrics"][which][metric] for record in records)
            assert pair.difference == pair.b - pair.a
    assert result.measured["epochs"] == Pair(3, 2)
    assert result.measured["images_seen"] == Pair(39, 26)
    assert result.measured["updates_attempted"].a == records[0]["updates_applied"]
    assert result.measured["updates_skipped"] == Pair(0, 0)
    assert result.measured["clipped_share"].a == records[0]["clipped"] / records[0]["updates_applied"]
    assert result.measured["memory_peak"].b == records[1]["memory"]["peak"]


def test_best_and_last_are_told_apart(runs, copy, capsys):
    best, last = {"epoch": 2, "ap": 0.5125, "ap50": 0.75}, {"epoch": 3, "ap": 0.25, "ap50": 0.5}
    scored = copy("scored", **{"measured/metrics": {"best": best, "last": last}, "measured/clipped": 1})
    other = copy("other", **{"measured/metrics": {"best": last, "last": last}, "measured/clipped": 2})
    measured = compare(scored, other).measured
    assert (measured["best.ap"], measured["last.ap"]) == (Pair(0.5125, 0.25), Pair(0.25, 0.25))
    assert cli.main(["compare", str(scored), str(other)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["best.ap", "0.5125", "0.2500", "-0.2625"] in lines and ["last.ap50", "0.5000", "0.5000", "0.0000"] in lines
    assert ["clipped_share", "5.9", "%", "11.8", "%", "5.9", "%"] in lines  # of 17 updates


def test_curves_have_images_seen_as_their_axis_whatever_the_accumulation(runs):
    """Rule 7: equal x-ranges over the same images for A = 2 and A = 1."""
    result = compare(runs / "long", runs / "short")
    assert [p.images_seen for p in result.a.curve] == [13, 26, 39]
    assert [p.images_seen for p in result.b.curve] == [13, 26]
    points = result.points()
    assert [images for images, _ in points] == [13, 26]
    assert points[1][1] == Pair(result.a.curve[1].ap, result.b.curve[1].ap)


def test_two_parts_of_the_recipe_at_once_are_warned_of(runs, copy):
    """Rule 42."""
    (warning,) = compare(runs / "long", runs / "short").warnings
    assert warning.startswith("learning rate (lr0) and duration (epochs) differ at once")
    for name, value in (("lr0", 0.5), ("cos_lr", True), ("epochs", 5), ("lr_scale", "sqrt"), ("warmup_epochs", 1.0)):
        alone = copy(f"{name}", **{f"given/settings/{name}": value})
        assert compare(runs / "long", alone).warnings == ()
    schedule = copy(
        "schedule", **{"given/settings/lrf": 0.5, "computed/optimizer/lr0": 0.7, "computed/images_planned": 1}
    )
    (warning,) = compare(runs / "long", schedule).warnings
    assert "learning rate (optimizer.lr0) and schedule (lrf) and duration (images_planned) differ" in warning


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"measured/data/val_fingerprint": "x", "measured/data/val_images": 7},
            "validation data differ (5 and 7 images)",
        ),
        ({"measured/data/fingerprint": "x"}, "the training data differ"),
        ({"given/settings/imgsz": 96}, "imgsz differs (64 and 96)"),
        ({"given/settings/max_det": 10}, "max_det differs (300 and 10)"),
        ({"computed/model/names": ["sun", "moon"]}, "class names differ (sun, sea and sun, moon)"),
        ({"measured/device/name": "abacus"}, "and abacus): images per second and memory are not of the same machine"),
        ({"outcome": "running"}, "still running, or was killed"),
        ({"outcome": "failed", "reason": "no luck"}, "failed (no luck)"),
    ],
)
def test_what_makes_the_numbers_of_different_things_is_warned_of(runs, copy, change, said):
    (warning,) = compare(runs / "long", copy("other", **change)).warnings
    assert said in warning


@pytest.mark.parametrize("key", ["axis", "metric"])
def test_another_axis_or_metric_or_none_is_refused(runs, copy, key):
    """Rule 41."""
    with pytest.raises(ConfigError, match=f"have different {key}: .*'seconds'"):
        compare(runs / "long", copy("other", **{key: "seconds"}))
    with pytest.raises(ConfigError, match=f"declares no {key}"):
        compare(copy("none", **{key: None}), runs / "short")


def test_what_is_no_run_is_said(runs, tmp_path, copy):
    (tmp_path / "empty").mkdir()
    for folder, said in (
        (tmp_path / "lost", "there is no such folder"),
        (tmp_path / "empty", "there is no run.json in it"),
        (runs, "holds several runs; name one of them: long, short"),
        (runs / "long" / "run.json", "there is no such folder"),
        (copy("newer", **{"schemas/run.json": 2}), "its run.json has version 2, and this visiontrain reads version 1"),
        (copy("older", **{"schemas/metrics.csv": 0}), "its metrics.csv has version 0"),
        (copy("bare", schemas=None), "is no record of a run"),
    ):
        with pytest.raises(ConfigError, match=f"^{folder}.*") as error:
            compare(folder, runs / "long")
        assert said in str(error.value)
    broken = copy("broken")
    (broken / "run.json").write_text("{")
    with pytest.raises(ConfigError, match="not readable as JSON"):
        compare(broken, runs / "long")


def test_a_run_before_its_first_evaluation_has_no_curve(runs, copy):
    young = copy("young", **{"outcome": "running", "measured/metrics": {"best": {}, "last": {}}})
    (young / "metrics.csv").unlink()
    result = compare(runs / "long", young)
    assert result.points() == [] and result.measured["best.ap"].b is None
    assert "ap (COCO, 100 detections) at images_seen: nothing" in as_text(result)
    assert draw_comparison(result).any()


def curve(*points: tuple[int, float]) -> compared.RunFolder:
    return compared.RunFolder(None, {}, tuple(Point(n, images, ap, ap) for n, (images, ap) in enumerate(points)))


def test_points_are_shared_or_the_last_evaluation_before_them():
    a, b = curve((10, 0.1), (20, 0.2), (30, 0.3)), curve((15, 0.5), (25, 0.6))
    points = Comparison(a, b, (), {}, {}, {}).points()
    assert points == [(15, Pair(0.1, 0.5)), (25, Pair(0.2, 0.6))]
    long = curve(*((n, n / 100) for n in range(1, 101)))
    points = Comparison(long, long, (), {}, {}, {}).points(7)
    assert len(points) == 7 and points[-1] == (100, Pair(1.0, 1.0))
    assert Comparison(curve((50, 0.1)), curve((10, 0.2)), (), {}, {}, {}).points() == []


def test_the_command_prints_tables_and_the_warning_last(runs, capsys):
    assert cli.main(["compare", str(runs / "long"), str(runs / "short")]) == 0
    said = capsys.readouterr().out
    lines = [line.split() for line in said.splitlines()]
    assert ["lr0", "0.01", "0.002"] in lines and ["accumulate", "2", "1"] in lines
    assert ["images_seen", "39", "26", "-13"] in lines
    assert ["settings", "that", "differ", "A", "B"] in lines
    assert said.splitlines()[-1].startswith("warning: learning rate (lr0) and duration (epochs)")
    assert not any(line[:1] == ["device"] for line in lines)  # the same machine


def test_a_run_against_itself_differs_in_nothing(runs, capsys):
    assert cli.main(["compare", str(runs / "long"), str(runs / "long")]) == 0
    said = capsys.readouterr().out
    assert (
        "settings that differ: nothing" in said
        and "computed values that differ: nothing" in said
        and "warning" not in said
    )


def test_out_draws_both_curves_and_overwrites_nothing(runs, tmp_path, capsys):
    before = sorted(p.name for p in runs.rglob("*"))
    words = ["compare", str(runs / "long"), str(runs / "short"), f"out={tmp_path / 'curves.png'}"]
    assert cli.main(words) == 0
    picture = cv2.imread(str(tmp_path / "curves.png"))[..., ::-1].astype(int)
    for number in (0, 1):
        assert (np.abs(picture - class_colour(number)).max(-1) < 40).any()
    (tmp_path / "curves.png").write_bytes(b"mine")
    assert cli.main(words) == 2
    assert "is there already" in capsys.readouterr().err
    assert (tmp_path / "curves.png").read_bytes() == b"mine"
    assert cli.main([*words[:3], f"out={tmp_path / 'lost' / 'c.png'}"]) == 2
    assert sorted(p.name for p in runs.rglob("*")) == before  # nothing else is written


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "two run folders are needed"),
        (["x"], "two run folders are needed"),
        (["x", "y", "z"], "'z': expected name=value"),
        (["x", "y", "out=curves.jpg"], "must end in .png"),
        (["x", "y", "batch=8"], "batch changes nothing in compare"),
    ],
)
def test_mistakes_are_answered_with_code_2(words, said, capsys):
    assert cli.main(["compare", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_with_an_equals_sign_is_a_folder(runs, tmp_path, monkeypatch, capsys):
    shutil.copytree(runs / "short", tmp_path / "lr0=0.002")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["compare", "lr0=0.002", str(runs / "short"), "format=json"]) == 0
    assert json.loads(capsys.readouterr().out)["a"]["folder"] == "lr0=0.002"
