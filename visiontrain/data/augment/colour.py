"""Colour: hue, saturation and value of the whole picture, each by a random factor."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np

from visiontrain.data.augment.draft import Context, Draft


def jitter(draft: Draft, context: Context) -> Draft:
    """Multiply hue (around the circle), saturation and value (up to the limit) by 1 + uniform(-1, 1) * strength."""
    settings = context.settings
    strengths = np.array((settings.hsv_h, settings.hsv_s, settings.hsv_v))
    factors = 1 + context.rng.uniform(-1, 1, 3) * strengths
    return replace(draft, image=scale_hsv(draft.image, factors)) if strengths.any() else draft


def scale_hsv(image: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """(H, W, 3) uint8 RGB with hue, saturation and value multiplied by ``factors`` (3,)."""
    levels = np.arange(256)[:, None] * factors
    levels[:, 0] %= 180  # OpenCV keeps half degrees
    tables = levels.clip(0, 255).astype(np.uint8)
    hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV)
    return cv2.cvtColor(cv2.LUT(hsv, tables[None]), cv2.COLOR_HSV2RGB)
