"""The page of a comparison, in a real browser: who is ahead, hostile names, hundreds of settings, phones, notebooks."""

from __future__ import annotations

import json
import re

import cv2
import numpy as np
import pytest

from visiontrain import cli
from visiontrain import compare as compare_folders
from visiontrain.record.compare import compare
from visiontrain.record.report.comparison import MOST_ROWS, comparison_page, framed_page

HUNDRED = {f"given/settings/of_tomorrow_{n}": n for n in range(100)}
NAMES = ("plain", "<script>alert(1)<", '"><img src=x onerror=alert(1)>', "long_name_" * 8)


@pytest.fixture
def folders(copy):
    """Four runs: the first with pictures, the second on another device, the third with a hundred settings, the last running."""
    changes = (
        {"measured/images_per_second": 123.0},
        {"measured/device/name": "<b>abacus</b>", "given/settings/data": "</script><script>alert(2)</script>"},
        HUNDRED,
        {"outcome": "running", "measured/metrics": {"best": {}, "last": {}}},
    )
    made = [copy(name, **change) for name, change in zip(NAMES, changes, strict=True)]
    (made[-1] / "metrics.csv").unlink()
    for name in ("val_predictions", "val_labels"):
        cv2.imwrite(str(made[0] / f"{name}.jpg"), np.full((900, 1600, 3), 90, np.uint8))
    return made


@pytest.fixture
def page(folders, tmp_path, capsys):
    """The page as the command writes it."""
    path = tmp_path / "comparison.html"
    assert cli.main(["compare", *map(str, folders), f"out={path}"]) == 0
    assert capsys.readouterr().out.endswith(f"{path} is written\n")
    return path


@pytest.mark.parametrize(("width", "dark"), [(1440, True), (390, False)])
def test_the_page_is_quiet_and_fits_whatever_the_names(page, folders, visit, width, dark):
    opened = visit(page, width, dark)
    assert opened.said == []
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.page.locator("#runs .run").all_inner_texts() == [
        f"{a} {n}" for a, n in zip("ABCD", NAMES, strict=True)
    ]
    assert opened.page.locator("#runs .path a").all_inner_texts() == [str(folder) for folder in folders]
    assert opened.page.locator("script").count() == 1


def test_what_differs_is_shown_and_the_rest_is_folded(page, visit):
    opened = visit(page)
    settings = opened.page.locator("#differences .across").first.inner_text()
    assert "</script><script>alert(2)</script>" in settings and "of_tomorrow_5" in settings and "lr0" not in settings
    assert opened.page.locator("#differences .across").first.locator("tbody tr").count() == MOST_ROWS
    assert f"{101 - MOST_ROWS} more" in opened.page.locator("#differences").inner_text()
    opened.page.get_by_text("Everything, equal values too").click()
    assert opened.page.get_by_role("cell", name="lr0", exact=True).is_visible()


def test_warnings_stand_first_and_at_what_they_are_of(page, visit):
    opened = visit(page)
    assert opened.page.locator("nav a").first.inner_text() == "What to mind"
    said = opened.page.locator("#mind li").all_inner_texts()
    assert len(said) == 3 and said[0].startswith("D (") and "was never evaluated" in said[1]
    assert said[2].startswith("The devices differ (A, C and D ") and "B <b>abacus</b>): images per second" in said[2]
    assert opened.page.locator("#speed li").all_inner_texts() == [said[2]]


def test_pictures_stand_side_by_side_where_there_are_any(page, visit):
    opened = visit(page)
    assert opened.page.locator("#pictures figcaption").all_inner_texts() == ["A plain", "Labels: what there is to find"]
    assert "No such picture was left by B, C, D" in opened.page.locator("#pictures").inner_text()
    assert opened.page.locator("#pictures img").first.evaluate("img => img.naturalWidth") == 1600


def test_the_winner_at_the_end_and_at_equal_images(copy, tmp_path, visit):
    """One is ahead after two epochs, the other, which went on for a third, at its end."""
    first, second = copy("first"), copy("second")
    for folder, scores in ((first, (0.1, 0.4)), (second, (0.2, 0.3, 0.6))):
        header, *rows = (folder / "metrics.csv").read_text().splitlines()
        at = header.split(",").index("metrics/ap")
        cells = [row.split(",") for row in rows[: len(scores)]]
        lines = [",".join([*c[:at], str(score), *c[at + 1 :]]) for c, score in zip(cells, scores, strict=True)]
        (folder / "metrics.csv").write_text("\n".join([header, *lines]) + "\n")
    compare_folders(first, second, out=tmp_path / "page.html")
    opened = visit(tmp_path / "page.html")
    assert re.sub(r"\s+", " ", opened.page.inner_text("h1")) == "B second is ahead at the end, A first at equal images"
    told = opened.page.inner_text("header")
    assert "B has the highest AP, 0.6000: 0.2000 above A" in told
    assert "After 26 images each, A has the highest AP, 0.4000: 0.1000 above B" in told
    assert opened.page.locator("#runs tbody tr").nth(1).locator("td").nth(2).inner_text() == "0.3000"


def test_a_notebook_shows_the_page_in_a_frame_that_keeps_its_style(folders, tmp_path, visit):
    comparison = compare(*folders)
    cell = tmp_path / "notebook.html"
    cell.write_text(f"<!doctype html><link rel=icon href=data:,><p id=mine>mine</p>{comparison._repr_html_()}", "utf-8")
    opened = visit(cell)
    frame = opened.page.frame_locator("iframe")
    assert frame.locator("h1").inner_text() and frame.locator("#runs a").count() == 0
    assert opened.page.evaluate("getComputedStyle(document.getElementById('mine')).fontSize") == "16px"
    assert opened.page.locator("iframe").evaluate("f => f.getBoundingClientRect().height") >= 600
    assert [said for said in opened.said if "srcdoc" not in said] == []
    assert framed_page(comparison).count("<") == 2  # all else is escaped


def test_nothing_is_overwritten_and_one_file_is_written(folders, tmp_path, capsys):
    path = tmp_path / "there.html"
    path.write_text("mine")
    assert cli.main(["compare", *map(str, folders[:2]), f"out={path}"]) == 2
    assert "is there already" in capsys.readouterr().err and path.read_text() == "mine"
    before = set(tmp_path.rglob("*"))
    assert cli.main(["compare", *map(str, folders[:2]), f"out={tmp_path / 'new.HTML'}", "format=json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema_version"] == 1
    assert set(tmp_path.rglob("*")) - before == {tmp_path / "new.HTML"}


def test_twelve_runs_and_a_run_without_a_curve_are_drawn(runs, copy):
    told = comparison_page(compare(*[copy(f"{n}") for n in range(12)]))
    assert told.count('class="series c1 dashed"')
    young = copy("young")
    (young / "metrics.csv").unlink()
    assert "Fewer than two of the runs were evaluated" in comparison_page(compare(young, young))
