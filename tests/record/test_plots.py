from __future__ import annotations

import itertools

import cv2
import numpy as np
import pytest

from visiontrain.record.events import Curves, Pictures
from visiontrain.record.plots import curves as drawn_curves
from visiontrain.record.plots.chart import Axes, Line, draw_chart, number_text, ticks
from visiontrain.record.plots.curves import draw_confidence_curves, draw_confusion, draw_pr_curve, draw_results
from visiontrain.record.plots.ink import class_colour, contrasting, fit_text, text_size, write_picture
from visiontrain.record.plots.pictures import GAP, draw_boxes, draw_pictures
from visiontrain.record.sinks.drawings import PicturesSink, PlotsSink

RED = (220, 20, 20)


def some_curves(classes: int) -> Curves:
    grid = np.linspace(0, 1, 101)
    line = np.repeat(1 - grid[None] ** 3, classes, 0)
    names = tuple(f"class {index}" for index in range(classes))
    return Curves(names, line, 1 - line, line, line * 0.9, np.eye(classes + 1, dtype=np.int64) * 7)


def rows(count: int) -> list[dict[str, float]]:
    return [
        {"epoch": n, "images_seen": 100.0 * n, "train/box_loss": 2 / n, "metrics/ap": 0.1 * n, "metrics/ap50": 0.2 * n,
         "metrics/precision": 0.5, "metrics/recall": float("nan"), "lr": 0.01}
        for n in range(1, count + 1)
    ]  # fmt: skip


def colour_at(picture: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    return np.argwhere((np.abs(picture.astype(int) - colour) < 40).all(-1))


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 1.02), (0.9, 4.3), (0, 118_287), (-3, 5), (1e-5, 3e-5)])
def test_ticks_are_round_inside_and_neither_few_nor_many(low, high):
    found = ticks(low, high)
    assert 3 <= len(found) <= 8
    assert all(low - 1e-9 <= value <= high + 1e-9 for value in found)


def test_tick_labels():
    assert [number_text(v) for v in (0.0, 0.6000000000000001, 12_000, 1.5e6, 2e-5)] == [
        "0",
        "0.6",
        "12k",
        "1.5M",
        "2e-05",
    ]


def test_a_line_is_drawn_where_its_numbers_are():
    x = np.array([0.0, 1.0])
    picture = draw_chart(Axes("t", "x", "y", (0, 1), (0, 1)), [Line(x, x, RED)], (400, 300))
    points = colour_at(picture, RED)
    (top, right), (bottom, left) = points[0], points[-1]
    assert (left, right) == (pytest.approx(66, abs=3), pytest.approx(380, abs=3))
    assert (top, bottom) == (pytest.approx(40, abs=3), pytest.approx(248, abs=3))


def test_a_line_that_leaves_the_frame_is_clipped_and_gaps_are_left_out():
    line = Line(np.array([0.0, 0.5, np.nan, 1.0]), np.array([0.5, 90.0, 0.0, np.inf]), RED)
    picture = draw_chart(Axes("t", "x", "y", (0, 1), (0, 1)), [line], (400, 300))
    points = colour_at(picture, RED)
    assert points[:, 0].min() >= 39
    assert points[:, 1].max() < 230


def test_the_x_axis_of_results_is_images_seen(monkeypatch):
    seen = []
    monkeypatch.setattr(
        drawn_curves, "draw_chart", lambda axes, lines: seen.append((axes, lines)) or np.zeros((4, 4, 3))
    )
    draw_results(rows(5))
    assert {axes.x_label for axes, _ in seen} == {"images seen"}
    assert all(line.x.tolist() == [100, 200, 300, 400, 500] for _, lines in seen for line in lines)
    assert [axes.title for axes, _ in seen][:2] == ["box loss", "average precision"]


@pytest.mark.parametrize("count", [1, 2, 60])
def test_results_of_any_length(count):
    assert draw_results(rows(count)).shape == (680, 1440, 3)


@pytest.mark.parametrize("classes", [1, 3, 40])
def test_curves_of_any_number_of_classes(classes):
    for draw in (draw_pr_curve, draw_confidence_curves, draw_confusion):
        picture = draw(some_curves(classes))
        assert picture.dtype == np.uint8
        assert picture.std() > 5


def test_a_class_without_labels_has_no_line_and_does_not_spoil_the_mean():
    known = some_curves(2)
    precision = known.precision.copy()
    precision[1] = np.nan
    lines = drawn_curves._class_lines(
        ("a", "b"), np.linspace(0, 1, 101), precision, lambda row: f"{row.mean():.3f}", "all"
    )
    assert [line.label for line in lines] == [f"a: {precision[0].mean():.3f}", f"all: {precision[0].mean():.3f}"]
    nothing = np.full_like(precision, np.nan)
    assert drawn_curves._class_lines(("a", "b"), np.linspace(0, 1, 101), nothing, str, "all") == []


