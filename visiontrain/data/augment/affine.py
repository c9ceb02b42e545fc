"""Rotation, scale, shear, shift and perspective of the canvas, as one matrix that each picture is drawn with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from visiontrain.data.augment.draft import Context, Draft
from visiontrain.data.augment.extent import visible_extents
from visiontrain.data.augment.lay import lay
from visiontrain.data.augment.paint import paint, seen_part
from visiontrain.data.bad import BadPicture
from visiontrain.data.image import GREY
from visiontrain.drawing import Drawing, Piece

SMALLEST = 2.0  # pixels: a box must be wider and higher than this
LEAST_SEEN = 0.1  # of its area: what is left of a box after clipping
LONGEST = 100.0  # ratio of the sides


def place(draft: Draft, context: Context) -> Draft:
    """Draw the tiles of a draft into its picture, or lay them out for the device, and their boxes with them."""
    matrix = draw_matrix(context, draft.canvas)
    index = context.pictures.index
    drawn, seen, boxes, classes = [], [], [], []
    pieces: list[Piece] = []
    on_device = context.settings.augment_device == "gpu"
    image = draft.image if on_device else np.full((*context.size, 3), GREY, np.uint8)
    draw: Callable[..., np.ndarray | None] = partial(lay, pieces, context.size) if on_device else partial(paint, image)
    for tile in draft.tiles:
        part = seen_part(tile, draft.canvas)
        try:
            forward = draw(tile, part, matrix, context.pictures)
        except BadPicture as error:  # its place stays grey
            context.bad.append(str(error))
            continue
        if forward is not None:
            drawn.append(forward)
            seen.append(part)
            boxes.append(index.boxes(tile.index))
            classes.append(index.classes(tile.index))
    draft = replace(draft, image=image, drawing=Drawing(context.size, (tuple(pieces),)) if on_device else None)
    if not drawn:
        return draft
    owner = np.repeat(np.arange(len(boxes)), np.array([len(each) for each in boxes]))
    clipped = clip_boxes(np.concatenate(boxes), np.array(seen)[owner])
    moved, kept = move_boxes(clipped, np.array(drawn)[owner], context.size)
    return replace(draft, boxes=moved, classes=np.concatenate(classes)[kept].astype(np.int64))


def draw_matrix(context: Context, canvas: tuple[int, int]) -> np.ndarray:
    """(3, 3) matrix from canvas to output pixels: about the canvas' centre, which lands near the output's."""
    settings, (height, width) = context.settings, context.size
    drawn = (2 * context.rng.random(8) - 1).tolist()
    lens_x, lens_y = (settings.perspective * each for each in drawn[:2])
    angle, scale = math.radians(settings.degrees * drawn[2]), 1 + settings.scale * drawn[3]
    slant_x, slant_y = (math.tan(math.radians(settings.shear * each)) for each in drawn[4:6])
    x, y = ((0.5 + settings.translate * each) * side for each, side in zip(drawn[6:], (width, height), strict=True))
    cosine, sine = scale * math.cos(angle), scale * math.sin(angle)
    # Slant and shift of what is turned and scaled; the lens acts about the centre of the canvas, which goes to 0, 0 first.
    slanted = np.array(((1, slant_x, x), (slant_y, 1, y), (0, 0, 1))) @ np.array(
        ((cosine, sine, 0), (-sine, cosine, 0), (0, 0, 1))
    )
    centred = np.array(((1, 0, -canvas[1] / 2), (0, 1, -canvas[0] / 2), (0, 0, 1)))
    return (
        slanted @ np.array(((1, 0, 0), (0, 1, 0), (lens_x, lens_y, 1))) @ centred
        if settings.perspective
        else slanted @ centred
    )


def clip_boxes(boxes: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """(N, 4) float64 xyxy of (N, 4) cx cy w h, all fractions of a picture, cut to the part (N, 4) xyxy that is seen."""
    middle, half = boxes[:, :2].astype(np.float64), boxes[:, 2:].astype(np.float64) / 2
    corners = np.concatenate((middle - half, middle + half), axis=1).reshape(-1, 2, 2)
    parts = seen.reshape(-1, 2, 2)
    return np.minimum(np.maximum(corners, parts[:, :1]), parts[:, 1:]).reshape(-1, 4)


def move_boxes(boxes: np.ndarray, forward: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Carry boxes to the output and keep those of which enough is seen: the box around what is seen of each.

    Args:
        boxes: (N, 4) xyxy, fractions of a picture.
        forward: (N, 3, 3) from fractions to output pixels.
        size: (height, width) of the output.

    Returns:
        (K, 4) xyxy inside the output, and the (N,) mask of what was kept.
    """
    if forward[:, (0, 1, 2, 2), (1, 0, 0, 1)].any():
        result, ahead, area = _turned(boxes, forward, size)
    else:
        gains, shifts = forward[:, None, (0, 1), (0, 1)], forward[:, None, :2, 2]
        upright = (boxes.reshape(-1, 2, 2) * gains + shifts).reshape(-1, 4)
        result, ahead = np.minimum(np.maximum(upright, 0.0), np.tile(size[::-1], 2)), np.ones(len(boxes), bool)
        area = forward[:, 0, 0] * forward[:, 1, 1]
    before = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) * area
    sides = result[:, 2:] - result[:, :2]
    short, long = sides.min(axis=1), sides.max(axis=1)
    enough = (sides[:, 0] * sides[:, 1] > LEAST_SEEN * before) & (before > 0)
    kept = ahead & (short > SMALLEST) & (long < LONGEST * short) & enough
    return result[kept], kept


def _turned(boxes: np.ndarray, forward: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What is seen of boxes that do not stay upright, (N, 4) xyxy; (N,) whether all of it is before the eye, and what the
    area of a picture becomes."""
    corners = np.ones((len(boxes), 4, 3))
    corners[..., :2] = boxes[:, (0, 1, 2, 1, 2, 3, 0, 3)].reshape(-1, 4, 2)
    moved = corners @ forward.transpose(0, 2, 1)
    ahead = moved[..., 2] > 1e-6  # all 1 without perspective
    moved = moved[..., :2] / np.where(ahead, moved[..., 2], 1)[..., None]
    area = abs(forward[:, 0, 0] * forward[:, 1, 1] - forward[:, 0, 1] * forward[:, 1, 0])
    return visible_extents(moved, size), ahead.all(axis=1), area
