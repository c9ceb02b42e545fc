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
from visiontrain.data.augment.paint import Matrix, paint, seen_part
from visiontrain.data.bad import BadPicture
from visiontrain.data.image import GREY
from visiontrain.drawing import Drawing, Piece

SMALLEST = 2.0  # pixels: a box must be wider and higher than this
LEAST_SEEN = 0.1  # of its area: what is left of a box after clipping
LONGEST = 100.0  # ratio of the sides
_TURNING = [1, 3, 6, 7]  # the numbers of a matrix that are 0 where what is upright stays so


def place(draft: Draft, context: Context) -> Draft:
    """Draw the tiles of a draft into its picture, or lay them out for the device, and their boxes with them."""
    matrix = draw_matrix(context, draft.canvas)
    index = context.pictures.index
    drawn: list[tuple[float, ...]] = []
    boxes, classes = [], []
    pieces: list[Piece] = []
    on_device = context.settings.augment_device == "gpu"
    image = draft.image if on_device else np.full((*context.size, 3), GREY, np.uint8)
    draw: Callable[..., Matrix | None] = partial(lay, pieces, context.size) if on_device else partial(paint, image)
    for tile in draft.tiles:
        part = seen_part(tile, draft.canvas)
        try:
            forward = draw(tile, part, matrix, context.pictures)
        except BadPicture as error:  # its place stays grey
            context.bad.append(str(error))
            continue
        if forward is not None:
            drawn.append(forward + part)
            boxes.append(index.boxes(tile.index))
            classes.append(index.classes(tile.index))
    drawing = Drawing(context.size, (tuple(pieces),)) if on_device else None
    if not drawn:
        return replace(draft, image=image, drawing=drawing)
    # Of each box its picture's matrix and part. Rows of one number each: NumPy walks along them, and boxes are few.
    rows = np.repeat(np.array(drawn).T, [len(each) for each in boxes], axis=1)
    clipped = clip_boxes(np.concatenate(boxes, dtype=np.float64).T, rows[9:])
    moved, kept = move_boxes(clipped, rows[:9], context.size)
    return replace(
        draft, image=image, drawing=drawing, boxes=moved, classes=np.concatenate(classes, dtype=np.int64)[kept]
    )


def draw_matrix(context: Context, canvas: tuple[int, int]) -> Matrix:
    """From canvas to output pixels: about the canvas' centre, which lands near the output's."""
    settings, (height, width) = context.settings, context.size
    drawn = (2 * context.rng.random(8) - 1).tolist()
    lens_x, lens_y = settings.perspective * drawn[0], settings.perspective * drawn[1]
    angle, scale = math.radians(settings.degrees * drawn[2]), 1 + settings.scale * drawn[3]
    slant_x, slant_y = (
        math.tan(math.radians(settings.shear * drawn[4])),
        math.tan(math.radians(settings.shear * drawn[5])),
    )
    x, y = (0.5 + settings.translate * drawn[6]) * width, (0.5 + settings.translate * drawn[7]) * height
    cosine, sine = scale * math.cos(angle), scale * math.sin(angle)
    # Slant of what is turned and scaled, then the shift; the lens acts about the centre of the canvas, which goes to 0, 0 first.
    xx, xy = cosine - slant_x * sine + x * lens_x, sine + slant_x * cosine + x * lens_y
    yx, yy = slant_y * cosine - sine + y * lens_x, slant_y * sine + cosine + y * lens_y
    middle_y, middle_x = canvas[0] / 2, canvas[1] / 2
    return (
        *(xx, xy, x - xx * middle_x - xy * middle_y),
        *(yx, yy, y - yx * middle_x - yy * middle_y),
        *(lens_x, lens_y, 1 - lens_x * middle_x - lens_y * middle_y),
    )


def clip_boxes(boxes: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """(2, 2, N) first and last, x and y, of (4, N) float64 cx cy w h, all fractions of a picture, cut to the part (4, N) xyxy
    that is seen."""
    half = boxes[2:] / 2
    corners = np.empty((2, 2, boxes.shape[1]))
    np.subtract(boxes[:2], half, out=corners[0])
    np.add(boxes[:2], half, out=corners[1])
    np.maximum(corners, seen[:2], out=corners)
    return np.minimum(corners, seen[2:], out=corners)


def move_boxes(boxes: np.ndarray, forward: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Carry boxes to the output and keep those of which enough is seen: the box around what is seen of each.

    Args:
        boxes: (2, 2, N) first and last, x and y, fractions of a picture.
        forward: (9, N), each a Matrix from fractions to output pixels.
        size: (height, width) of the output.

    Returns:
        (K, 4) xyxy inside the output, and the (N,) mask of what was kept.
    """
    ahead: np.ndarray | bool = True
    if forward[_TURNING].any():
        result, ahead, whole = _turned(boxes, forward, size)
    else:
        result = boxes * forward[0:5:4] + forward[2:6:3]
        wide, high = result[1] - result[0]
        whole = wide * high
        np.maximum(result, 0.0, out=result)
        np.minimum(result, ((size[1],), (size[0],)), out=result)
    wide, high = result[1] - result[0]
    short, long = np.minimum(wide, high), np.maximum(wide, high)
    kept = ahead & (short > SMALLEST) & (long < LONGEST * short) & (wide * high > LEAST_SEEN * whole)
    return result.reshape(4, -1).T[kept], kept


def _turned(boxes: np.ndarray, forward: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What is seen of boxes that do not stay upright, (2, 2, N); (N,) whether all of it is before the eye, and the area that
    a whole one has."""
    count = boxes.shape[2]
    corners = np.ones((count, 4, 3))
    corners[..., :2] = boxes.reshape(4, count).T[:, (0, 1, 2, 1, 2, 3, 0, 3)].reshape(count, 4, 2)
    matrix = forward.T.reshape(count, 3, 3)
    moved = corners @ matrix.transpose(0, 2, 1)
    ahead = moved[..., 2] > 1e-6  # all 1 without perspective
    moved = moved[..., :2] / np.where(ahead, moved[..., 2], 1)[..., None]
    gain = abs(matrix[:, 0, 0] * matrix[:, 1, 1] - matrix[:, 0, 1] * matrix[:, 1, 0])
    whole = (boxes[1] - boxes[0]).prod(axis=0) * gain
    return visible_extents(moved, size).T.reshape(2, 2, count), ahead.all(axis=1) & (whole > 0), whole
