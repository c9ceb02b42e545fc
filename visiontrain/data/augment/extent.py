"""The box around what is seen of a turned box: its corners may stick out, and what is in the picture is smaller."""

from __future__ import annotations

import numpy as np


def visible_extents(quads: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The boxes around the parts of convex quadrilaterals that lie in the picture, (N, 4) xyxy; zeros where none does.

    The corners of such a part are those of the quadrilateral and of the picture that lie in the other, and the points
    where their sides cross.

    Args:
        quads: (N, 4, 2) corners x y in order around.
        size: (height, width) of the picture.
    """
    high = np.array((size[1], size[0]), float)
    step = np.roll(quads, -1, axis=1) - quads
    with np.errstate(divide="ignore", invalid="ignore"):
        # (2, N, 4, 2): how far along a side it meets the picture's first and last x and y.
        along = (np.array((np.zeros(2), high))[:, None, None] - quads) / step
        met = quads[..., None, :] + along[..., None] * step[..., None, :]
        for axis in range(2):
            met[0, ..., axis, axis], met[1, ..., axis, axis] = 0, high[axis]
        on_side = (along >= 0) & (along <= 1)
    corners = np.array(((0, 0), (1, 0), (1, 1), (0, 1))) * high
    away = corners[None, :, None] - quads[:, None]  # (N, 4 corners, 4 sides, 2)
    turn = step[:, None, :, 0] * away[..., 1] - step[:, None, :, 1] * away[..., 0]
    covered = (turn >= 0).all(axis=2) | (turn <= 0).all(axis=2)
    count = len(quads)
    points = np.concatenate((quads, *met.reshape(2, count, 8, 2), np.broadcast_to(corners, (count, 4, 2))), axis=1)
    may = np.concatenate((np.ones((count, 4), bool), *on_side.reshape(2, count, 8), covered), axis=1)
    inside = np.logical_and(points >= 0, points <= high).all(axis=2)
    seen = np.logical_and(may, inside)
    first = np.where(seen[..., None], points, np.inf).min(axis=1)
    last = np.where(seen[..., None], points, -np.inf).max(axis=1)
    return np.where(seen.any(axis=1, keepdims=True), np.concatenate((first, last), axis=1), 0.0)
