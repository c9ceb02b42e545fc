"""The pages say what is so: numbers that stand in two places are the same, and what they name is there."""

from __future__ import annotations

import re

import pytest


@pytest.fixture(scope="module")
def page(checkout) -> str:
    return (checkout / "docs" / "accumulation.md").read_text("utf-8")


def test_the_numbers_of_the_worked_examples(page):
    """Rules 17, 18, 62 and 66; tests/test_commands_of_docs.py runs the blocks and compares what they print."""
    printed = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert printed[0] == "each divided by itself: 3.0\nsums, divided once: 3.5\n"
    assert printed[1] == "largest difference within 1e-6: True\n"
    assert len(printed) >= 4


def test_the_measured_table_is_that_of_the_readme(page, checkout):
    readme = (checkout / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| \d+ \| .*%.*$", page, re.MULTILINE)
    assert len(rows) == 5 and all(row in readme for row in rows)
    command = "python tools/gradient_gap.py data=coco128.yaml images=32 imgsz=320"
    assert command in page and command in readme


def test_the_tolerances_of_the_page_are_those_of_the_laws(page):
    from laws.toys import TOLERANCE

    table = {
        name: f"{limit:.0e}".replace("e-0", "e-")
        for name, limit in zip(("fp64", "fp32"), TOLERANCE.values(), strict=True)
    }
    for name, limit in table.items():
        assert f"| {name}, CPU | {limit} |" in page


def test_links_between_the_pages_lead_somewhere(checkout):
    for page in (checkout / "README.md", *(checkout / "docs").glob("*.md")):
        text = page.read_text("utf-8")
        for target in re.findall(r"\]\((?!https?://)([^)#]+)", text) + re.findall(r"<img src=\"([^\"]+)", text):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_tests_that_the_page_of_data_names_are_there(checkout):
    named = set(re.findall(r"`(test_\w+)`", (checkout / "docs" / "data.md").read_text("utf-8")))
    there = {
        name
        for path in (checkout / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
    }
    assert named and not named - there
