from __future__ import annotations

import json

import cv2
import numpy as np
import pytest
import torch

from tools.gradient_gap import main, read_words
from visiontrain import models
from visiontrain.errors import ConfigError

torch.set_num_threads(1)

OBJECTS = (1, 4, 0, 12)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Four pictures of noise, some with many objects and one with none."""
    root = tmp_path_factory.mktemp("gap")
    rng = np.random.default_rng(0)
    for folder in ("images", "labels"):
        (root / folder).mkdir()
    for i, count in enumerate(OBJECTS):
        cv2.imwrite(str(root / "images" / f"{i}.png"), rng.integers(0, 255, (48, 64, 3), dtype=np.uint8))
        rows = [f"0 {x:.3f} {y:.3f} 0.3 0.4" for x, y in rng.uniform(0.2, 0.8, (count, 2))]
        (root / "labels" / f"{i}.txt").write_text("\n".join(rows))
    (root / "data.yaml").write_text("path: .\ntrain: images\nval: images\nnames: [a]\n")
    return root / "data.yaml"


@pytest.mark.parametrize("statistics", ["fresh", "pictures"])
def test_a_table_and_a_last_line_for_programs(data, monkeypatch, capsys, statistics):
    narrow = {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}}
    monkeypatch.setattr(models, "_sizes", lambda family: narrow)
    main([f"data={data}", "images=4", "imgsz=64", f"statistics={statistics}", "format=json"])
    said = capsys.readouterr().out
    rows = json.loads(said.splitlines()[-1])
    assert [row["m"] for row in rows] == [2, 1]
    assert all(row.keys() == {"m", "fp32", "fp64", "mean_of_ratios"} for row in rows)
    assert all(row["fp64"] <= 1e-12 for row in rows)
    assert all(row["fp32"] <= {"fresh": 1e-5, "pictures": 1e-4}[statistics] for row in rows)
    assert all(row["mean_of_ratios"] > 1e-3 for row in rows)
    assert "17 objects (0 to 12 in a picture)" in said
    assert said.count("%") == len(rows)


@pytest.mark.parametrize(
    "words",
    [[], ["images=4"], ["data=a", "imgs=3"], ["data=a", "fast"], ["data=a", "images=x"], ["data=a", "statistics=x"]],
)
def test_wrong_words_are_answered_with_the_usage(words):
    with pytest.raises(ConfigError, match=r"usage: python tools/gradient_gap\.py data=PATH"):
        read_words(words)


def test_more_pictures_than_there_are_is_an_error(data):
    with pytest.raises(ConfigError, match="images=5: the split has 4"):
        main([f"data={data}", "images=5", "imgsz=64"])
