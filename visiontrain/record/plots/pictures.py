"""A sheet of pictures with their boxes, class names and scores."""

from __future__ import annotations

import math
from collections.abc import Sequence

import cv2
import numpy as np

from visiontrain.record.events import Pictures
from visiontrain.record.plots.ink import BLACK, WHITE, class_colour, contrasting, fit_text, put_text, text_size

SHEET = 1920  # pixels, the longer side of a sheet
MOST = 16  # pictures on a sheet
GAP = 6


def draw_pictures(pictures: Pictures) -> np.ndarray:
    """Draw up to sixteen pictures side by side, each with its boxes.

    Args:
        pictures: one or more; boxes are xyxy in pixels of their picture.

    Returns:
        (H, W, 3) uint8 RGB, at most 1920 pixels wide.
    """
    images = pictures.images[:MOST]
    columns = math.ceil(math.sqrt(len(images)))
    rows = math.ceil(len(images) / columns)
    width = min((SHEET - GAP) // columns - GAP, 960)
    aspect = float(np.median([image.shape[0] / image.shape[1] for image in images]))
    height = round(width * float(np.clip(aspect, 0.5, 1.5)))
    sheet = np.full((rows * (height + GAP) + GAP, columns * (width + GAP) + GAP, 3), 255, np.uint8)
    for index in range(len(images)):
        y, x = GAP + index // columns * (height + GAP), GAP + index % columns * (width + GAP)
        sheet[y : y + height, x : x + width] = _draw_tile(pictures, index, (width, height))
    return sheet


def draw_boxes(
    image: np.ndarray,
    boxes: np.ndarray,
    classes: np.ndarray,
    scores: np.ndarray | None,
    names: Sequence[str],
    *,
    line: int | None = None,
    labels: bool = True,
    confidences: bool = True,
) -> np.ndarray:
    """A copy of ``image`` (H, W, 3) uint8 RGB with ``boxes`` (N, 4) xyxy pixels; the surest boxes are drawn on top.

    ``line`` is the width of the lines, None: by the picture's size; ``labels`` and ``confidences`` say what is written.
    """
    drawn = np.ascontiguousarray(image).copy()
    line = line or max(1, round(math.hypot(*image.shape[:2]) / 330))
    size = float(np.clip(math.hypot(*image.shape[:2]) / 66, 9, 24))
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    order = np.argsort(-areas if scores is None else scores, kind="stable")  # small ones, or sure ones, on top
    for index in order:
        x1, y1, x2, y2 = (round(float(v)) for v in boxes[index])
        cv2.rectangle(drawn, (x1, y1), (x2, y2), class_colour(int(classes[index])), line, cv2.LINE_AA)
    for index in order:
        words = [names[int(classes[index])]] if labels else []
        words += [f"{scores[index]:.2f}"] if scores is not None and confidences else []
        if words:
            _draw_label(drawn, boxes[index], " ".join(words), int(classes[index]), size, line)
    return drawn


def _draw_tile(pictures: Pictures, index: int, room: tuple[int, int]) -> np.ndarray:
    """One picture, scaled before drawing so that lines and letters stay crisp."""
    image, boxes = pictures.images[index], np.asarray(pictures.boxes[index], float).reshape(-1, 4)
    scale = min(room[0] / image.shape[1], room[1] / image.shape[0])
    width, height = max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    scaled = cv2.resize(np.ascontiguousarray(image), (width, height), interpolation=how)
    factor = np.array([width / image.shape[1], height / image.shape[0]] * 2)
    scores = None if pictures.scores is None else pictures.scores[index]
    drawn = draw_boxes(scaled, boxes * factor, pictures.classes[index], scores, pictures.class_names)
    if pictures.captions:
        _draw_caption(drawn, pictures.captions[index])
    framed = np.full((room[1], room[0], 3), 238, np.uint8)
    y, x = (room[1] - height) // 2, (room[0] - width) // 2
    framed[y : y + height, x : x + width] = drawn
    return framed


def _draw_label(canvas: np.ndarray, box: np.ndarray, text: str, index: int, size: float, line: int) -> None:
    """Above the box, inside it where the picture ends there; never past the right side."""
    pad = max(2, round(size * 0.35))
    width, height = text_size(text, size)[0] + 2 * pad, round(size) + 2 * pad
    x = int(np.clip(round(float(box[0])) - line // 2, 0, max(canvas.shape[1] - width, 0)))
    y = round(float(box[1])) - height
    y = y if y >= 0 else int(np.clip(round(float(box[1])), 0, max(canvas.shape[0] - height, 0)))
    colour = class_colour(index)
    cv2.rectangle(canvas, (x, y), (x + width, y + height), colour, -1)
    put_text(canvas, text, (x + pad, y + height - pad), size, contrasting(colour))


def _draw_caption(canvas: np.ndarray, text: str) -> None:
    size = float(np.clip(canvas.shape[1] / 50, 8, 14))
    label = fit_text(text, size, canvas.shape[1] - 12)
    width, height = text_size(label, size)[0] + 12, round(size * 2.1)
    ground = canvas[-height:, :width]
    ground[:] = (ground * 0.35 + np.array(BLACK) * 0.65).astype(np.uint8)
    put_text(canvas, label, (6, canvas.shape[0] - height * 0.28), size, WHITE)
