"""docs/cli.md shows what the commands print."""

from __future__ import annotations

import re
import shlex

from visiontrain.cli import main
from visiontrain.errors import ConfigError, DataError, OutOfMemory, VisionTrainError, WeightsError

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_each_console_block_shows_what_the_command_prints(checkout, capsys):
    consoles = [
        text for kind, text in BLOCK.findall((checkout / "docs" / "cli.md").read_text("utf-8")) if kind == "console"
    ]
    assert len(consoles) == 2
    for text in consoles:
        command, *expected = text.splitlines()
        code = main(shlex.split(command)[2:])
        said = capsys.readouterr()
        assert (said.err if code else said.out).splitlines()[: len(expected)] == expected


def test_each_help_and_completion_that_is_named_answers(checkout, capsys):
    page = (checkout / "docs" / "cli.md").read_text("utf-8")
    commands = re.findall(r"visiontrain ((?:help|completion)[\w ]*)", page)
    assert len(commands) >= 8
    for command in commands:
        assert main(command.split()) == 0, command
        assert capsys.readouterr().out


def test_the_exit_codes_are_those_of_the_errors(checkout):
    page = (checkout / "docs" / "cli.md").read_text("utf-8")
    for error, word in (
        (VisionTrainError, "failed"),
        (ConfigError, "usage"),
        (DataError, "data"),
        (WeightsError, "weights"),
    ):
        assert f"| {error.exit_code} | {word}" in page
    assert f"| {OutOfMemory.exit_code} | out of memory" in page
