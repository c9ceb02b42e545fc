from __future__ import annotations

import numpy as np
import pytest

from tools.planted_faults import FAULTS, OFFSET
from visiontrain.config.groups import AugmentConfig
from visiontrain.data.dataset import EvalSet, TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split

STILL = AugmentConfig(translate=0.0, scale=0.0, fliplr=0.0, hsv_h=0.0, hsv_s=0.0, hsv_v=0.0, close_mosaic=0)


@pytest.fixture(scope="module")
def index(tiny):
    return read_split(load_description(str(tiny)), "train")


def boxes(index):
    return TrainSet(index, 64, STILL, seed=0, epochs=2)[0, 0].boxes


def labels(index):
    dataset = TrainSet(index, 64, STILL, seed=0, epochs=2)
    return np.concatenate([dataset[0, position].classes for position in range(len(index))])


def pad(index):
    return EvalSet(index, 64)[0].pad


def test_boxes_of_a_mosaic_are_off(index):
    sound = boxes(index)
    with FAULTS["mosaic"]([]):
        assert np.array_equal(boxes(index), sound + np.float32(OFFSET))
    assert np.array_equal(boxes(index), sound)


def test_the_letterbox_is_off_in_validation_alone(index):
    sound, trained = pad(index), boxes(index)
    with FAULTS["letterbox"]([]):
        assert pad(index) == (sound[0] + OFFSET, sound[1] + OFFSET)
        assert np.array_equal(boxes(index), trained)
    assert pad(index) == sound


def test_classes_are_swapped(index):
    sound = labels(index)
    with FAULTS["classes"]([]):
        swapped = labels(index)
    assert 0 < np.mean(swapped != sound) < 0.5
    assert np.array_equal(labels(index), sound)


def test_without_dfl_its_gain_is_zero():
    words = []
    with FAULTS["dfl"](words):
        assert words == ["dfl=0"]
