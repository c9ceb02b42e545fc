"""augment_device=gpu: torch paints what OpenCV paints, boxes are the same bits. On the CPU; tools/gpu_painting.py is for CUDA."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from visiontrain.batch import collate
from visiontrain.config.groups import AugmentConfig
from visiontrain.data.augment.draft import Tile
from visiontrain.data.augment.lay import lay, most_pixels
from visiontrain.data.augment.paint import paint
from visiontrain.data.dataset import TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.data.loader import Loader
from visiontrain.data.pixels import Pixels
from visiontrain.data.sampler import WindowSampler
from visiontrain.drawing import Drawing, pack

STILL = AugmentConfig(
    hsv_h=0, hsv_s=0, hsv_v=0, translate=0, scale=0, fliplr=0, mosaic=0, close_mosaic=0
)  # fmt: skip
MOVED = {"mosaic": 1, "scale": 0.5, "translate": 0.1}
# Settings, and the largest difference in 1/255. OpenCV resizes with weights of 11 bits, and its warps before version 5 know
# positions to 1/32 of a pixel; colour multiplies what rounding left.
CASES = {
    "letterbox": ({}, 1),
    "mosaic": (MOVED, 1),
    "flips": ({**MOVED, "flipud": 0.5, "fliplr": 0.5}, 1),
    "colour": ({"hsv_h": 0.015, "hsv_s": 0.7, "hsv_v": 0.4}, 4),
    "warped": ({**MOVED, "degrees": 20, "shear": 8}, 8),
    "warped, one picture": ({"degrees": 45, "scale": 0.8}, 8),
    "perspective": ({**MOVED, "perspective": 0.0008, "degrees": 5}, 8),
    "mixup": ({**MOVED, "mixup": 1}, 1),
    "mixup, warped": ({**MOVED, "mixup": 1, "degrees": 10, "hsv_s": 0.7, "flipud": 0.5}, 8),
}
MOST_MEAN = 0.3  # 1/255, of a batch
ON_EDGES = 1e-4  # share of pixels beside the border of a turned tile that one takes for inside and the other does not


@pytest.fixture(scope="module")
def index(shared):
    return read_split(load_description(shared / "data/coco128/data.yaml"), "train")


def both(index, size, settings, count=5):
    """The same samples painted by OpenCV and to be painted by torch."""
    host = TrainSet(index, size, settings, 1, 100)
    device = TrainSet(index, size, replace(settings, augment_device="gpu"), 1, 100)
    return [collate([each[0, position] for position in range(count)]) for each in (host, device)]


@pytest.mark.parametrize("size", [192, (160, 288)], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_torch_paints_what_opencv_paints(index, case, size):
    settings, most = CASES[case]
    host, device = both(index, size, replace(STILL, **settings))
    for name in ("image", "classes", "boxes"):
        assert torch.equal(getattr(host.targets, name), getattr(device.targets, name)), name
    assert host.positions == device.positions and host.images.shape == device.images.shape
    apart = (host.images.int() - device.painted().images.int()).abs()
    assert apart.float().mean() < MOST_MEAN
    assert (apart.amax(1) > most).float().mean() <= (ON_EDGES if {"degrees", "perspective"} & settings.keys() else 0)


@pytest.mark.parametrize("lens", [(-0.02, 0), (0.015, 0.011)], ids=str)
def test_part_of_a_tile_behind_the_eye(index, lens):
    """Stronger than settings allow at this size: depth 0 crosses the picture."""
    size, tile = (192, 192), Tile(3, 20, 0, 150, 192)
    centre = np.array(((1, 0, -96), (0, 1, -96), (*lens, 1)))
    centre[2, 2] -= 96 * sum(lens)
    matrix = tuple((np.array(((1, 0, 96), (0, 1, 96), (0, 0, 1))) @ centre).ravel())
    pictures, seen = Pixels(index, size), (0.0, 0.1, 0.9, 1.0)
    image, pieces = np.full((*size, 3), 114, np.uint8), []
    forward = paint(image, tile, seen, matrix, pictures)
    assert lay(pieces, size, tile, seen, matrix, pictures) == forward
    painted = pack([Drawing(size, (tuple(pieces),))]).paint(*size, "cpu")[0].permute(1, 2, 0).numpy()
    apart = np.abs(image.astype(int) - painted).max(axis=2)
    assert (image != 114).mean() > 0.1 and (apart > 8).mean() < 1e-3


def test_a_strong_reduction_does_not_alias(index):
    """Down to a tenth of their size: area means on the host, in both ways to draw."""
    for settings in ({}, {"degrees": 10}):
        host, device = both(index, 64, replace(STILL, scale=0.9, **settings), count=12)
        apart = (host.images.int() - device.painted().images.int()).abs()
        assert apart.float().mean() < MOST_MEAN and (apart > 8).float().mean() <= ON_EDGES


@pytest.mark.parametrize("settings", [{**MOVED}, {**MOVED, "mixup": 1, "degrees": 30}, {"degrees": 30}], ids=str)
def test_pieces_are_no_larger_than_was_planned_for(index, settings):
    settings = replace(STILL, **{**settings, "scale": 0.9})
    _, device = both(index, 96, settings, count=20)
    largest = max(drawing.pixels_bytes for drawing in device.drawings.each) / (96 * 96 * 3)
    assert most_pixels(settings) / 8 < largest <= most_pixels(settings)


def test_what_lies_outside_of_a_sample_is_not_sent(index):
    """A turned tile sends the rectangle that shows, not its picture: half of a mosaic lies outside."""
    settings = replace(STILL, mosaic=1, degrees=3, scale=0.1)
    _, device = both(index, 192, settings, count=10)
    assert device.drawings.pixels.numel() < 1.3 * device.images.numel()


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_and_the_cut_change_no_bit(index, workers):
    settings = replace(STILL, mosaic=0.7, mixup=0.3, degrees=5, hsv_s=0.5, fliplr=0.5, augment_device="gpu")
    samples = TrainSet(index, 96, settings, 0, 100)
    with Loader(samples, workers) as loader:
        found = [batch.painted().images for batch in loader.run(WindowSampler([(0, 7)], 3, 2))]
    expected = [collate([samples[2, position]]).painted().images for position in range(7)]
    assert torch.equal(torch.cat(found), torch.cat(expected))


def test_a_picture_of_nothing_is_grey(index):
    """All of the only tile lies outside."""
    settings = replace(STILL, translate=1, scale=0.9, augment_device="gpu")
    samples = TrainSet(index, 32, settings, 0, 100)
    empty = [each for each in (samples[0, p] for p in range(60)) if not each.drawing.pieces]
    assert empty and all(len(each.boxes) == 0 for each in empty)
    assert (collate(empty[:1]).to("cpu").images == np.float32(114 / 255)).all()
