"""The site of docs/: built without a warning, every page has its place, nothing comes from elsewhere, settings are those there are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.write_settings_page import PAGE, render
from visiontrain.config.build import INSTEAD, NOT_YET


@pytest.fixture(scope="module")
def site(checkout, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    config = checkout / "docs" / "mkdocs" / "mkdocs.yml"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    said = (result.stdout + result.stderr).splitlines()
    assert result.returncode == 0 and all(line.startswith("INFO ") for line in said), "\n".join(said)
    return folder


def test_every_page_has_its_place(checkout, site):
    """A page that the navigation lacks is a warning, and warnings are errors."""
    built = {path.stem for path in site.glob("*.html")} - {"404"}
    assert built == {path.stem for path in (checkout / "docs").glob("*.md")}
    assert (site / "search" / "search_index.json").stat().st_size > 100_000


def test_nothing_is_fetched_from_elsewhere(site):
    for page in site.glob("*.html"):
        text = page.read_text("utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]*\ssrc=\"?(\S+?)[\"\s>]", text)
        loaded += re.findall(r"<link[^>]*rel=\"?(?:stylesheet|preconnect|icon)[^>]*href=\"?(\S+?)[\"\s>]", text)
        assert loaded and not [address for address in loaded if "//" in address], page.name
    for style in site.rglob("*.css"):
        assert not re.findall(r"url\(\"?(?:https?:)?//", style.read_text("utf-8")), style


def test_the_python_page_has_signatures_and_docstrings(site):
    text = re.sub(r"<[^>]+>", "", (site / "python.html").read_text("utf-8"))
    for said in (
        "Find objects in pictures and videos.",
        "One window ended",
        "one term for each weight",
        "names all settings",
    ):
        assert said in text


def test_the_page_of_settings_is_not_stale():
    assert PAGE.read_text("utf-8") == render(), "python tools/write_settings_page.py writes it anew"


def test_every_name_that_is_refused_stands_on_the_page_for_those_who_bring_it(checkout):
    page = (checkout / "docs" / "from_ultralytics.md").read_text("utf-8")
    missing = [name for name in {**INSTEAD, **NOT_YET} if f"`{name}`" not in page]
    assert not missing
