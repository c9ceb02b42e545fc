"""The gate beside the tests: formatting, lint, types. One command runs all of it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "command",
    [["ruff", "format", "--check", "."], ["ruff", "check", "."], ["mypy"]],
    ids=["format", "lint", "types"],
)
def test_gate(command, checkout):
    result = subprocess.run([sys.executable, "-m", *command], cwd=checkout, capture_output=True, text=True)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout[-8000:]}{result.stderr[-2000:]}"
