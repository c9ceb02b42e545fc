"""Batches keep each picture with its targets, through stacking, cutting and moving."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from visiontrain.batch import Sample, collate, empty_batch, join, regroup


def sample(position, height, width, objects):
    rng = np.random.default_rng(position)
    return Sample(
        image=rng.integers(0, 255, (height, width, 3), np.uint8),
        classes=np.arange(objects, dtype=np.int64),
        boxes=np.full((objects, 4), position, np.float32),
        position=position,
        path=f"{position}.jpg",
    )


SAMPLES = [sample(5, 32, 64, 2), sample(6, 64, 32, 0), sample(7, 64, 64, 3)]


def test_pictures_stack_with_grey_at_the_right_and_the_bottom():
    batch = collate(SAMPLES)
    assert batch.images.shape == (3, 3, 64, 64) and batch.images.dtype == torch.uint8
    assert torch.equal(batch.images[0, :, :32].permute(1, 2, 0), torch.from_numpy(SAMPLES[0].image))
    assert (batch.images[0, :, 32:] == 114).all() and (batch.images[1, :, :, 32:] == 114).all()
    assert batch.positions == (5, 6, 7) and batch.samples == ()


def test_targets_belong_to_their_pictures():
    targets = collate(SAMPLES).targets
    assert targets.image.tolist() == [0, 0, 2, 2, 2] and targets.classes.tolist() == [0, 1, 0, 1, 2]
    assert targets.boxes[:, 0].tolist() == [5, 5, 7, 7, 7] and len(targets) == 5


def test_no_objects_at_all_give_empty_targets():
    targets = collate([SAMPLES[1]]).targets
    assert targets.boxes.shape == (0, 4) and targets.classes.dtype == torch.int64 and len(targets) == 0


def test_evaluation_keeps_samples_without_pixels():
    kept = collate(SAMPLES, keep_samples=True).samples
    assert [each.path for each in kept] == ["5.jpg", "6.jpg", "7.jpg"]
    assert all(each.image.size == 0 for each in kept) and SAMPLES[0].image.size > 0


def test_cutting_renumbers_the_targets():
    parts = collate(SAMPLES, keep_samples=True).split(2)
    assert [part.positions for part in parts] == [(5, 6), (7,)]
    assert parts[0].targets.image.tolist() == [0, 0] and parts[1].targets.image.tolist() == [0, 0, 0]
    assert parts[1].targets.boxes[:, 0].tolist() == [7, 7, 7]
    assert torch.equal(parts[1].images[0], collate(SAMPLES).images[2])
    assert [each.position for each in parts[1].samples] == [7]


def test_moving_divides_by_255_once():
    batch = collate(SAMPLES).to("cpu")
    assert batch.images.dtype == torch.float32 and batch.images.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(batch.images * 255, collate(SAMPLES).images.float())
    assert torch.equal(batch.to("cpu").images, batch.images)


@pytest.mark.parametrize(
    ("sizes", "size"), [((3,), 2), ((2, 1), 2), ((2, 1), 1), ((1, 2), 2), ((1, 1, 1), 2), ((3,), 9)]
)
def test_regrouped_batches_hold_the_same_pictures_with_the_same_targets(sizes, size):
    whole = collate(SAMPLES, keep_samples=True)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    pieces = regroup([whole.slice(a, a + n) for a, n in zip(starts, sizes, strict=True)], size)
    assert [len(piece) for piece in pieces] == [min(size, 3 - at) for at in range(0, 3, size)]
    again = regroup(pieces, 3)[0]
    assert torch.equal(again.images, whole.images) and again.positions == whole.positions
    assert again.samples == whole.samples
    for name in ("image", "classes", "boxes"):
        assert torch.equal(getattr(again.targets, name), getattr(whole.targets, name))


def test_regrouping_copies_no_pixel_where_borders_meet():
    batch = collate(SAMPLES)
    assert regroup([batch], 3)[0] is batch
    first, _ = regroup([batch], 2)
    assert first.images.data_ptr() == batch.images.data_ptr()


def test_an_empty_batch_has_the_types_of_a_full_one():
    empty, full = empty_batch(64, 64), collate(SAMPLES)
    assert empty.images.shape == (0, 3, 64, 64) and len(empty) == len(empty.targets) == 0 and empty.positions == ()
    for kind in ("image", "classes", "boxes"):
        mine, other = getattr(empty.targets, kind), getattr(full.targets, kind)
        assert mine.dtype == other.dtype and mine.shape[1:] == other.shape[1:]
    assert empty.images.dtype == full.images.dtype
    assert empty.to("cpu", torch.float64).images.dtype == torch.float64
    assert join([full, empty]).positions == full.positions


@pytest.mark.parametrize("down", [1, -1])
@pytest.mark.parametrize("right", [1, -1])
def test_pictures_that_are_views_from_their_end_are_stacked_as_they_look(down, right):
    flipped = replace(SAMPLES[0], image=SAMPLES[0].image[::down, ::right])
    images = collate([flipped, SAMPLES[2]]).images.permute(0, 2, 3, 1).numpy()
    np.testing.assert_array_equal(images[0, :32, :64], flipped.image)
    assert (images[0, 32:] == 114).all()
    np.testing.assert_array_equal(images[1], SAMPLES[2].image)
