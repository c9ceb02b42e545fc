"""Pictures from disk, and the two ways to resize one: all of training, validation and prediction read through here."""

# Paths are strings here: a million of them pass, and a Path each is slow.
# ruff: noqa: PTH119, PTH122, PTH123
from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

from visiontrain.config.image_size import ImageSize, image_size
from visiontrain.data.bad import BadPicture
from visiontrain.data.header import REACH, Header, ends_early, header_of, is_whole, kind_of
from visiontrain.errors import DataError, VisionTrainError

SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
GREY = 114  # what surrounds a picture, in every channel
MOST_PIXELS = 1 << 28  # 16384 x 16384: 0.8 GB decoded, twice that and the file while it is decoded
_COLOUR = {
    1: cv2.IMREAD_COLOR,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}
_RGB = getattr(cv2, "IMREAD_COLOR_RGB", 0)  # where OpenCV has it, a whole JPEG is decoded in this order at no cost
# EXIF orientation -> the turn that undoes it (EXIF 2.3, 4.6). OpenCV has one for each kind of file, but not in every version.
_TURNS: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    2: lambda image: cv2.flip(image, 1),
    3: lambda image: cv2.rotate(image, cv2.ROTATE_180),
    4: lambda image: cv2.flip(image, 0),
    5: cv2.transpose,
    6: lambda image: cv2.rotate(image, cv2.ROTATE_90_CLOCKWISE),
    7: lambda image: cv2.rotate(cv2.transpose(image), cv2.ROTATE_180),
    8: lambda image: cv2.rotate(image, cv2.ROTATE_90_COUNTERCLOCKWISE),
}


def is_picture(name: str) -> bool:
    """Whether the ending is one that pictures have, in upper or lower case."""
    return os.path.splitext(name)[1].lower() in SUFFIXES and not os.path.basename(name).startswith(".")


