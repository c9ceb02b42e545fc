"""Pictures from disk, and the two ways to resize one: all of training, validation and prediction read through here."""

# Paths are strings here: a million of them pass, and a Path each is slow.
# ruff: noqa: PTH119, PTH122, PTH123
from __future__ import annotations

import os
from pathlib import Path

import cv2
import numpy as np

from visiontrain.config.image_size import ImageSize, image_size
from visiontrain.data.header import size_of_jpeg, size_of_png
from visiontrain.errors import DataError

SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
GREY = 114  # what surrounds a picture, in every channel
_HEAD = 1 << 16
_REDUCED = {2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4, 8: cv2.IMREAD_REDUCED_COLOR_8}


def is_picture(name: str) -> bool:
    """Whether the ending is one that pictures have, in upper or lower case."""
    return os.path.splitext(name)[1].lower() in SUFFIXES and not os.path.basename(name).startswith(".")


def read(path: str | Path, reduce: int = 1) -> np.ndarray:
    """Read a picture.

    Args:
        path: JPEG, PNG, BMP, TIFF or WebP; grey pictures get three equal channels, alpha is left out.
        reduce: 1, 2, 4 or 8: decode at that fraction, each pixel a mean of reduce x reduce; only for JPEG.

    Returns:
        (H, W, 3) uint8 RGB, the EXIF orientation applied.

    Raises:
        DataError: the file cannot be opened, or is not a picture OpenCV can decode.
    """
    return decode(bytes_of(path), path, reduce)


def probe(path: str | Path) -> tuple[int, int, int]:
    """(height, width) as ``read`` would give and the file's size in bytes, decoding only where the header does not tell.

    Raises:
        DataError: the picture cannot be decoded. A file that cannot be opened is an OSError.
    """
    with open(path, "rb") as file:
        length = os.fstat(file.fileno()).st_size
        head = file.read(_HEAD)
        file.seek(max(length - 12, 0))
        tail = file.read(12)
    size = None
    if tail.endswith(b"\xff\xd9"):  # a complete JPEG; where the end is missing, decoding decides
        size = size_of_jpeg(head)
    elif tail[4:8] == b"IEND":
        size = size_of_png(head)
    if size is None:
        size = decode(np.fromfile(path, np.uint8), path).shape[:2]
    return size[0], size[1], length


def reducible(path: str) -> bool:
    """Whether ``read`` can decode the file at a fraction of its size."""
    return path[-4:].lower() == ".jpg" or path[-5:].lower() == ".jpeg"


def resize(image: np.ndarray, width: int, height: int) -> np.ndarray:
    """Resize (H, W, 3) to (height, width, 3): bilinear, area means where it shrinks more than twofold (no aliasing)."""
    if image.shape[:2] == (height, width):
        return image
    result = np.empty((height, width, 3), np.uint8)
    resize_into(result, image)
    return result


def resize_into(target: np.ndarray, image: np.ndarray) -> None:
    """Resize (H, W, 3) as ``resize`` does, straight into ``target``, (h, w, 3) uint8, perhaps a part of a larger one."""
    height, width = target.shape[:2]
    means = cv2.INTER_AREA if shrinks(image, width, height) else cv2.INTER_LINEAR
    cv2.resize(image, (width, height), target, interpolation=means)


def shrinks(image: np.ndarray, width: int, height: int) -> bool:
    """Whether ``resize`` takes area means of (H, W, 3)."""
    return max(image.shape[0] / height, image.shape[1] / width) > 2


def letterbox(
    image: np.ndarray, size: int | tuple[int, int], stride: int = 32
) -> tuple[np.ndarray, tuple[float, float], tuple[float, float]]:
    """Scale a picture until it fills ``size`` one way and surround it with grey, half a stride or more on each side.

    Beyond its border a convolution sees zeros, which training, with its mosaics and letterboxes, hardly ever shows; grey
    it knows. On bccd the margin is worth 0.004 AP. The sides are the least multiples of ``stride`` that leave it.

    Args:
        image: (H, W, 3) uint8.
        size: the long side in pixels, or the (height, width) that the picture fits into.

    Returns:
        The picture (H', W', 3); the scale (x, y) and the pad (left, top): pixel = original * scale + pad.
    """
    height, width = image.shape[:2]
    inner_height, inner_width = letterbox_inner(height, width, image_size(size))
    outer_height, outer_width = (-(-(side + stride) // stride) * stride for side in (inner_height, inner_width))
    left, top = (outer_width - inner_width) // 2, (outer_height - inner_height) // 2
    canvas = np.full((outer_height, outer_width, 3), GREY, np.uint8)
    canvas[top : top + inner_height, left : left + inner_width] = resize(image, inner_width, inner_height)
    return canvas, (inner_width / width, inner_height / height), (float(left), float(top))


def letterbox_inner(height: int, width: int, size: ImageSize) -> tuple[int, int]:
    """(height, width) in whole pixels of a picture that fills ``size`` one way."""
    gain = size.gain(height, width)
    return max(round(height * gain), 1), max(round(width * gain), 1)


def bytes_of(path: str | Path) -> np.ndarray:
    """The bytes of a file, (n,) uint8.

    Raises:
        DataError: it cannot be opened.
    """
    try:
        return np.fromfile(path, np.uint8)
    except OSError as error:
        raise DataError(f"{path}: cannot be opened: {error.strerror or error}") from error


def decode(data: np.ndarray, path: str | Path, reduce: int = 1) -> np.ndarray:
    """The picture in the bytes of a file, as ``read`` gives it; ``path`` is for the message."""
    # From memory: one way for every operating system's file names, and an OS error is never taken for a bad picture.
    try:
        image = cv2.imdecode(data, _REDUCED[reduce] if reduce > 1 else cv2.IMREAD_COLOR) if len(data) else None
    except cv2.error as error:
        raise DataError(f"{path}: OpenCV cannot decode this picture: {error.err}") from error
    if image is None:
        what = f"{len(data)} bytes that OpenCV cannot decode" if len(data) else "the file is empty"
        raise DataError(f"{path}: not a picture that can be used: {what}; repair it or take it out of the split")
    if image.dtype != np.uint8:
        raise DataError(f"{path}: {image.dtype} samples cannot be used; save the picture with 8 or 16 bits a channel")
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=image)
