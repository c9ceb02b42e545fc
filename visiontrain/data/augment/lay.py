"""Lay a tile out for a device to paint: the same geometry and the same pixels as ``paint``, and nothing drawn yet."""

from __future__ import annotations

import numpy as np

from visiontrain.config.groups import AugmentConfig
from visiontrain.data import image as pictures_io
from visiontrain.data.augment.draft import Tile
from visiontrain.data.augment.paint import Matrix, Part, fit_straight, forward_of, is_straight, region_of, shrunk
from visiontrain.data.pixels import Pixels
from visiontrain.drawing import Piece


def lay(
    pieces: list[Piece], size: tuple[int, int], tile: Tile, seen: Part, matrix: Matrix, pictures: Pixels
) -> Matrix | None:
    """Add the piece that shows what is seen of a tile.

    Args:
        pieces: of the picture, changed in place.
        size: (height, width) of the output.
        seen: the part of the tile's picture that lies on the canvas.
        matrix: from canvas to output pixels.

    Returns:
        From fractions of the picture to output pixels, equal to what ``paint`` gives for the same tile.
    """
    forward = forward_of(tile, matrix)
    lay_out = _straight if is_straight(forward) else _warped
    return lay_out(pieces, size, forward, seen, pictures, tile.index)


def most_pixels(settings: AugmentConfig) -> int:
    """How many times the pixels of a sample its pieces have at the most: a tile's picture is no larger than a sample."""
    return (4 if settings.mosaic else 1) * (2 if settings.mixup else 1)


def _straight(
    pieces: list[Piece], size: tuple[int, int], forward: Matrix, seen: Part, pictures: Pixels, number: int
) -> Matrix | None:
    fit = fit_straight(forward, seen, size, pictures, number)
    if fit is None:
        return None
    (x1, y1, x2, y2), part, drawn = fit
    if pictures_io.shrinks(part, x2 - x1, y2 - y1):
        part = pictures_io.resize(part, x2 - x1, y2 - y1)
    rows, columns = part.shape[:2]
    wide, high = columns / (x2 - x1), rows / (y2 - y1)
    to_part = np.array(((wide, 0, -x1 * wide), (0, high, -y1 * high), (0, 0, 1)))
    pieces.append(Piece((rows, columns), (x1, y1, x2, y2), to_part, None, part))
    return drawn


def _warped(
    pieces: list[Piece], size: tuple[int, int], forward: Matrix, seen: Part, pictures: Pixels, number: int
) -> Matrix | None:
    whole = np.reshape(forward, (3, 3))
    region = region_of(whole, seen, size)
    if region is None:
        return None
    picture = shrunk(pictures[number], whole)
    height, width = picture.shape[:2]
    to_picture = np.diag((width, height, 1)) @ np.linalg.inv(whole)
    left, top, right, bottom = shown = tuple(edge * side for edge, side in zip(seen, (width, height) * 2, strict=True))
    x1, y1, x2, y2 = _needed(to_picture, region, shown, height, width)
    if x1 < x2 and y1 < y2:
        to_part = np.array(((1, 0, -x1), (0, 1, -y1), (0, 0, 1))) @ to_picture
        part = picture[y1:y2, x1:x2]
        pieces.append(Piece(part.shape[:2], region, to_part, (left - x1, top - y1, right - x1, bottom - y1), part))
    return forward


def _needed(
    to_picture: np.ndarray, region: tuple[int, int, int, int], shown: Part, height: int, width: int
) -> tuple[int, int, int, int]:
    """x1 y1 x2 y2 of the pixels of a picture that its region shows, with those beside them."""
    x1, y1, x2, y2 = shown
    corners = to_picture @ np.array((region[::2] * 2, np.repeat(region[1::2], 2), (1, 1, 1, 1)))
    if (corners[2] > 1e-6).all():  # else part of the region lies behind the eye: what is shown, whole
        flat = corners[:2] / corners[2]
        (x1, y1), (x2, y2) = np.maximum(flat.min(axis=1), (x1, y1)), np.minimum(flat.max(axis=1), (x2, y2))
    return max(int(x1) - 1, 0), max(int(y1) - 1, 0), min(int(x2) + 2, width), min(int(y2) + 2, height)
