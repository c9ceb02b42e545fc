from __future__ import annotations

import re

import pytest

from tools.bench_index import main
from visiontrain.errors import ConfigError


@pytest.mark.parametrize("files", [[], ["files=100"]])
def test_the_report_and_nothing_stays(files, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("tools.bench_index.FEW", 10)
    monkeypatch.setattr("tools.bench_index.IN_A_FOLDER", 50)
    monkeypatch.setattr("tools.bench_index.LINKS", 40)
    monkeypatch.setattr("tools.bench_index.time.sleep", lambda seconds: None)
    monkeypatch.setattr("visiontrain.data.watch.SETTLED", -(10**12))
    monkeypatch.setenv("VISIONTRAIN_CACHE", "")  # put back at the end
    main(["images=120", *files, "workers=1", "epochs=2", f"in={tmp_path}"])
    said = capfd.readouterr().out
    assert said.startswith(f"{100 if files else 120} pictures and label files written")
    assert "read and kept: " in said and "asked whether a file has changed" in said
    assert re.search(r"^120 pictures, [67]\.", said, re.MULTILINE)
    assert re.findall(r"^epoch (\d):", said, re.MULTILINE) == ["1", "2"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("word", ["images=0", "in=/nowhere", "image=3"])
def test_wrong_words_are_answered_with_the_usage(word):
    with pytest.raises(ConfigError, match="usage: python tools/bench_index"):
        main([word])