def test_confusion_is_dark_where_the_counts_are():
    names, counts = ("a", "b"), np.zeros((3, 3), np.int64)
    counts[1, 0] = 9  # true a, predicted b: second row, first column
    curves = some_curves(2)
    picture = draw_confusion(Curves(names, *(curves.precision,) * 4, confusion=counts))
    y, x = colour_at(picture, (16, 78, 158)).mean(0)
    assert 84 < y - 44 < 168
    assert x - (picture.shape[1] - 24 - 3 * 84) < 84


def test_a_box_is_drawn_on_its_object_and_the_picture_is_left_alone():
    image = np.zeros((120, 200, 3), np.uint8)
    drawn = draw_boxes(image, np.array([[50.0, 40.0, 150.0, 100.0]]), np.array([0]), None, ("cat",))
    assert image.max() == 0
    points = colour_at(drawn[60:, :], class_colour(0))
    assert (points[:, 1].min(), points[:, 1].max()) == (pytest.approx(50, abs=1), pytest.approx(150, abs=1))
    assert points[:, 0].max() + 60 == pytest.approx(100, abs=1)


@pytest.mark.parametrize("box", [(0, 0, 20, 20), (180, 100, 200, 120), (-5, -5, 300, 300), (100, 0, 100, 0)])
def test_labels_at_the_edge_stay_in_the_picture(box):
    drawn = draw_boxes(
        np.zeros((120, 200, 3), np.uint8), np.array([box], float), np.array([3]), np.array([0.5]), ("x",) * 4
    )
    assert len(colour_at(drawn, contrasting(class_colour(3)))) > 10  # its letters


def test_a_sheet_scales_boxes_with_their_picture():
    image = np.full((50, 50, 3), 255, np.uint8)
    sheet = draw_pictures(
        Pictures("a", (image,), (np.array([[10.0, 10.0, 40.0, 40.0]]),), (np.array([0]),), None, ("cat",))
    )
    side = sheet.shape[0] - 2 * GAP
    points = colour_at(sheet, class_colour(0))
    assert points[:, 1].max() - GAP == pytest.approx(0.8 * side, abs=4)


def test_a_sheet_takes_pictures_of_different_sizes_and_no_boxes():
    images = tuple(np.full((h, w, 3), 90, np.uint8) for h, w in ((40, 60), (200, 50), (3, 400)))
    none = (np.empty((0, 4)),) * 3
    sheet = draw_pictures(
        Pictures("a", images, none, (np.empty(0, int),) * 3, (np.empty(0),) * 3, (), ("one", "two", "three"))
    )
    assert sheet.shape[1] <= 1920


def test_neighbouring_classes_have_different_colours_and_readable_letters():
    colours = [class_colour(index) for index in range(80)]
    assert len(set(colours)) == 80
    assert all(np.abs(np.subtract(a, b)).sum() > 60 for a, b in itertools.pairwise(colours))
    assert contrasting((255, 255, 0)) != contrasting((0, 0, 120))


def test_long_names_are_shortened_to_their_room():
    short = fit_text("a very long class name that fits nowhere", 9, 80)
    assert short.endswith("..")
    assert text_size(short, 9)[0] <= 80
    assert fit_text("cat", 9, 80) == "cat"


def test_colours_survive_the_file(tmp_path):
    write_picture(tmp_path / "a.png", np.full((8, 8, 3), (250, 10, 20), np.uint8))
    assert cv2.imread(str(tmp_path / "a.png"))[0, 0].tolist() == [20, 10, 250]  # OpenCV reads BGR


def test_the_sinks_write_into_the_run_folder(tmp_path, make):
    image = np.zeros((32, 32, 3), np.uint8)
    PicturesSink(tmp_path)(Pictures("train_batch0", (image,), (np.zeros((0, 4)),), (np.zeros(0, int),), None, ("cat",)))
    PlotsSink(tmp_path)(some_curves(2))
    found = {path.name for path in tmp_path.iterdir()}
    assert found == {"train_batch0.jpg", "pr_curve.png", "confidence_curves.png", "confusion_matrix.png"}


def test_results_are_redrawn_now_and_then_and_at_the_end(tmp_path, make):
    (tmp_path / "metrics.csv").write_text("epoch,images_seen,train/box_loss,metrics/ap,lr\n1,64,0.5,,0.01\n")
    time, drawn = [0.0], []
    sink = PlotsSink(tmp_path, every=20.0, clock=lambda: time[0])
    for epoch in range(1, 6):
        time[0] += 8.0
        sink(make.epoch_ended(epoch))
        if (tmp_path / "results.png").exists():
            (tmp_path / "results.png").unlink()
            drawn.append(epoch)
    assert drawn == [1, 4]
    sink(list(make.run(tmp_path))[-1])
    assert (tmp_path / "results.png").exists()
