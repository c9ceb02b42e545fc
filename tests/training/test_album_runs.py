"""A pipeline of the user's in whole runs: recorded, resumed, and asked for again where it cannot be written down."""

from __future__ import annotations

import json

import pytest
import yaml
from training.test_run import assert_same_state, interrupt_in_window
from training.test_sampling import go

from visiontrain.actions import ranks_to_start
from visiontrain.config.parse import parse_keywords, parse_words
from visiontrain.config.schema import TrainConfig
from visiontrain.errors import ConfigError, Interrupted
from visiontrain.training.run import train

pytestmark = pytest.mark.usefixtures("narrow")


@pytest.fixture
def library():
    return pytest.importorskip("albumentations", reason="needs albumentations>=2.0.8,<2.1")


def test_a_pipeline_is_in_the_record_and_a_resumed_run_has_it(library, short_run):
    compose = library.Compose([library.HorizontalFlip(p=0.5), library.Blur(p=0.5)])
    whole = train(parse_keywords(TrainConfig, {**short_run, "albumentations": compose, "name": "whole"}))
    record = json.loads((whole.folder / "run.json").read_text())
    assert any(sentence.startswith("albumentations: HorizontalFlip, Blur") for sentence in record["plan"])
    stored = json.loads(record["given"]["settings"]["albumentations"])
    assert [next(iter(entry)) for entry in stored["transforms"]] == ["HorizontalFlip", "Blur"]
    arguments = whole.folder / "args.yaml"
    assert yaml.safe_load(arguments.read_text())["albumentations"] == record["given"]["settings"]["albumentations"]
    assert parse_words(TrainConfig, [f"cfg={arguments}"]).augment.albumentations.own
    with pytest.raises(Interrupted):
        given = {**short_run, "albumentations": compose, "name": "cut"}
        train(parse_keywords(TrainConfig, given), [interrupt_in_window(4)])
    last = whole.folder.parent / "cut" / "weights" / "last.pt"
    go({"resume": str(last)})
    assert_same_state(whole.folder / "weights" / "last.pt", last)


def test_what_cannot_be_written_down_is_asked_for_again_and_stays_on_one_device(library, short_run):
    compose = library.Compose([library.Lambda(image=darker), library.Blur(p=0.5)])
    given = {**short_run, "albumentations": compose}
    whole = train(parse_keywords(TrainConfig, {**given, "name": "whole"}))
    with pytest.raises(Interrupted):
        train(parse_keywords(TrainConfig, {**given, "name": "cut"}), [interrupt_in_window(4)])
    last = whole.folder.parent / "cut" / "weights" / "last.pt"
    with pytest.raises(ConfigError, match="must be given again as it was"):
        go({"resume": str(last)})
    train(parse_keywords(TrainConfig, {"resume": str(last), "albumentations": compose}))
    assert_same_state(whole.folder / "weights" / "last.pt", last)
    with pytest.raises(ConfigError, match="ranks of several devices cannot be given it"):
        ranks_to_start(parse_keywords(TrainConfig, {**given, "device": "cpu,cpu"}))


def darker(image, **_):
    return image // 2
