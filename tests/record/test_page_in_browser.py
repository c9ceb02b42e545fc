"""Pages in a real browser: nothing is said, nothing is fetched, nothing runs over the side, dark is dark."""

from __future__ import annotations

import numpy as np
import pytest

from visiontrain.record.report.markup import tag
from visiontrain.record.report.page import Section, cards, grid, number, page, panel, table
from visiontrain.record.report.run import write_report
from visiontrain.record.report.svg import chart, thinned

HOSTILE = "<script>alert(1)</script>", "\"&'", "<img src=x onerror=alert(1)>", "a-long-name-" * 20


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A page with everything that pages are made of, and names that nobody wants."""
    x = np.arange(1.0, 1001)
    lines = [thinned(name, x, np.sin(x / 99) + 2 + place, place + 1) for place, name in enumerate(HOSTILE)]
    charts = grid([chart(name, lines, note=name) for name in HOSTILE])
    rows = [[name, number(place / 9), number(None)] for place, name in enumerate(HOSTILE)]
    names = panel(table(["class", "AP", "AP50"], rows, sortable=True))
    header = tag("h1", HOSTILE[0]) + cards([(name, name, name) for name in HOSTILE])
    path = tmp_path_factory.mktemp("pages") / "demo.html"
    path.write_text(page(HOSTILE[0], header, [Section("a", "Curves", charts), Section("b", "Names", names)]), "utf-8")
    return path


@pytest.mark.parametrize("width", [1440, 390])
def test_a_page_is_quiet_and_fits(demo, visit, width):
    opened = visit(demo, width)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.page.title() == HOSTILE[0] and opened.page.inner_text("h1") == HOSTILE[0]
    assert opened.said == []


def test_values_under_the_pointer(demo, visit):
    opened = visit(demo)
    opened.page.hover(".chart svg", position={"x": 200, "y": 60})
    said = opened.page.inner_text(".tip").split("\n")
    assert said[0].endswith(" images seen") and said[1].startswith(HOSTILE[0]) and len(said) == 1 + len(HOSTILE)


def test_a_click_sorts(demo, visit):
    opened = visit(demo)
    opened.page.click("th:nth-child(2) button")
    assert opened.page.locator("tbody td:nth-child(2)").all_inner_texts() == ["0.333", "0.222", "0.111", "0.000"]


@pytest.mark.parametrize("width", [1440, 390])
def test_the_report_of_a_run(hostile_run, visit, width):
    """Names that try to be markup are read as they are; every chart and picture is drawn, and nothing is wider than the window."""
    opened = visit(hostile_run / "report.html", width)
    page = opened.page
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("#scores tbody td:first-child", has_text="<script>alert(1)</script>").count() > 0
    boxes = [chart.bounding_box() for chart in page.locator(".chart svg, svg.matrix").all()]
    assert len(boxes) == 12 and all(box["width"] > 250 and box["height"] > 120 for box in boxes)
    drawn = "[...document.querySelectorAll('.chart .line')].every(line => line.getTotalLength() >= 0 && line.getBBox)"
    assert page.evaluate(drawn)
    assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 100)")
    assert opened.said == []


def test_dark_is_dark(hostile_run, visit):
    def brightness(page, what: str, where: str) -> float:
        colour = page.evaluate(f"getComputedStyle(document.querySelector('{where}')).{what}")
        return sum(map(float, colour.removeprefix("rgb(").rstrip(")").split(","))) / 3

    for dark in (False, True):
        page = visit(hostile_run / "report.html", dark=dark).page
        for where in ("body", ".panel", ".card"):
            ground, ink = (brightness(page, what, where) for what in ("backgroundColor", "color"))
            assert (ground < 40 and ink > 200) if dark else (ground > 240 and ink < 60), (where, ground, ink)
        assert (brightness(page, "fill", ".chart svg text") > 130) is dark
        assert (brightness(page, "stroke", ".chart .line") > 140) is dark


def test_labels_and_predictions_take_turns_and_open_large(hostile_run, visit):
    opened = visit(hostile_run / "report.html")
    page = opened.page
    shown = lambda: [picture.is_visible() for picture in page.locator(".switch >> nth=0").locator(".picture").all()]
    assert shown() == [True, False]
    page.click("label[for=val-1]")
    assert shown() == [False, True]
    page.click(".switch .picture:visible button >> nth=0")
    assert page.locator("dialog[open] img").is_visible()
    page.click("dialog")
    assert page.locator("dialog[open]").count() == 0 and opened.said == []


def test_a_running_page_tells_its_age(changed_run, visit):
    folder = changed_run({"outcome": "running", "updated": "2026-01-01T00:00:00+00:00"})
    opened = visit(write_report(folder))
    assert "no news for" in opened.page.inner_text(".over") and opened.said == []


def test_it_prints_light_and_whole(hostile_run, visit):
    page = visit(hostile_run / "report.html", dark=True).page
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(26, 28, 31)"
    assert not page.locator("nav").is_visible() and all(
        picture.is_visible() for picture in page.locator(".switch .picture").all()
    )
