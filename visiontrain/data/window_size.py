"""The size of the pictures of a window: one for all of them, drawn (multi_scale), fitted to their shapes (rect), or both."""

from __future__ import annotations

import numpy as np

from visiontrain.config.image_size import STRIDE, ImageSize


def drawn_size(imgsz: ImageSize, multi_scale: float, seed: int, epoch: int, start: int) -> ImageSize:
    """``imgsz`` times a factor from 1 - multi_scale to 1 + multi_scale, to whole strides.

    A function of its arguments alone: ``start`` is the first position of the window in its epoch.
    """
    if not multi_scale:
        return imgsz
    # Seeds are padded with zeros, so the 3 keeps this stream apart from those of the samples and of the epoch's order.
    factor = np.random.default_rng((seed, epoch, start, 3)).uniform(1 - multi_scale, 1 + multi_scale)
    return imgsz.scaled(factor)


def fitted_size(imgsz: ImageSize, sizes: np.ndarray) -> ImageSize:
    """The least size, in whole strides, on which pictures that fill ``imgsz`` one way are seen whole.

    Args:
        sizes: (k, 2) heights and widths of the pictures.
    """
    return ImageSize(*(int(side) for side in fitted_sides(imgsz, sizes).max(axis=0)))


def fitted_sides(imgsz: ImageSize, sizes: np.ndarray) -> np.ndarray:
    """(k, 2) int64: the same for each picture alone."""
    gains = (np.array(imgsz) / sizes).min(axis=1, keepdims=True)
    return np.maximum(np.ceil(sizes * gains / STRIDE - 1e-6), 1).astype(np.int64) * STRIDE


def shape_kinds(imgsz: ImageSize, sizes: np.ndarray) -> np.ndarray:
    """(k,) int64: equal for pictures that fit the same size, ascending from wide ones to high ones."""
    sides = fitted_sides(imgsz, sizes)
    return sides[:, 0] - sides[:, 1]  # one side is always that of imgsz


def largest_size(imgsz: ImageSize, multi_scale: float, rect: bool, sizes: np.ndarray) -> ImageSize:
    """The size that no window exceeds: what memory must be planned for.

    Args:
        sizes: (n, 2) heights and widths of all pictures.
    """
    largest = imgsz.scaled(1 + multi_scale)
    return fitted_size(largest, sizes) if rect else largest
