"""A picture that goes bad while a run is going: skipped, named and counted; too many end the run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.data.bad import ONE_IN, refuse_many
from visiontrain.errors import DataError
from visiontrain.record.events import Notice, RunStarted
from visiontrain.training.run import train

pytestmark = pytest.mark.usefixtures("narrow")


@pytest.fixture
def data(tiny, tmp_path) -> Path:
    return shutil.copytree(tiny.parent, tmp_path / "data")


def go(data, *broken, **settings):
    """A run in which the pictures break after the index was made, and what it told."""
    told = []

    def listen(event):
        if isinstance(event, RunStarted):
            for name in broken:
                (data / "images" / name).write_bytes(b"\x89PNG\r\n\x1a\n but no more")
        elif isinstance(event, Notice):
            told.append(event.text)

    values = {
        "data": str(data / "data.yaml"), "project": str(data.parent / "runs"), "device": "cpu", "workers": 0, "epochs": 2,
        "batch": 2, "nbs": 4, "imgsz": 64, "plots": True, "mosaic": 0.0, "exist_ok": True, **settings,
    }  # fmt: skip
    return train(build(TrainConfig, values), [listen]), told


@pytest.mark.parametrize("cache", ["", "ram"])
def test_one_picture_is_named_counted_and_does_not_stop_the_run(data, cache):
    result, told = go(data, "train/3.png", "val/1.png", cache=cache)
    record = json.loads((result.folder / "run.json").read_text())
    assert result.outcome == "finished" and record["measured"]["images_seen"] == 26
    (said,) = record["measured"]["unreadable"]
    assert said.startswith(f"{data}/images/train/3.png: not a picture that can be used") and "as PNG" in said
    assert [text for text in told if "train/3.png" in text] == [
        f"{said}. Left out: its place in training samples is grey, without objects."
    ]
    assert any(
        "1 pictures cannot be read any more and are in no score" in text and "val/1.png" in text for text in told
    )
    assert any("train/3.png" in text for text in record["warnings"])


def test_too_many_end_the_run(data):
    with pytest.raises(DataError, match=r"2 of 13 pictures were readable .* and are not any more"):
        go(data, "train/3.png", "train/4.png")


def test_more_bad_than_good_pictures_are_no_data_set(data):
    """The index leaves out what is bad; up to a half it goes on, and says so."""
    for number in range(7):
        (data / f"images/train/{number}.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"train: 7 pictures cannot be used and 6 can, for example\n  .*0.png: not a"):
        go(data)


@pytest.mark.parametrize(
    ("bad", "pictures", "many"),
    [(0, 5, False), (1, 5, False), (2, 5, True), (1, 1, True), (ONE_IN, 400, False), (ONE_IN + 1, 400, True)],
)
def test_how_many_are_too_many(bad, pictures, many):
    named = [f"{number}.jpg: gone" for number in range(bad)]
    if not many:
        refuse_many(named, pictures)
        return
    with pytest.raises(DataError, match=rf"{bad} of {pictures} pictures .*\n  0.jpg: gone"):
        refuse_many(named, pictures)
