"""Text, colours and PNG files: what every drawing needs."""

from __future__ import annotations

import colorsys
from pathlib import Path

import cv2
import numpy as np

from visiontrain.record.files import write_atomic

Colour = tuple[int, int, int]  # RGB, 0 to 255

BLACK: Colour = (32, 33, 36)
GREY: Colour = (120, 124, 130)
GRID: Colour = (228, 230, 233)
WHITE: Colour = (255, 255, 255)

_FONT = cv2.FONT_HERSHEY_SIMPLEX
_TRUETYPE = int(cv2.__version__.split(".")[0]) >= 5  # OpenCV 5 draws an outline font under the same name
_FIRST: tuple[Colour, ...] = (
    (31, 119, 206),
    (232, 93, 32),
    (28, 150, 84),
    (204, 40, 88),
    (126, 87, 194),
    (0, 158, 168),
    (214, 158, 0),
    (120, 82, 56),
    (226, 96, 176),
    (96, 125, 38),
)


def class_colour(index: int) -> Colour:
    """A colour for a class: ten chosen ones, then hues a golden angle apart, so that neighbours differ."""
    if index < len(_FIRST):
        return _FIRST[index]
    hue = (index * 0.618034) % 1.0
    red, green, blue = colorsys.hsv_to_rgb(hue, (0.9, 0.6, 0.75)[index % 3], (0.8, 0.9, 0.6)[index % 3])
    return round(red * 255), round(green * 255), round(blue * 255)


def contrasting(colour: Colour) -> Colour:
    """Black or white, whichever is easier to read on ``colour`` (relative luminance as in WCAG 2)."""
    linear = [(c / 255 / 12.92) if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return BLACK if (luminance + 0.05) ** 2 > 1.05 * 0.05 * 1.9 else WHITE


def text_size(text: str, height: float, bold: bool = False) -> tuple[int, int]:
    """(width, height) in pixels of ``text`` whose capitals are ``height`` pixels high."""
    (width, _), _ = cv2.getTextSize(text, _FONT, height / 22, _thickness(height, bold))
    return width, round(height)


def put_text(
    canvas: np.ndarray,
    text: str,
    at: tuple[float, float],
    height: float,
    colour: Colour = BLACK,
    *,
    anchor: str = "left",
    bold: bool = False,
) -> None:
    """Write ``text`` on ``canvas`` (H, W, 3); ``at`` is its base line's left end, middle or right end by ``anchor``."""
    shift = {"left": 0.0, "middle": 0.5, "right": 1.0}[anchor] * text_size(text, height, bold)[0]
    origin = (round(at[0] - shift), round(at[1]))
    cv2.putText(canvas, text, origin, _FONT, height / 22, colour, _thickness(height, bold), cv2.LINE_AA)


def put_text_up(canvas: np.ndarray, text: str, at: tuple[float, float], height: float, anchor: str = "middle") -> None:
    """Write ``text`` turned to read upwards; ``at`` is the base line's (x, y) at the anchor; the ground must be white."""
    width, pad = text_size(text, height)[0], round(height * 0.6)
    strip = np.full((round(height) + 2 * pad, width + 2 * pad, 3), 255, np.uint8)
    put_text(strip, text, (pad, height + pad), height)
    turned = np.rot90(strip)
    shift = {"middle": width / 2, "top": 0.0, "bottom": float(width)}[anchor]
    left, top = round(at[0] - height - pad), round(at[1] - shift - pad)
    y0, x0 = max(top, 0), max(left, 0)
    y1, x1 = min(top + turned.shape[0], canvas.shape[0]), min(left + turned.shape[1], canvas.shape[1])
    if y1 > y0 and x1 > x0:
        canvas[y0:y1, x0:x1] = np.minimum(canvas[y0:y1, x0:x1], turned[y0 - top : y1 - top, x0 - left : x1 - left])


def fit_text(text: str, height: float, room: float) -> str:
    """``text``, or its beginning with two dots where it is wider than ``room`` pixels."""
    if text_size(text, height)[0] <= room:
        return text
    while text and text_size(text + "..", height)[0] > room:
        text = text[:-1]
    return text + ".." if text else ""


def write_picture(path: Path, picture: np.ndarray, quality: int = 90) -> None:
    """Write (H, W, 3) uint8 RGB as PNG or JPEG by the suffix, atomically."""
    data = encoded(picture, path.suffix, quality)
    write_atomic(path, lambda file: file.write(data))


def encoded(picture: np.ndarray, suffix: str, quality: int = 90) -> bytes:
    """(H, W, 3) uint8 RGB as the bytes of a ``.png`` or ``.jpg``."""
    options = [cv2.IMWRITE_JPEG_QUALITY, quality] if suffix == ".jpg" else []
    done, data = cv2.imencode(suffix, cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), options)
    if not done:
        raise OSError(f"OpenCV cannot encode a picture of {picture.shape} as {suffix}")
    return data.tobytes()


def _thickness(height: float, bold: bool) -> int:
    if _TRUETYPE:  # there the number is the weight of the font: 1 regular, 2 bold
        return 2 if bold else 1
    return max(1, round(height / (9 if bold else 15)))
