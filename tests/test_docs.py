"""The pages say what the program does: their blocks of code are run, and what stands under them is what they print."""

from __future__ import annotations

import contextlib
import io
import re

import pytest

from visiontrain.cli import main

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def page(checkout) -> str:
    return (checkout / "docs" / "accumulation.md").read_text("utf-8")


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, text) of every fenced block."""
    return BLOCK.findall(page)


def test_each_python_block_prints_what_stands_under_it(page):
    """Rules 17, 18, 62 and 66: one namespace, block after block."""
    found = blocks(page)
    namespace: dict[str, object] = {}
    shown = 0
    for (language, code), (following, expected) in zip(found, [*found[1:], ("", "")], strict=True):
        if language == "python":
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile(code, "docs/accumulation.md", "exec"), namespace)
            assert following == "text", f"no output under\n{code}"
            assert said.getvalue() == expected
            shown += 1
    assert shown == sum(language == "text" for language, _ in found) >= 4


def test_the_numbers_of_the_worked_examples(page):
    printed = [text for language, text in blocks(page) if language == "text"]
    assert printed[0] == "each divided by itself: 3.0\nsums, divided once: 3.5\n"
    assert printed[1] == "largest difference within 1e-6: True\n"


def test_each_console_block_shows_what_the_command_prints(page, capsys):
    consoles = [text for language, text in blocks(page) if language == "console"]
    assert consoles
    for text in consoles:
        command, *expected = text.splitlines()
        assert main(command.removeprefix("$ visiontrain ").split()) == 0
        assert capsys.readouterr().out.splitlines()[: len(expected)] == expected


def test_what_to_type_is_understood(page):
    """Every command of the page that names settings parses."""
    from visiontrain.config.help import VERBS
    from visiontrain.config.parse import parse_words

    commands = [
        line.split("#")[0].split() for language, text in blocks(page) if language == "sh" for line in text.splitlines()
    ]
    assert len(commands) >= 4
    for _, verb, *words in commands:
        parse_words(VERBS[verb][0], words)


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
        for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_tests_that_the_page_of_data_names_are_there(checkout):
    named = set(re.findall(r"`(test_\w+)`", (checkout / "docs" / "data.md").read_text("utf-8")))
    there = {
        name
        for path in (checkout / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
    }
    assert named and not named - there
