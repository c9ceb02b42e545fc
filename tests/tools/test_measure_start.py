from __future__ import annotations

import re

import pytest

from tools.measure_start import main
from visiontrain.errors import ConfigError


def test_the_report(monkeypatch, capsys):
    monkeypatch.setattr("tools.measure_start.LISTED", 1000)
    main(["read=30", "images=200"])
    read, built, listed, computed = capsys.readouterr().out.splitlines()
    for line, images in ((read, 30), (built, 200)):
        assert f": {images} images, " in line
        measured, said = re.search(r"index ([\d.]+) bytes an image \(computed ([\d.]+)\)", line).groups()
        assert measured == said
    assert "44 bytes of path each" in built and "ndarray" in listed and "Shuffle" in computed


@pytest.mark.parametrize("word", ["images=0", "read=x", "image=3"])
def test_wrong_words_are_answered_with_the_usage(word):
    with pytest.raises(ConfigError, match="usage: python tools/measure_start"):
        main([word])
