from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from laws.toys import Narrow, cut, gradient_by_hand, relative, run_window

from tools import split_effect
from tools.split_effect import RESULT, OwnDenominator, main, read_words, with_one_class
from visiontrain import models
from visiontrain.config.groups import LossConfig
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.errors import ConfigError
from visiontrain.losses import LOSSES, DetectionLoss

torch.set_num_threads(1)


def mean_of_quotients(world, parts):
    """sum over micro-batches of images_k * d(S_k / max(w_k, 1))/dp, by hand."""
    return sum(gradient_by_hand(world, part) for part in parts)


@pytest.mark.parametrize("sizes", [[4] * 4, [7, 1, 8]], ids=["even", "ragged"])
def test_its_own_denominator_gives_the_mean_of_quotients(sizes):
    world = Narrow()
    parts = cut(world.batch(), sizes)
    ours = run_window(world, parts, provisional=4.0, criterion=OwnDenominator(LossConfig()))
    expected = mean_of_quotients(world, parts)
    assert relative(ours.gradient, expected) <= 1e-12
    window = run_window(world, parts, provisional=4.0)
    assert relative(window.gradient, gradient_by_hand(world, world.batch())) <= 1e-12
    assert relative(ours.gradient, window.gradient) > 1e-3  # the difference that is to be measured
    quotients = [sum(run_window(world, [part]).sums.part_means.values()) * len(part) / 16 for part in parts]
    assert ours.sums.loss == pytest.approx(sum(quotients), rel=1e-9)
    assert sum(ours.sums.part_means.values()) == pytest.approx(ours.sums.loss, rel=1e-6)


def test_one_micro_batch_is_the_same_either_way():
    world = Narrow()
    ours = run_window(world, [world.batch()], criterion=OwnDenominator(LossConfig()))
    assert relative(ours.gradient, run_window(world, [world.batch()]).gradient) <= 1e-12


def test_a_copy_with_one_class_in_the_same_order(tiny, tmp_path):
    before = {path: path.read_bytes() for path in sorted(tiny.parent.rglob("*")) if path.is_file()}
    made = with_one_class(str(tiny), "sea", tmp_path / "runs")
    assert made == with_one_class(str(tiny), "sea", tmp_path / "runs")
    for split in ("train", "val"):
        whole, part = read_split(load_description(tiny), split), read_split(load_description(made), split)
        assert part.names == ("sea",) and not part.findings and len(part) == len(whole)
        for i in range(len(whole)):
            assert np.array_equal(part.boxes(i), whole.boxes(i)[whole.classes(i) == 1])
            assert part.path(i).endswith(whole.path(i).rsplit("/", 1)[1])
    assert {path: path.read_bytes() for path in sorted(tiny.parent.rglob("*")) if path.is_file()} == before
    assert [p.name for p in (tmp_path / "runs").iterdir()] == ["data-sea"]
    with pytest.raises(ConfigError, match="has the classes sun, sea"):
        with_one_class(str(tiny), "moon", tmp_path / "runs")


@pytest.mark.parametrize(
    "words",
    [["data=x", "keep=a"], ["data=x", "denominator=window"], ["data=x", "keep=a", "denominator=own"], ["keep"]],
)
def test_wrong_words_are_answered_with_the_usage(words):
    with pytest.raises(ConfigError, match=r"usage: python tools/split_effect\.py data=PATH"):
        read_words(words)


def test_a_run_prints_its_line_and_the_table_reads_it(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(models, "_sizes", lambda family: {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}})
    seen = []
    train = split_effect.train
    monkeypatch.setattr(split_effect, "train", lambda config: seen.append(LOSSES["detection"]) or train(config))
    words = f"data={tiny} keep=sea project={tmp_path} imgsz=64 epochs=1 workers=0 device=cpu batch=4 nbs=8".split()
    main([*words, "denominator=micro_batch", "name=a"])
    row = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert row == json.loads((tmp_path / "a" / RESULT).read_text())
    assert (row["norm"], row["batch"], row["nbs"], row["denominator"]) == ("batch", 4, 8, "micro_batch")
    assert seen == [OwnDenominator] and LOSSES["detection"] is DetectionLoss
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / RESULT).write_text(json.dumps({**row, "batch": 1, "ap": 0.25, "ap50": 0.5}))
    main([f"table={tmp_path}"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| norm | denominator | seed | AP (AP50) batch=4 | AP (AP50) batch=1 |"
    assert lines[2] == f"| batch | micro_batch | 0 | {row['ap']:.3f} ({row['ap50']:.3f}) | 0.250 (0.500) |"


def test_the_window_is_the_products_own_path(monkeypatch, tiny, tmp_path):
    class Seen(Exception):
        pass

    def look(config):
        assert LOSSES["detection"] is DetectionLoss
        raise Seen

    monkeypatch.setattr(split_effect, "train", look)
    with pytest.raises(Seen):
        main([f"data={tiny}", "keep=sea", f"project={tmp_path}", "denominator=window"])
