"""The benchmark of the loader: stages that are shares of the whole, one decoded picture a sample, through processes too."""

from __future__ import annotations

import json

import pytest

from tools.bench_loader import STAGES, main


@pytest.mark.parametrize("cache", ["false", "ram"])
def test_it_measures_what_it_says(shared, capsys, cache):
    data = f"data={shared / 'data/coco128/data.yaml'}"
    main([data, "imgsz=64", "samples=32", "repeat=10", "processes=1", f"cache={cache}", "format=json"])
    result = json.loads(capsys.readouterr().out)
    assert sum(result["shares"].values()) == pytest.approx(1)
    without = {"open and decode", "shrink to training size"} if cache == "ram" else set()
    assert {name for name in STAGES if not result["shares"][name]} == without
    assert result["decoded_per_sample"] == (0 if cache == "ram" else 1)
    assert result["milliseconds"] == pytest.approx(1000 / result["samples_per_second"])
    assert result["milliseconds_through_processes"] > 0


def test_lines(shared, capsys):
    main([f"data={shared / 'data/coco128/data.yaml'}", "imgsz=64", "samples=16", "repeat=1", "processes=1"])
    first, second, *stages = capsys.readouterr().out.splitlines()
    assert "64 px" in first and "pictures decoded for each" in first
    assert second.endswith("from loader processes: 1") and len(stages) == len(STAGES) + 1
