from __future__ import annotations

import json

from tools.bench_train import main
from visiontrain import models


def test_the_shares_are_of_the_whole(tiny, monkeypatch, capsys):
    monkeypatch.setattr(models, "_sizes", lambda family: {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}})
    words = ["imgsz=64", "batch=2", "nbs=4", "workers=0", "device=cpu", "windows=2", "format=json"]
    main([f"data={tiny}", *words])
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["shares"].keys() == {"loading", "forward", "loss", "backward", "update"}
    assert 0.5 < sum(said["shares"].values()) < 1.001
    assert said["images_per_second"] > 0 and said["peak_bytes"] > 0
