"""Real runs side by side: what differs, what is warned of, what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from visiontrain import cli
from visiontrain.errors import ConfigError
from visiontrain.record.compare import Comparison, compare, difference
from visiontrain.record.compare_text import WIDTH, as_text
from visiontrain.record.plots.comparison import draw_comparison
from visiontrain.record.plots.ink import class_colour
from visiontrain.record.run_folder import RunFolder, labels_of


def test_what_differs_and_nothing_else(runs):
    result = compare(runs / "long", runs / "short")
    assert result.given["epochs"] == (3, 2) and result.given["lr0"] == (0.01, 0.002)
    assert result.given.keys() == {"epochs", "lr0", "batch", "name"}
    assert result.computed["accumulate"] == (2, 1) and result.computed["micro_batch"] == (2, 4)
    assert result.computed["images_planned"] == (39, 26)
    assert "images_per_update" not in result.computed and "weight_decay_used" not in result.computed


def test_what_was_measured_stands_beside_each_other_with_the_difference(runs):
    result = compare(runs / "long", runs / "short")
    records = [json.loads((runs / name / "run.json").read_text())["measured"] for name in ("long", "short")]
    for which in ("best", "last"):
        for metric in ("ap", "ap50"):
            values = result.measured[f"{which}.{metric}"]
            assert values == tuple(record["metrics"][which][metric] for record in records)
            assert difference(values) == values[1] - values[0]
    assert result.measured["epochs"] == (3, 2)
    assert result.measured["images_seen"] == (39, 26)
    assert result.measured["updates_attempted"][0] == records[0]["updates_applied"]
    assert result.measured["updates_skipped"] == (0, 0)
    assert result.measured["clipped_share"][0] == records[0]["clipped"] / records[0]["updates_applied"]
    assert result.measured["memory_peak"][1] == records[1]["memory"]["peak"]


def test_best_and_last_are_told_apart(runs, copy, capsys):
    best, last = {"epoch": 2, "ap": 0.5125, "ap50": 0.75}, {"epoch": 3, "ap": 0.25, "ap50": 0.5}
    scored = copy("scored", **{"measured/metrics": {"best": best, "last": last}, "measured/clipped": 1})
    other = copy("other", **{"measured/metrics": {"best": last, "last": last}, "measured/clipped": 2})
    measured = compare(scored, other).measured
    assert (measured["best.ap"], measured["last.ap"]) == ((0.5125, 0.25), (0.25, 0.25))
    assert cli.main(["compare", str(scored), str(other)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["best.ap", "0.5125", "0.2500", "-0.2625"] in lines and ["last.ap50", "0.5000", "0.5000", "0.0000"] in lines
    assert ["clipped_share", "5.9", "%", "11.8", "%", "5.9", "%"] in lines  # of 17 updates


def test_curves_have_images_seen_as_their_axis_whatever_the_accumulation(runs):
    """Rule 7: equal x-ranges over the same images for A = 2 and A = 1."""
    result = compare(runs / "long", runs / "short")
    long, short = (run.curve for run in result.runs)
    assert [p.images_seen for p in long] == [13, 26, 39] and [p.images_seen for p in short] == [13, 26]
    points = result.points()
    assert [images for images, _ in points] == [13, 26]
    assert points[1][1] == (long[1].ap, short[1].ap)


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
            "validation data differ (A 5 images, B 7 images)",
        ),
        ({"measured/data/fingerprint": "x"}, "the training data differ"),
        ({"given/settings/imgsz": 96}, "imgsz differs (A 64, B 96)"),
        ({"given/settings/max_det": 10}, "max_det differs (A 300, B 10)"),
        ({"computed/model/names": ["sun", "moon"]}, "class names differ (A sun, sea, B sun, moon)"),
        ({"measured/device/name": "abacus"}, "B abacus): images per second and memory are not of the same machine"),
        ({"outcome": "running"}, "still running, or was killed"),
        ({"outcome": "failed", "reason": "no luck"}, "other) failed (no luck)"),
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
        (runs, "holds several runs; name those to compare: long, short"),
        (runs / "long" / "run.json", "there is no such folder"),
        (tmp_path / ("x" * 300), "there is no such folder"),
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
    assert result.points() == [] and result.measured["best.ap"][1] is None
    assert "ap (COCO, 100 detections) at images_seen: nothing" in as_text(result)
    assert draw_comparison(result).any()


def curve(*points: tuple[int, float]) -> RunFolder:
    rows = [{"images_seen": images, "metrics/ap": ap, "metrics/ap50": ap} for images, ap in points]
    return RunFolder(Path(), {"metric": "ap (of a test)"}, tuple({"epoch": n, **row} for n, row in enumerate(rows)))


def of(*runs: RunFolder) -> Comparison:
    return Comparison(runs, (), {}, {}, {})


def test_points_are_shared_or_the_last_evaluation_before_them():
    a, b = curve((10, 0.1), (20, 0.2), (30, 0.3)), curve((15, 0.5), (25, 0.6))
    assert of(a, b).points() == [(15, (0.1, 0.5)), (25, (0.2, 0.6))]
    assert of(b, curve(), a).points() == [(15, (0.5, None, 0.1)), (25, (0.6, None, 0.2))]
    long = curve(*((n, n / 100) for n in range(1, 101)))
    points = of(long, long).points(7)
    assert len(points) == 7 and points[-1] == (100, (1.0, 1.0))
    assert of(curve((50, 0.1)), curve((10, 0.2))).points() == []


def test_the_verdict_tells_the_end_from_equal_images():
    a, b, c = curve((10, 0.3), (20, 0.4)), curve((10, 0.1), (20, 0.2), (30, 0.5)), curve()
    assert of(a, b, c).verdict() == [
        "At the end, B has the highest AP, 0.5000: 0.1000 above A",
        "After 20 images each, A has the highest AP, 0.4000: 0.2000 above B",
    ]
    assert of(b, b).verdict() == ["At the end, after 30 images each, A and B have the same AP, 0.5000"]
    assert of(b, b, a).at_end().first is None and of(a, b).at_end().first == 1
    assert of(a, c).verdict() == ["Fewer than two of the runs were evaluated: no AP is ahead of another"]
    assert "<Comparison of 2 runs: " in repr(of(a, b)) and "\n" not in repr(of(a, b))


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
    assert "settings that differ: nothing" in said and "computed values that differ: nothing" in said
    assert "A and B have the same AP" in said
    (warning,) = (line for line in said.splitlines() if line.startswith("warning"))
    assert "A and B are one and the same run" in warning


def test_more_than_two(runs, copy, capsys):
    """Columns A to D, each warning once with the runs that it is of, and no difference."""
    other = copy(
        "other", **{"given/settings/lr0": 0.5, "measured/data/val_fingerprint": "x", "given/settings/conf": 0.2}
    )
    words = [str(runs / "long"), str(runs / "short"), str(other), str(runs / "long")]
    result = compare(*words)
    assert result.given["lr0"] == (0.01, 0.002, 0.5, 0.01) and result.measured["epochs"] == (3, 2, 3, 3)
    same, recipe, data, conf = result.warnings
    assert same.startswith("A and D are one and the same run")
    assert recipe.startswith(
        "learning rate (lr0) and duration (epochs) differ at once between A and B, B and C, B and D: "
    )
    assert "the validation data differ (A, B and D 5 images, C 5 images)" in data
    assert conf.startswith("conf differs (A, B and D 0.001, C 0.2)")
    assert cli.main(["compare", *words]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["lr0", "0.01", "0.002", "0.5", "0.01"] in lines and ["measured", "A", "B", "C", "D"] in lines
    assert cli.main(["compare", *words, "format=json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["given"]["lr0"] == {"a": 0.01, "b": 0.002, "c": 0.5, "d": 0.01}
    assert answer["measured"]["epochs"] == {"a": 3, "b": 2, "c": 3, "d": 3}
    assert answer["runs"] == {"a": "long", "b": "short", "c": "other", "d": "long"}


def test_two_parts_of_the_recipe_are_told_between_the_runs_that_they_differ_in(runs, copy):
    """Rule 42: each differs from the first in one part, and from each other in two."""
    folders = [copy("lr", **{"given/settings/lr0": 0.5}), copy("epochs", **{"given/settings/epochs": 5})]
    (warning,) = compare(runs / "long", *folders).warnings
    assert "learning rate (lr0) and duration (epochs) differ at once between B and C:" in warning


def test_what_the_seed_alone_does_is_told(runs, copy):
    repeated = copy("repeated", **{"given/settings/seed": 1, "given/settings/name": "repeated"})
    (warning,) = compare(runs / "long", repeated).warnings
    assert warning.startswith("A and B differ in the seed alone, and their last AP by 0.0000")
    assert compare(runs / "long", copy("more", **{"given/settings/seed": 1, "given/settings/box": 1.0})).warnings == ()


@pytest.mark.parametrize("count", [2, 4, 12])
def test_tables_keep_to_their_width(runs, copy, count):
    long = "x" * 80
    folders = [
        copy(f"{n}", **{"given/settings/data": f"/{long}/{n}.yaml", "given/settings/name": f"{n}{long}"})
        for n in range(count)
    ]
    said = as_text(compare(*folders))
    tables = said[said.index("settings that differ") : (said + "\n\nwarning").index("\n\nwarning")]
    assert max(map(len, tables.splitlines())) <= WIDTH
    cells = [cell for line in tables.splitlines() if line.startswith("data ") for cell in line.split()[1:]]
    assert len(set(cells)) == len(cells) == count  # cut, and still told apart


def test_folders_of_one_name_are_labelled_with_their_parents(tmp_path):
    folders = [Path(f"{tmp_path}/{name}") for name in ("x/one/run", "y/one/run", "x/two/run", "other", "x/../other")]
    assert labels_of(folders) == ["x/one/run", "y/one/run", "two/run", "other", "other"]


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
        ([], "two or more run folders are needed"),
        (["x"], "one run is nothing to compare"),
        (["x", "y", "--out", "z.png"], "write out=z.png"),
        (["x", "y", "out", "z.png"], "write it without blanks: out=z.png"),
        (["x", "y", "out=", "z.png"], "write it without blanks: out=z.png"),
        (["x", "y", "out=curves.jpg"], "must end in .html for a page or in .png for a picture"),
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
