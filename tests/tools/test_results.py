from __future__ import annotations

import json

import pytest

from tools.results import rows_of, store
from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.errors import ConfigError
from visiontrain.training.run import RunResult


def test_a_row_holds_the_best_epoch_and_the_last_each_as_such(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    scores = {"best": {"epoch": 7, "ap": 0.4, "ap50": 0.6}, "last": {"epoch": 9, "ap": 0.3, "ap50": 0.5}}
    (folder / "run.json").write_text(json.dumps({"measured": {"metrics": scores, "seconds": 12.5}}))
    result = RunResult(folder, {"ap": 0.41, "ap50": 0.61}, "finished", {})
    row = store(result, "x.json", build(TrainConfig, {"seed": 3, "batch": 2}), ("batch", "seed"), {"policy": "p"})
    assert row == {
        "policy": "p", "batch": 2, "seed": 3, "ap": 0.41, "ap50": 0.61, "best_epoch": 7, "last_ap": 0.3, "last_ap50": 0.5,
        "seconds": 12.5, "folder": str(folder),
    }  # fmt: skip
    assert rows_of(tmp_path, "x.json") == [row]


def test_a_project_without_rows_says_what_is_looked_for(tmp_path):
    with pytest.raises(ConfigError, match=r"no \*/x\.json there"):
        rows_of(tmp_path, "x.json")
