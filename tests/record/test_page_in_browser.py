"""Pages in a real browser: nothing is said, nothing is fetched, nothing runs over the side, dark is dark."""

from __future__ import annotations

import numpy as np
import pytest

from visiontrain.record.report.markup import tag
from visiontrain.record.report.page import Section, cards, grid, number, page, panel, table
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
