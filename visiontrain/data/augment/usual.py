"""What other trainers do to one picture in a hundred: blur, median blur, grey, local contrast. With OpenCV alone."""

from __future__ import annotations

import cv2
import numpy as np

PROBABILITY = 0.01  # of each
SIDES = (3, 5, 7)  # pixels, of what is blurred over
CONTRAST = (1.0, 4.0)  # how far the histogram of a field may be stretched
FIELDS = (8, 8)


def vary(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(H, W, 3) uint8 RGB, mostly as it was.

    Source:
        Zuiderveld, Contrast Limited Adaptive Histogram Equalization, Graphics Gems IV, 1994.
    """
    blurred, median, grey, contrast = rng.random(4) < PROBABILITY
    if blurred:
        side = int(rng.choice(SIDES))
        image = cv2.blur(image, (side, side))
    if median:
        image = cv2.medianBlur(image, int(rng.choice(SIDES)))
    if grey:
        image = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    return equalised(image, rng.uniform(*CONTRAST)) if contrast else image


def equalised(image: np.ndarray, limit: float) -> np.ndarray:
    """Lightness spread out field by field, colours kept."""
    lab = cv2.cvtColor(image, cv2.COLOR_RGB2LAB)
    lab[..., 0] = cv2.createCLAHE(limit, FIELDS).apply(np.ascontiguousarray(lab[..., 0]))
    return cv2.cvtColor(lab, cv2.COLOR_LAB2RGB)
