"""What other trainers do to one picture in a hundred: blur, median blur, grey, local contrast. With OpenCV alone."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

PROBABILITY = 0.01  # of each
SIDES = (3, 5, 7)  # pixels, of what is blurred over
MEDIAN_SIDES = (3, 5)  # 7 takes ten times as long: as long as two whole samples
CONTRAST = (1.0, 4.0)  # how far the histogram of a field may be stretched
FIELDS = (8, 8)


def drawn(rng: np.random.Generator) -> list[bool]:
    """Which of blur, median blur, grey and local contrast a picture gets: mostly none."""
    chances: list[float] = rng.random(4).tolist()
    return [chance < PROBABILITY for chance in chances]


def vary(image: np.ndarray, which: Sequence[bool], rng: np.random.Generator) -> np.ndarray:
    """(H, W, 3) uint8 RGB with what ``drawn`` says.

    Source:
        Zuiderveld, Contrast Limited Adaptive Histogram Equalization, Graphics Gems IV, 1994.
    """
    blurred, median, grey, contrast = which
    if blurred:
        side = int(rng.choice(SIDES))
        image = cv2.blur(image, (side, side))
    if median:
        image = cv2.medianBlur(image, int(rng.choice(MEDIAN_SIDES)))
    if grey:
        image = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    return equalised(image, rng.uniform(*CONTRAST)) if contrast else image


def equalised(image: np.ndarray, limit: float) -> np.ndarray:
    """Luma spread out field by field, colours kept."""
    luma, *colours = cv2.split(cv2.cvtColor(image, cv2.COLOR_RGB2YCrCb))
    luma = cv2.createCLAHE(limit, FIELDS).apply(luma)
    return cv2.cvtColor(cv2.merge((luma, *colours)), cv2.COLOR_YCrCb2RGB)
