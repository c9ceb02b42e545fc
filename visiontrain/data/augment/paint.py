"""Draw a tile straight into the output: the canvas, four times as large, is never built."""

from __future__ import annotations

import math

import cv2
import numpy as np

from visiontrain.data import image as pictures_io
from visiontrain.data.augment.draft import Tile
from visiontrain.data.index import Index

# Boxes live in continuous coordinates, where pixel k spans k to k + 1; OpenCV's warps put the middle of pixel k at k.
_TO_MIDDLE = np.array(((1, 0, 0.5), (0, 1, 0.5), (0, 0, 1)))
_FROM_MIDDLE = np.array(((1, 0, -0.5), (0, 1, -0.5), (0, 0, 1)))


def paint(output: np.ndarray, tile: Tile, matrix: np.ndarray, pictures: Index) -> np.ndarray | None:
    """Draw what is seen of a tile.

    Args:
        output: (H, W, 3) uint8, changed in place.
        matrix: (3, 3) from canvas to output pixels.

    Returns:
        (3, 3) from the picture's pixels to the output's as it was drawn (whole pixels move a plain resize by less than
        one), None where nothing of the tile is seen.
    """
    forward = matrix @ np.array(((tile.gain, 0, tile.left), (0, tile.gain, tile.top), (0, 0, 1)))
    seen = _seen(tile, pictures.size(tile.index))
    straight = forward[0, 1] == forward[1, 0] == forward[2, 0] == forward[2, 1] == 0
    draw = _paint_straight if straight else _paint_warped
    return draw(output, forward, seen, pictures.path(tile.index))


def _seen(tile: Tile, size: tuple[int, int]) -> np.ndarray:
    """(2, 2): the (x, y) of the first and the last corner of the part of the picture that lies on the canvas."""
    low = np.array((-tile.left, -tile.top)) / tile.gain
    high = np.array((tile.canvas[1] - tile.left, tile.canvas[0] - tile.top)) / tile.gain
    return np.array((low, high)).clip(0, (size[1], size[0]))


def _paint_straight(output: np.ndarray, forward: np.ndarray, seen: np.ndarray, path: str) -> np.ndarray | None:
    gains, shifts = forward[(0, 1), (0, 1)], forward[:2, 2]
    # Neighbours share an edge, so both round it to the same pixel: no gap and no overlap.
    (x0, y0), (x1, y1) = np.rint(seen * gains + shifts).clip(0, (output.shape[1], output.shape[0])).astype(int)
    if x1 <= x0 or y1 <= y0:
        return None
    picture, reduce = _read_for(path, float(gains.max()))
    limits = np.array((picture.shape[1], picture.shape[0]))
    crop = np.rint((np.array(((x0, y0), (x1, y1))) - shifts) / gains / reduce).astype(int)
    first = crop[0].clip(0, limits - 1)
    last = np.maximum(crop[1], first + 1).clip(max=limits)
    source = picture[first[1] : last[1], first[0] : last[0]]
    pictures_io.resize_into(output[y0:y1, x0:x1], source)
    drawn = np.eye(3)
    drawn[(0, 1), (0, 1)] = np.array((x1 - x0, y1 - y0)) / ((last - first) * reduce)
    drawn[:2, 2] = (x0, y0) - first * reduce * drawn[(0, 1), (0, 1)]
    return drawn


def _paint_warped(output: np.ndarray, forward: np.ndarray, seen: np.ndarray, path: str) -> np.ndarray | None:
    region = _region(forward, seen, output.shape[:2])
    if region is None:
        return None
    x0, y0, x1, y1 = region
    backward = np.linalg.inv(forward)
    to_region = np.array(((1, 0, x0), (0, 1, y0), (0, 0, 1)))
    mask = _mask(backward @ to_region @ _TO_MIDDLE, seen, y1 - y0, x1 - x0, forward)
    if not mask.any():
        return forward
    gain = math.sqrt(abs(np.linalg.det(forward[:2, :2])))
    picture, reduce = _read_for(path, gain)
    picture, shrink = _shrunk(picture, gain * reduce)
    to_picture = np.diag((1 / (reduce * shrink[0]), 1 / (reduce * shrink[1]), 1))
    whole = _FROM_MIDDLE @ to_picture @ backward @ to_region @ _TO_MIDDLE
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    size, border = (x1 - x0, y1 - y0), cv2.BORDER_REPLICATE
    if forward[2, :2].any():
        drawn = cv2.warpPerspective(picture, whole, size, flags=flags, borderMode=border)
    else:
        drawn = cv2.warpAffine(picture, whole[:2], size, flags=flags, borderMode=border)
    np.copyto(output[y0:y1, x0:x1], drawn, where=mask[..., None])
    return forward


def _region(forward: np.ndarray, seen: np.ndarray, size: tuple[int, int]) -> tuple[int, int, int, int] | None:
    """The rectangle of the output that holds all of the tile; the whole output where part of it lies behind the eye."""
    (left, top), (right, bottom) = seen
    corners = forward @ np.array(((left, right, right, left), (top, top, bottom, bottom), (1, 1, 1, 1)))
    if (corners[2] < 1e-6).any():
        return 0, 0, size[1], size[0]
    flat = corners[:2] / corners[2]
    x0, y0 = np.floor(flat.min(axis=1)).clip(0, (size[1], size[0])).astype(int)
    x1, y1 = np.ceil(flat.max(axis=1)).clip(0, (size[1], size[0])).astype(int)
    return (x0, y0, x1, y1) if x1 > x0 and y1 > y0 else None


def _mask(backward: np.ndarray, seen: np.ndarray, height: int, width: int, forward: np.ndarray) -> np.ndarray:
    """(height, width) bool: the pixels whose middle lies in the seen part of the picture."""
    columns, rows = np.arange(width)[None], np.arange(height)[:, None]
    x, y, depth = (row[0] * columns + row[1] * rows + row[2] for row in backward)
    if forward[2, :2].any():
        ahead = depth * np.linalg.det(forward) > 0
        x, y = x / np.where(ahead, depth, 1), y / np.where(ahead, depth, 1)
    else:
        ahead = True
    (left, top), (right, bottom) = seen
    return ahead & (x >= left) & (x < right) & (y >= top) & (y < bottom)


def _read_for(path: str, gain: float) -> tuple[np.ndarray, int]:
    """The picture, decoded at 1/2, 1/4 or 1/8 where no more is needed, and that divisor."""
    reduce = 1
    while pictures_io.reducible(path) and reduce < 8 and gain * reduce * 2 <= 1:
        reduce *= 2
    return pictures_io.read(path, reduce), reduce


def _shrunk(picture: np.ndarray, gain: float) -> tuple[np.ndarray, tuple[float, float]]:
    """Area means where a warp would leave out pixels; and by how much (x, y) it was shrunk."""
    if gain >= 0.5:
        return picture, (1.0, 1.0)
    height, width = picture.shape[:2]
    less = max(round(width * gain), 1), max(round(height * gain), 1)
    return cv2.resize(picture, less, interpolation=cv2.INTER_AREA), (width / less[0], height / less[1])
