"""What is still to be painted: cut, joined and sent like pixels, and painted where its matrix says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from visiontrain import drawing
from visiontrain.batch import Sample, collate, empty_batch, join, regroup
from visiontrain.drawing import Drawing, Piece, pack


def piece(pixels, x, y, seen=None, wide=1.0, high=1.0):
    """Pixels enlarged by ``wide`` and ``high`` with their corner at (x, y)."""
    height, width = pixels.shape[:2]
    region = x, y, x + round(width * wide), y + round(height * high)
    return Piece(
        (height, width), region, np.array(((1 / wide, 0, -x / wide), (0, 1 / high, -y / high), (0, 0, 1))), seen, pixels
    )


def noise(seed, height, width):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def sample(position, objects=1, size=(20, 30)):
    """Two pieces of noise on grey; position 7 has none."""
    pieces = (piece(noise(position, 8, 9), 2, 1), piece(noise(position + 100, 5, 4), 12, 9, wide=2.0))
    return Sample(
        image=np.empty((0, 0, 3), np.uint8),
        classes=np.arange(objects, dtype=np.int64),
        boxes=np.full((objects, 4), position, np.float32),
        position=position,
        drawing=Drawing(size, (() if position == 7 else pieces,), colour=None if position % 2 else np.eye(3) * 0.5),
    )


def painted(*drawings, size=(20, 30)):
    return pack(drawings).paint(*size, "cpu").permute(0, 2, 3, 1).numpy()


def test_a_piece_lands_on_its_pixels_and_grey_is_around_it():
    pixels = noise(0, 8, 9)
    (image,) = painted(Drawing((20, 30), ((piece(pixels, 2, 1),),)))
    np.testing.assert_array_equal(image[1:9, 2:11], pixels)
    image[1:9, 2:11] = 114
    assert (image == 114).all()


def test_an_enlarged_piece_is_linear_between_the_middles_of_its_pixels():
    row = np.repeat(np.array([0, 100, 40], np.uint8)[None, :, None], 3, axis=2)
    (image,) = painted(Drawing((1, 6), ((piece(row, 0, 0, wide=2.0),),)), size=(1, 6))
    assert image[0, :, 0].tolist() == [0, 25, 75, 85, 55, 40]


def test_what_is_painted_has_eight_bits_before_colour_multiplies_it():
    pixels = np.repeat(np.array([0, 1], np.uint8)[None, :, None], 3, axis=2)
    (image,) = painted(Drawing((1, 4), ((piece(pixels, 0, 0, wide=2.0),),), colour=100 * np.eye(3)), size=(1, 4))
    assert image[0, :, 0].tolist() == [0, 0, 100, 100]


def test_only_what_is_seen_is_drawn():
    pixels = noise(0, 8, 8)
    (image,) = painted(Drawing((8, 8), ((piece(pixels, 0, 0, seen=(2.5, 0, 6.5, 3)),),)), size=(8, 8))
    np.testing.assert_array_equal(image[:3, 2:6], pixels[:3, 2:6])
    image[:3, 2:6] = 114
    assert (image == 114).all()


def test_behind_the_eye_nothing_is_drawn():
    pixels = np.full((8, 8, 3), 255, np.uint8)
    lens = np.array(((1, 0, 0), (0, 1, 0), (-0.25, 0, 1)))  # depth 0 at x = 4
    (image,) = painted(Drawing((8, 8), ((Piece((8, 8), (0, 0, 8, 8), lens, (0, 0, 8, 8), pixels),),)), size=(8, 8))
    assert (image[:, 4:] == 114).all() and (image[0, :2] == 255).all()


@pytest.mark.parametrize(("upside", "sideways"), [(False, True), (True, False), (True, True)])
def test_a_flip_moves_every_pixel_to_the_other_side(upside, sideways):
    plain = sample(2).drawing
    one, two = painted(plain), painted(plain.flipped(upside=upside, sideways=sideways))
    expected = one[:, :: -1 if upside else 1, :: -1 if sideways else 1]
    np.testing.assert_array_equal(two, expected)
    assert not np.array_equal(one, two)


def test_a_mixture_is_rounded_and_coloured_as_a_whole():
    one, two = (Drawing((4, 4), ((piece(np.full((4, 4, 3), value, np.uint8), 0, 0),),)) for value in (100, 201))
    assert painted(one.mixed(two, 0.25), size=(4, 4))[0, 0, 0].tolist() == [176] * 3
    colour = np.array(((0, 0, 2), (0, 1, 0), (0.3, 0.3, 0.3)))
    mixed = Drawing((4, 4), one.mixed(two, 0.25).layers, 0.25, colour)
    assert painted(mixed, size=(4, 4))[0, 0, 0].tolist() == [255, 176, 158]


def test_a_smaller_picture_lies_at_the_top_left():
    small, large = Drawing((10, 10), ((),), colour=np.zeros((3, 3))), sample(2).drawing
    images = painted(small, large)
    assert (images[0, :10, :10] == 0).all() and (images[0, 10:] == 114).all() and (images[0, :, 10:] == 114).all()


SAMPLES = [sample(5, 2), sample(6), sample(7, 3), sample(8, 0)]


def test_a_batch_has_a_shape_and_no_pixels_until_it_is_painted():
    batch = collate(SAMPLES)
    assert batch.images.shape == (4, 3, 20, 30) and batch.images.dtype == torch.uint8 and len(batch) == 4
    with pytest.raises(TypeError, match="meta"):
        batch.images.numpy()
    images = batch.painted().images
    assert images.dtype == torch.uint8 and images.is_contiguous(memory_format=torch.channels_last)
    assert (images[2] == 57).logical_or(images[2] == 114).all() and len(images[0].unique()) > 20
    moved = batch.to("cpu", torch.float64)
    assert moved.drawings is None and moved.images.dtype == torch.float64
    torch.testing.assert_close(moved.images * 255, images.double())
    assert torch.equal(moved.to("cpu").images, moved.to("cpu").images) and batch.to("cpu").painted().drawings is None


def test_painting_again_gives_the_same_bits():
    drawings = collate(SAMPLES).drawings
    assert torch.equal(drawings.paint(20, 30, "cpu"), drawings.paint(20, 30, "cpu"))


@pytest.mark.parametrize(("sizes", "size"), [((4,), 1), ((4,), 3), ((1, 3), 2), ((1, 1, 2), 3), ((2, 2), 9)])
def test_cutting_and_joining_keep_every_picture(sizes, size):
    whole = collate(SAMPLES)
    expected = whole.painted().images
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    pieces = regroup([whole.slice(a, a + n) for a, n in zip(starts, sizes, strict=True)], size)
    at = 0
    for part in pieces:
        assert torch.equal(part.painted().images, expected[at : at + len(part)])
        assert part.drawings.pixels.numel() == sum(d.pixels_bytes for d in part.drawings.each)  # and sends no others
        at += len(part)
    again = join(pieces)
    assert at == 4 and torch.equal(again.painted().images, expected) and again.positions == whole.positions


def test_cutting_copies_no_pixel():
    batch = collate(SAMPLES)
    first, second = batch.split(2)
    assert first.drawings.pixels.data_ptr() == batch.drawings.pixels.data_ptr()
    assert second.drawings.pixels.data_ptr() == first.drawings.pixels.data_ptr() + first.drawings.pixels.numel()


def test_an_empty_batch_is_one_whatever_the_others_are():
    empty = empty_batch(20, 30).to("cpu")
    assert empty.images.shape == (0, 3, 20, 30) and empty.drawings is None


def test_pinning_takes_the_pieces_and_leaves_what_has_no_pixels(monkeypatch):
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: (pinned.append(tensor.device.type), tensor)[1])
    batch = collate(SAMPLES).pin_memory()
    assert pinned == ["cpu"] * 5  # three of the targets, the pixels of the pieces, the colours
    assert torch.equal(batch.painted().images, collate(SAMPLES).painted().images)


def test_grey_is_that_of_pictures():
    from visiontrain.data.image import GREY

    assert drawing.GREY == GREY
