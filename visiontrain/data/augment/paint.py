"""Draw a tile straight into the output: the canvas, four times as large, is never built."""

from __future__ import annotations

import math

import cv2
import numpy as np

from visiontrain.data import image as pictures_io
from visiontrain.data.augment.draft import Tile
from visiontrain.data.pixels import Pixels

Part = tuple[float, float, float, float]  # x1 y1 x2 y2 as fractions of a picture
Region = tuple[int, int, int, int]  # x1 y1 x2 y2 in whole pixels of the output
Matrix = tuple[float, float, float, float, float, float, float, float, float]  # 3 x 3, row after row

# Boxes live in continuous coordinates, where pixel k spans k to k + 1; OpenCV's warps put the middle of pixel k at k.
_TO_MIDDLE = np.array(((1, 0, 0.5), (0, 1, 0.5), (0, 0, 1)))
_FROM_MIDDLE = np.array(((1, 0, -0.5), (0, 1, -0.5), (0, 0, 1)))


def seen_part(tile: Tile, canvas: tuple[int, int]) -> Part:
    """The part of a tile's picture that lies on the canvas, (height, width)."""
    x1, x2 = max(-tile.left / tile.width, 0.0), min((canvas[1] - tile.left) / tile.width, 1.0)
    y1, y2 = max(-tile.top / tile.height, 0.0), min((canvas[0] - tile.top) / tile.height, 1.0)
    return x1, y1, max(x2, x1), max(y2, y1)


def paint(output: np.ndarray, tile: Tile, seen: Part, matrix: Matrix, pictures: Pixels) -> Matrix | None:
    """Draw what is seen of a tile.

    Args:
        output: (H, W, 3) uint8, changed in place.
        seen: the part of the picture that lies on the canvas.
        matrix: from canvas to output pixels.

    Returns:
        From fractions of the picture to output pixels as it was drawn (whole pixels move a plain resize by less
        than one), None where nothing of the tile is seen.
    """
    forward = forward_of(tile, matrix)
    draw = _paint_straight if is_straight(forward) else _paint_warped
    return draw(output, forward, seen, pictures, tile.index)


def forward_of(tile: Tile, matrix: Matrix) -> Matrix:
    """From fractions of a tile's picture to output pixels; ``matrix`` is that from canvas to output."""
    left, top, wide, high = tile.left, tile.top, tile.width, tile.height
    xx, xy, x, yx, yy, y, zx, zy, z = matrix
    return (
        *(xx * wide, xy * high, xx * left + xy * top + x),
        *(yx * wide, yy * high, yx * left + yy * top + y),
        *(zx * wide, zy * high, zx * left + zy * top + z),
    )


def is_straight(forward: Matrix) -> bool:
    """Whether a plain resize draws it."""
    return forward[1] == forward[3] == forward[6] == forward[7] == 0


def _paint_straight(output: np.ndarray, forward: Matrix, seen: Part, pictures: Pixels, number: int) -> Matrix | None:
    fit = fit_straight(forward, seen, output.shape[:2], pictures, number)
    if fit is None:
        return None
    (x1, y1, x2, y2), part, drawn = fit
    pictures_io.resize_into(output[y1:y2, x1:x2], part)
    return drawn


def fit_straight(
    forward: Matrix, seen: Part, size: tuple[int, ...], pictures: Pixels, number: int
) -> tuple[Region, np.ndarray, Matrix] | None:
    """The region of an output of ``size`` (height, width) that a straight tile fills, the part of its picture that is
    resized into it, and ``forward`` as that draws it; None where nothing is seen."""
    wide, _, left, _, high, top, *_ = forward
    # Neighbours share an edge, so both round it to the same pixel: no gap and no overlap.
    x1, x2 = _within(seen[0] * wide + left, size[1]), _within(seen[2] * wide + left, size[1])
    y1, y2 = _within(seen[1] * high + top, size[0]), _within(seen[3] * high + top, size[0])
    if x2 <= x1 or y2 <= y1:
        return None
    picture = pictures[number]
    rows, columns, _ = picture.shape
    first_column, last_column = _cut((x1 - left) / wide * columns, (x2 - left) / wide * columns, columns)
    first_row, last_row = _cut((y1 - top) / high * rows, (y2 - top) / high * rows, rows)
    part = picture[first_row:last_row, first_column:last_column]
    wide, high = (x2 - x1) / (last_column - first_column), (y2 - y1) / (last_row - first_row)
    drawn = (wide * columns, 0.0, x1 - first_column * wide, 0.0, high * rows, y1 - first_row * high, 0.0, 0.0, 1.0)
    return (x1, y1, x2, y2), part, drawn


