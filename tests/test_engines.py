"""docs/engines.md: what it names as shown is there, and nothing that was never run is called so."""

from __future__ import annotations

import re

TEST = re.compile(r"([\w/]+\.py)::(test_\w+)")


def test_every_test_that_the_page_names_is_there(checkout):
    named = TEST.findall((checkout / "docs" / "engines.md").read_text("utf-8"))
    assert len(named) > 40
    missing = [
        f"{file}::{test}"
        for file, test in sorted(set(named))
        if f"def {test}(" not in (checkout / "tests" / file).read_text("utf-8")
    ]
    assert not missing


def test_every_row_says_something_of_each_engine(checkout):
    page = (checkout / "docs" / "engines.md").read_text("utf-8")
    table = [line for line in page.split("## What is refused")[0].splitlines() if line.startswith("| ")]
    assert len(table) > 20 and {line.count(" | ") for line in table} == {3}
