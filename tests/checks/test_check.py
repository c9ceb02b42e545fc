"""The verb: what it prints, the line for scripts, exit codes, and that it writes nothing."""

from __future__ import annotations

import json
import re
import sys

import pytest

import visiontrain
from tools.faulty_data import hashes
from visiontrain import cli
from visiontrain.checks import check as module
from visiontrain.checks.preflight import Epoch, Preflight
from visiontrain.checks.rows import FAIL, PASS, Row
from visiontrain.config.build import build
from visiontrain.config.schema import CheckConfig, TrainConfig
from visiontrain.errors import ConfigError


@pytest.fixture
def tried(monkeypatch):
    """A preflight that answers at once; ``rows`` are its answer, ``configs`` what it was asked."""

    class Tried:
        def __init__(self):
            self.rows = [Row("same samples", PASS, "13", "fine")]
            self.configs = []

        def __call__(self, config, train, val, plan_told, say, ranks):
            self.configs.append(config)
            plan_told(["8 images x 1"])
            say("windows")
            return Preflight(("8 images x 1",), self.rows, Epoch(60, 6, 10, 10**9, "memory", 2, 16, 4, 100), 3.0)

    found = Tried()
    monkeypatch.setattr(module, "preflight", found)
    return found


def last_line(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_sound_training_passes(tried, tiny, capsys):
    assert cli.main(["check", f"data={tiny}", "imgsz=64"]) == 0
    said = capsys.readouterr().out
    assert said.index("Data: ") < said.index("\nPlan\n") < said.index("Preflight: 3 windows")
    assert "One epoch will take 1:06 min" in said and "100 epochs 1 h 50 min" in said
    assert said.endswith("0 faults in the data, 0 failed checks.\n")


def test_exit_code_1_for_a_failed_check_and_3_for_faults_in_the_data(tried, tiny, tmp_path, capsys):
    tried.rows = [Row("schedule", FAIL, "lr 1", "it does not follow", "move it")]
    assert cli.main(["check", f"data={tiny}", "imgsz=64"]) == 1
    assert "FAIL   schedule  lr 1  it does not follow" in capsys.readouterr().out
    broken = tmp_path / "data.yaml"
    broken.write_text(f"path: {tiny.parent}\ntrain: images/train\nval: images/train\nnames: [sun, sea]\n")
    assert cli.main(["check", f"data={broken}", "imgsz=64"]) == 3


def test_the_line_for_scripts_is_the_last_one_and_holds_every_finding(tried, tiny, tmp_path, capsys):
    twice = tmp_path / "data.yaml"
    twice.write_text(f"path: {tiny.parent}\ntrain: images/train\nval: images/train\nnames: [sun, sea]\n")
    assert cli.main(["check", f"data={twice}", "imgsz=64", "format=json"]) == 3
    found = last_line(capsys)
    assert len([f for f in found["findings"] if f["kind"] == "picture_in_both"]) == 13
    assert not found["passed"] and found["phase"] == "preparation"
    assert found["epoch"]["how"] == "computed from measured windows"


def test_data_alone(tried, tiny, capsys):
    assert cli.main(["check", f"data={tiny}", "preflight=false", "format=json"]) == 0
    found = last_line(capsys)
    assert (found["not_run"], found["preflight"], found["epoch"], tried.configs) == ("preflight=false", [], None, [])


@pytest.mark.parametrize("val", ["", "val: images/nowhere\n"])
def test_without_a_split_to_train_or_validate_on_the_preflight_is_not_run(tried, tiny, tmp_path, capsys, val):
    file = tmp_path / "data.yaml"
    file.write_text(f"path: {tiny.parent}\ntrain: images/train\n{val}names: [sun, sea]\n")
    assert cli.main(["check", f"data={file}"]) == (3 if val else 0)
    assert "the preflight was not run" in capsys.readouterr().out and not tried.configs


def test_the_settings_are_those_of_the_training(tried, tiny):
    given = {"data": str(tiny), "batch": 2, "nbs": 8, "imgsz": 64, "lr0": 0.02, "mosaic": 0.5, "cls": 1.0}
    visiontrain.check(**given)
    (config,) = tried.configs[-1:]
    assert isinstance(config, TrainConfig) and config.given == given.keys()
    assert config == build(TrainConfig, given)


def test_the_result_in_python_has_findings_and_rows(tried, tiny, capsys):
    result = visiontrain.check(data=str(tiny), imgsz=64)
    assert (result.exit_code, [row.name for row in result.rows]) == (0, ["same samples"])
    assert result.to_json()["data"]["images"] == {"train": 13, "val": 5}


def test_what_check_cannot_use_is_refused(capsys):
    assert cli.main(["check", "batch=8"]) == 2
    assert "data is missing" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="patience changes nothing in check"):
        build(CheckConfig, {"data": "d", "patience": 3})
    assert cli.main(["check", "data=nowhere.yaml"]) == 3


def test_nothing_is_written(tried, tiny, tmp_path, monkeypatch, user_cache):
    monkeypatch.chdir(tmp_path)
    before = hashes(tiny.parent)
    visiontrain.check(data=str(tiny), imgsz=64)
    assert hashes(tiny.parent) == before and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("width", [80, 120])
def test_the_report_fits_the_terminal(tried, tiny, capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    tried.rows = [Row("one batch", PASS, "1.0e-7", "words " * 40), Row("two", FAIL, "5 %", "words " * 40, "do " * 60)]
    cli.main(["check", f"data={tiny}", "imgsz=64"])
    piped = capsys.readouterr().out
    assert "\x1b" not in piped and f"{'words ' * 40}\n" in piped  # a line each, for grep
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    cli.main(["check", f"data={tiny}", "imgsz=64"])
    shown = capsys.readouterr().out
    assert "\x1b[31mFAIL \x1b[0m" in shown and "\x1b[32mpass \x1b[0m" in shown
    lines = re.sub(r"\x1b\[\d+m", "", shown).splitlines()
    assert max(len(line) for line in lines if str(tiny) not in line) <= width
