from __future__ import annotations

import json

import pytest

from tools import norm_policies
from tools.norm_policies import POLICIES, RESULT, main, read_words
from visiontrain import models
from visiontrain.errors import ConfigError
from visiontrain.training.statistics import AS_IT_IS, BatchNormPolicy


@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_policy_means(policy):
    asked = read_words(["data=x", f"policy={policy}", "batch=2", "nbs=32", "reestimate=100", "reestimate_batch=8"])
    assert asked.config.norm == (policy if policy in ("group", "frozen") else "batch")
    assert (asked.config.batch, asked.config.nbs, str(asked.config.imgsz), asked.config.epochs) == (2, 32, "160", 20)
    momentum, reestimated = "momentum" in policy, "reestimate" in policy
    assert asked.statistics == BatchNormPolicy(32 * momentum, 100 * reestimated, 8)
    assert (read_words(["data=x", f"policy={policy}"]).statistics == AS_IT_IS) == (not (momentum or reestimated))


def test_the_nominal_batch_can_be_another():
    assert read_words(["data=x", "policy=momentum", "nominal=16"]).statistics.nominal_images == 16


@pytest.mark.parametrize(
    "words",
    [
        ["data=x"],
        ["data=x", "policy=best"],
        ["data=x", "policy=batch", "norm=group"],
        ["data=x", "policy=reestimate", "reestimate=0"],
        ["data=x", "policy=batch", "fast"],
        ["data=x", "policy=batch", "policy=group"],
    ],
)
def test_wrong_words_are_answered_with_the_usage(words):
    with pytest.raises(ConfigError, match=r"usage: python tools/norm_policies\.py data=PATH"):
        read_words(words)


def test_a_run_prints_its_line_and_the_table_reads_it(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(models, "_sizes", lambda family: {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}})
    words = f"data={tiny} project={tmp_path} policy=momentum+reestimate name=a batch=4 nbs=8 imgsz=64 epochs=1".split()
    seen = []
    train = norm_policies.train
    monkeypatch.setattr(
        norm_policies, "train", lambda c, statistics: seen.append(statistics) or train(c, (), statistics)
    )
    main([*words, "reestimate=4", "workers=0", "device=cpu"])
    row = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert row == json.loads((tmp_path / "a" / RESULT).read_text())
    assert seen == [BatchNormPolicy(8, 4, 16)]
    assert {row[name] for name in ("ap", "ap50", "last_ap", "last_ap50")} <= {row["ap"], row["ap50"]}  # one epoch
    assert (row["policy"], row["batch"], row["nominal"], row["reestimate"]) == ("momentum+reestimate", 4, 8, 4)
    for name, seed, ap in (("b", 1, 0.2), ("c", 0, 0.4)):
        (tmp_path / name).mkdir()
        other = {**row, "policy": "group", "nominal": 0, "reestimate": 0, "seed": seed, "ap": ap, "ap50": 0.5}
        (tmp_path / name / RESULT).write_text(json.dumps(other))
    main([f"table={tmp_path}"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| imgsz | epochs | nbs | batch | policy | nominal | reestimate | seeds | AP | AP50 | last AP |"
    assert lines[2].startswith(
        "| 64 | 1 | 8 | 4 | group | 0 | 0 | 0, 1 | 0.300 (0.200 to 0.400) | 0.500 (0.500 to 0.500)"
    )
    assert lines[3].startswith("| 64 | 1 | 8 | 4 | momentum+reestimate | 8 | 4 | 0 | ")


def test_a_folder_without_results_is_said(tmp_path):
    with pytest.raises(ConfigError, match=r"norm_policy\.json there"):
        main([f"table={tmp_path}"])