def read(path: str | Path, reduce: int = 1, size: tuple[int, int] | None = None) -> np.ndarray:
    """Read a picture: the one way for training, validation and prediction.

    Args:
        path: JPEG, PNG, BMP, TIFF or WebP, by its bytes whatever the ending; the first page. Grey pictures get three equal
            channels, alpha is left out, of 16 bits a channel the upper 8 stay.
        reduce: 1, 2, 4 or 8: each pixel a mean of reduce x reduce. A JPEG is decoded so, which is faster.
        size: (height, width) that it must have at reduce=1, because labels were read for that.

    Returns:
        (H, W, 3) uint8 RGB, the EXIF orientation applied; with ``reduce`` the sides are rounded up.

    Raises:
        BadPicture: it is not there, cannot be decoded, is larger than MOST_PIXELS, or has another size.
        DataError: the machine does not let it be opened.
    """
    image = decode(bytes_of(path), path, reduce)
    if size and image.shape[:2] != (-(-size[0] // reduce), -(-size[1] // reduce)):
        now = f"{image.shape[1] * reduce} x {image.shape[0] * reduce}" + (" or a little less" if reduce > 1 else "")
        raise BadPicture(f"{path}: {now} pixels now, and {size[1]} x {size[0]} when its labels were read")
    return image


def read_or_grey(path: str | Path, size: tuple[int, int]) -> tuple[np.ndarray, tuple[str, ...]]:
    """A picture as ``read`` gives it, and nothing; or grey of that (height, width), and what is wrong with it."""
    try:
        return read(path, size=size), ()
    except BadPicture as error:
        return np.full((*size, 3), GREY, np.uint8), (str(error),)


def probe(path: str | Path) -> tuple[int, int, int]:
    """(height, width) as ``read`` would give and the file's size in bytes, decoding only where the header does not tell.

    Raises:
        BadPicture: as ``read``. A file that cannot be opened is an OSError.
    """
    with open(path, "rb") as file:
        length = os.fstat(file.fileno()).st_size
        head = file.read(REACH)
        back = min(REACH if kind_of(head) == "PNG" else 12, length)
        file.seek(length - back)
        tail = file.read(back)
    header = header_of(head, tail)
    if header and is_whole(header, tail, length):
        _refuse(header, path)
        return *header.displayed, length
    height, width = decode(np.fromfile(path, np.uint8), path).shape[:2]
    return height, width, length


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
    image: np.ndarray, size: int | tuple[int, int], stride: int = 32, canvas: tuple[int, int] | None = None
) -> tuple[np.ndarray, tuple[float, float], tuple[float, float]]:
    """Scale a picture until it fills ``size`` one way and surround it with grey, half a stride or more on each side.

    Beyond its border a convolution sees zeros, which training, with its mosaics and letterboxes, hardly ever shows; grey
    it knows. On bccd the margin is worth 0.004 AP. The sides are the least multiples of ``stride`` that leave it.

    Args:
        image: (H, W, 3) uint8.
        size: the long side in pixels, or the (height, width) that the picture fits into.
        canvas: (height, width) of the result where it is fixed, as that of some exported files: the picture fills it one way,
            and ``size`` and the margin do not count.

    Returns:
        The picture (H', W', 3); the scale (x, y) and the pad (left, top): pixel = original * scale + pad.
    """
    height, width = image.shape[:2]
    inner_height, inner_width = letterbox_inner(height, width, image_size(canvas or size))
    outer_height, outer_width = canvas or (
        -(-(side + stride) // stride) * stride for side in (inner_height, inner_width)
    )
    left, top = (outer_width - inner_width) // 2, (outer_height - inner_height) // 2
    boxed = np.full((outer_height, outer_width, 3), GREY, np.uint8)
    boxed[top : top + inner_height, left : left + inner_width] = resize(image, inner_width, inner_height)
    return boxed, (inner_width / width, inner_height / height), (float(left), float(top))


def letterbox_outer(
    height: np.ndarray, width: np.ndarray, size: ImageSize, stride: int = 32
) -> tuple[np.ndarray, np.ndarray]:
    """Heights and widths of the results of ``letterbox``, (N,) pixels each, of pictures of these heights and widths."""
    gain = np.minimum(size.height / height, size.width / width)
    inner = (np.maximum(np.round(side * gain), 1) for side in (height, width))
    outer_height, outer_width = (-(-(side + stride) // stride) * stride for side in inner)
    return outer_height, outer_width


def letterbox_inner(height: int, width: int, size: ImageSize) -> tuple[int, int]:
    """(height, width) in whole pixels of a picture that fills ``size`` one way."""
    gain = size.gain(height, width)
    return max(round(height * gain), 1), max(round(width * gain), 1)


def bytes_of(path: str | Path) -> np.ndarray:
    """The bytes of a file, (n,) uint8.

    Raises:
        BadPicture: it is not there.
        DataError: it cannot be opened.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            return np.frombuffer(file.read(), np.uint8)
    except FileNotFoundError as error:
        raise BadPicture(f"{path}: cannot be opened: {error.strerror}", "picture_missing") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be opened: {error.strerror or error}") from error


def decode(data: np.ndarray, path: str | Path, reduce: int = 1) -> np.ndarray:
    """The picture in the bytes of a file, as ``read`` gives it; ``path`` is for the message."""
    view = data.data
    kind = kind_of(view)
    header = header_of(view, view[-REACH:]) or Header(kind)
    _refuse(header, path)
    if not kind or (kind == "JPEG" and view[-2:] != b"\xff\xd9" and ends_early(data.tobytes())):
        raise _unusable(data, kind, path)
    fraction = reduce if kind == "JPEG" and _divides(reduce, header) else 1
    in_order = _RGB if kind == "JPEG" and fraction == 1 else 0
    # From memory: one way for every operating system's file names, and an OS error is never taken for a bad picture.
    image = _decoded(data, kind, path, (in_order or _COLOUR[fraction]) | cv2.IMREAD_IGNORE_ORIENTATION)
    image = _turn(image, header.orientation)
    if fraction < reduce:
        image = _means(image, reduce)
    return image if in_order else cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=image)


def _divides(reduce: int, header: Header) -> bool:
    """Whether blocks of ``reduce`` pixels are the same in the stored and in the turned picture; they begin at its corner."""
    return header.orientation in (1, 5) or header.height % reduce == header.width % reduce == 0


def _decoded(data: np.ndarray, kind: str, path: str | Path, flags: int) -> np.ndarray:
    try:
        image = cv2.imdecode(data, flags)
    except cv2.error as error:
        if error.code == cv2.Error.StsNoMem:  # no verdict on the picture
            raise VisionTrainError(f"{path}: no memory is left to decode it; lower workers or batch") from error
        raise BadPicture(f"{path}: OpenCV cannot decode this picture: {error.err}") from error
    if image is None:
        raise _unusable(data, kind, path)
    return image


def _turn(image: np.ndarray, orientation: int) -> np.ndarray:
    return _TURNS[orientation](image) if orientation in _TURNS else image


def _means(image: np.ndarray, reduce: int) -> np.ndarray:
    """Each pixel the mean of a block; the last blocks of a row or column hold the border again where pixels are missing."""
    height, width = (-(-side // reduce) for side in image.shape[:2])
    bottom, right = height * reduce - image.shape[0], width * reduce - image.shape[1]
    whole = cv2.copyMakeBorder(image, 0, bottom, 0, right, cv2.BORDER_REPLICATE)
    return cv2.resize(whole, (width, height), interpolation=cv2.INTER_AREA)


def _refuse(header: Header, path: str | Path) -> None:
    if header.samples:
        raise BadPicture(
            f"{path}: a TIFF of {header.samples} samples, which have no agreed black and white; scale it to 8 or 16 bits a "
            "channel without a sign and save it anew"
        )
    if header.height * header.width > MOST_PIXELS:
        raise BadPicture(
            f"{path}: {header.width} x {header.height} pixels, more than the {MOST_PIXELS >> 20} million that are decoded at "
            "once; cut it into tiles",
            "picture_too_large",
        )


def _unusable(data: np.ndarray, kind: str, path: str | Path) -> BadPicture:
    if not len(data):
        what = "the file is empty"
    elif not kind:
        what = f"its first bytes, {data[:12].tobytes()!r}, are of no JPEG, PNG, BMP, WebP or TIFF"
    elif kind == "JPEG" and ends_early(data.tobytes()):
        text = f"{path}: {len(data)} bytes and no end of the picture: copy it again from its source"
        return BadPicture(text, "picture_truncated")
    else:
        what = f"{len(data)} bytes that OpenCV {cv2.__version__} cannot decode as {kind}"
    return BadPicture(f"{path}: not a picture that can be used: {what}; repair it or take it out of the split")
