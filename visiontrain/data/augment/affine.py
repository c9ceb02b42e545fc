"""Rotation, scale, shear, shift and perspective of the canvas, as one matrix that each picture is drawn with."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from visiontrain.data.augment.draft import Context, Draft, Tile
from visiontrain.data.augment.extent import visible_extents
from visiontrain.data.augment.paint import paint
from visiontrain.data.image import GREY

SMALLEST = 2.0  # pixels: a box must be wider and higher than this
LEAST_SEEN = 0.1  # of its area: what is left of a box after clipping
LONGEST = 100.0  # ratio of the sides


def place(draft: Draft, context: Context) -> Draft:
    """Draw the tiles of a draft into its picture, and their boxes with them."""
    size = context.size
    matrix = draw_matrix(context, draft.tiles[0].canvas)
    image = np.full((*size, 3), GREY, np.uint8)
    boxes, classes = [], []
    for tile in draft.tiles:
        ours = visible_labels(tile, context)
        forward = paint(image, tile, matrix, context.pictures)
        if forward is not None and len(ours[0]):
            moved, kept = move_boxes(ours[0], forward, size)
            boxes.append(moved)
            classes.append(ours[1][kept])
    if not boxes:
        return replace(draft, image=image)
    return replace(draft, image=image, boxes=np.concatenate(boxes), classes=np.concatenate(classes).astype(np.int64))


def draw_matrix(context: Context, canvas: tuple[int, int]) -> np.ndarray:
    """(3, 3) matrix from canvas to output pixels: about the canvas' centre, which lands near the output's."""
    rng, settings, size = context.rng, context.settings, context.size
    centre, lens, turn, slant, shift = (np.eye(3) for _ in range(5))
    centre[:2, 2] = -canvas[1] / 2, -canvas[0] / 2
    lens[2, :2] = rng.uniform(-settings.perspective, settings.perspective, 2)
    angle = math.radians(rng.uniform(-settings.degrees, settings.degrees))
    scale = rng.uniform(1 - settings.scale, 1 + settings.scale)
    turn[:2, :2] = scale * np.array(((math.cos(angle), math.sin(angle)), (-math.sin(angle), math.cos(angle))))
    slants = np.tan(np.radians(rng.uniform(-settings.shear, settings.shear, 2)))
    slant[0, 1], slant[1, 0] = slants
    shift[:2, 2] = rng.uniform(0.5 - settings.translate, 0.5 + settings.translate, 2) * (size.width, size.height)
    return shift @ slant @ turn @ lens @ centre


def visible_labels(tile: Tile, context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Boxes (N, 4) xyxy in pixels of the tile's picture, clipped to what lies on the canvas; classes (N,)."""
    boxes, classes = context.pictures.pixel_boxes(tile.index), context.pictures.classes(tile.index)
    height, width = tile.canvas
    low = np.array((-tile.left, -tile.top)) / tile.gain
    high = np.array((width - tile.left, height - tile.top)) / tile.gain
    boxes = np.clip(boxes, np.tile(low, 2), np.tile(high, 2))
    seen = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
    return boxes[seen], classes[seen]


def move_boxes(boxes: np.ndarray, forward: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Carry boxes to the output and keep those of which enough is seen: the box around what is seen of each.

    Args:
        boxes: (N, 4) xyxy in source pixels.
        forward: (3, 3) from source to output pixels.
        size: (height, width) of the output.

    Returns:
        (K, 4) xyxy inside the output, and the (N,) mask of what was kept.
    """
    corners = boxes[:, (0, 1, 2, 1, 2, 3, 0, 3)].reshape(-1, 4, 2)
    moved = corners @ forward[:2, :2].T + forward[:2, 2]
    depth = corners @ forward[2, :2] + forward[2, 2]  # 1 without perspective
    before = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) * abs(np.linalg.det(forward[:2, :2]))
    ahead = (depth > 1e-6).all(axis=1)
    moved = moved / np.where(depth > 1e-6, depth, 1)[..., None]
    if forward[0, 1] == forward[1, 0] == forward[2, 0] == forward[2, 1] == 0:
        result = np.concatenate((moved.min(axis=1), moved.max(axis=1)), axis=1).clip(0, (size[1], size[0]) * 2)
    else:
        result = visible_extents(moved, size)
    sides = result[:, 2:] - result[:, :2]
    longest = sides.max(axis=1) / np.maximum(sides.min(axis=1), 1e-9)
    seen = sides.prod(axis=1) > LEAST_SEEN * before
    kept = ahead & (sides > SMALLEST).all(axis=1) & seen & (longest < LONGEST)
    return result[kept], kept