def _within(place: float, length: int) -> int:
    """The whole number from 0 to ``length`` nearest to it."""
    return min(max(round(place), 0), length)


def _cut(first: float, last: float, length: int) -> tuple[int, int]:
    """The whole pixels nearest to an interval, at least one of ``length``."""
    start = min(max(round(first), 0), length - 1)
    return start, min(max(round(last), start + 1), length)


def _paint_warped(output: np.ndarray, forward: Matrix, seen: Part, pictures: Pixels, number: int) -> Matrix | None:
    matrix = np.reshape(forward, (3, 3))
    region = region_of(matrix, seen, output.shape)
    if region is None:
        return None
    x1, y1, x2, y2 = region
    backward = np.linalg.inv(matrix)
    to_region = np.array(((1, 0, x1), (0, 1, y1), (0, 0, 1)))
    mask = _mask(backward @ to_region @ _TO_MIDDLE, seen, y2 - y1, x2 - x1)
    if not mask.any():
        return forward
    picture = shrunk(pictures[number], matrix)
    to_picture = np.diag((picture.shape[1], picture.shape[0], 1))
    whole = _FROM_MIDDLE @ to_picture @ backward @ to_region @ _TO_MIDDLE
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    size, border = (x2 - x1, y2 - y1), cv2.BORDER_REPLICATE
    if matrix[2, :2].any():
        drawn = cv2.warpPerspective(picture, whole, size, flags=flags, borderMode=border)
    else:
        drawn = cv2.warpAffine(picture, whole[:2], size, flags=flags, borderMode=border)
    np.copyto(output[y1:y2, x1:x2], drawn, where=mask[..., None])
    return forward


def region_of(forward: np.ndarray, seen: Part, shape: tuple[int, ...]) -> Region | None:
    """The rectangle of the output that holds all of the tile; the whole output where part of it lies behind the eye."""
    left, top, right, bottom = seen
    corners = forward @ np.array(((left, right, right, left), (top, top, bottom, bottom), (1, 1, 1, 1)))
    height, width = shape[:2]
    if (corners[2] < 1e-6).any():
        return 0, 0, width, height
    flat = corners[:2] / corners[2]
    x1, y1 = np.floor(flat.min(axis=1)).clip(0, (width, height)).astype(int).tolist()
    x2, y2 = np.ceil(flat.max(axis=1)).clip(0, (width, height)).astype(int).tolist()
    return (x1, y1, x2, y2) if x2 > x1 and y2 > y1 else None


def _mask(backward: np.ndarray, seen: Part, height: int, width: int) -> np.ndarray:
    """(height, width) bool: the pixels whose middle lies in the seen part of the picture."""
    columns, rows = np.arange(width)[None], np.arange(height)[:, None]
    x, y, depth = (row[0] * columns + row[1] * rows + row[2] for row in backward)
    if backward[2, :2].any():
        ahead = depth > 0  # one over the depth on the way there
        x, y = x / np.where(ahead, depth, 1), y / np.where(ahead, depth, 1)
    else:
        ahead = True
    left, top, right, bottom = seen
    return ahead & (x >= left) & (x < right) & (y >= top) & (y < bottom)


def shrunk(picture: np.ndarray, forward: np.ndarray) -> np.ndarray:
    """Area means where a warp would leave out pixels."""
    height, width = picture.shape[:2]
    gain = math.sqrt(abs(np.linalg.det(forward[:2, :2])) / (height * width))
    if gain >= 0.5:
        return picture
    less = max(round(width * gain), 1), max(round(height * gain), 1)
    return cv2.resize(picture, less, interpolation=cv2.INTER_AREA)
