from __future__ import annotations

import json

from tools.memory_by_accumulate import main
from visiontrain import models


def test_a_process_measures_its_windows(tiny, monkeypatch, capsys):
    monkeypatch.setattr(models, "_sizes", lambda family: {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}})
    main([f"data={tiny}", "imgsz=64", "batch=2", "workers=0", "device=cpu", "one=2", "windows=2"])
    said = json.loads(capsys.readouterr().out)
    assert said["phases"].keys() == {"baseline", "first window", "later windows"}
    assert said["peak"] >= max(said["phases"].values()) > 0
