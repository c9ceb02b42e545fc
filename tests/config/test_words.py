"""Settings as words and back: a rank that is started for another process has the same settings, to the last bit."""

from __future__ import annotations

import contextlib
import math

import pytest

from visiontrain.config.parse import parse_keywords, parse_words, words_of
from visiontrain.config.schema import TrainConfig
from visiontrain.config.values import leaves_of
from visiontrain.errors import ConfigError

TEXTS = [
    "",
    " two  blanks ",
    "it's",
    '"both" and \'',
    "'quoted'",
    "a=b",
    "-dash",
    "$HOME ${x} $$",
    "line\nbreak",
    "true",
]
OWN = {
    "device": ["auto", "CPU", "cuda", "cuda:1", "3", "cpu,cpu", " 0, 1", "cuda:0,cuda:2"],
    "resume": ["true", "", "runs/my run/weights/last.pt"],
    "imgsz": [32, 640, [384, 640], (640, 384), "96,64", "[32, 64]"],
    "save_period": [-1, 1],
    "albumentations": [
        "default",
        "none",
        '{"transforms": [{"Blur": {"p": 0.1}, "at": "it is here"}]}',
        [{"Blur": None}],
    ],
    "classes": ["", "0,2", "cat", [0, "dog"], 3, "all"],
    "class_weights": ["none", "boxes", "cat:2,dog:0.5", {"cat": 2, "1": 0.5}, ["cat:1e-3", "a b:.5"]],
}


def values(leaf):
    """Values of a setting that are allowed, the odd ones included, with the settings that they make."""
    meta = leaf.meta
    bounds = [b for b in (meta["low"], meta["high"], meta["above"], meta["below"]) if b is not None]
    near = [math.nextafter(b, to) for b in bounds for to in (0, 1e9)] + [0.1 + 0.2, 1 / 3, 1e-17, 123456.789012345]
    by_kind = {
        bool: [True, False],
        int: [*bounds, 1, 7, 4294967295],
        float: [*bounds, *near],
        str: [*meta["choices"], *TEXTS],
    }
    tried = [*(OWN[leaf.name] if leaf.name in OWN else by_kind[leaf.kind]), *meta["words"], leaf.default]
    found = []
    for value in tried:
        with contextlib.suppress(ConfigError):  # out of range, or a path with a placeholder
            found.append((value, parse_keywords(TrainConfig, {"data": "d.yaml", leaf.name: value})))
    return found


@pytest.mark.parametrize("leaf", leaves_of(TrainConfig).values(), ids=lambda leaf: leaf.name)
def test_every_setting_comes_back_from_words_as_it_was(leaf):
    tried = values(leaf)
    assert len(tried) >= 2
    for value, config in tried:
        again = parse_words(TrainConfig, words_of(config))
        assert again == config and again.given == config.given, value
        before, after = config.leaves()[leaf.name], again.leaves()[leaf.name]
        assert type(before) is type(after) and before == after


def test_only_what_was_given_is_repeated_and_what_was_set_by_hand():
    config = parse_keywords(TrainConfig, {"data": "d.yaml", "epochs": 100})
    assert words_of(config) == ["data='d.yaml'", "epochs=100"]  # as given, though it is the default
    assert words_of(TrainConfig(data="d.yaml", batch=8)) == ["data='d.yaml'", "batch=8"]


@pytest.mark.parametrize(
    ("device", "kept"),
    [("0,1", "0,1"), ([0, 1], "0,1"), (("cpu", "cpu"), "cpu,cpu"), ("cuda:0,3", "cuda:0,3"), ([2], "2")],
)
def test_several_devices_are_a_list(device, kept):
    assert parse_keywords(TrainConfig, {"data": "d", "device": device}).device == kept


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("0,0", "takes different CUDA devices"),
        ("0,cuda:0", "takes different CUDA devices"),
        ("cpu,0", "takes different CUDA devices"),
        ("auto,auto", "takes different CUDA devices"),
        ("cuda,cuda", "takes different CUDA devices"),
        ("0,", "takes different CUDA devices"),
        ([], "must be auto, cpu, cuda"),
        ("mps,mps", "never run on mps"),
        ("0;1", "must be auto, cpu, cuda"),
    ],
)
def test_a_list_of_devices_that_means_nothing_is_refused(device, said):
    with pytest.raises(ConfigError, match=said):
        parse_keywords(TrainConfig, {"data": "d", "device": device})
