"""Mixup: a second sample laid over the first, half transparent."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np

from visiontrain.data.augment.affine import place
from visiontrain.data.augment.draft import Context, Draft
from visiontrain.data.augment.mosaic import arrange


def blend(draft: Draft, context: Context) -> Draft:
    """Blend in another sample at a ratio near one half; the boxes of both count in full.

    Source:
        Zhang et al., mixup, arXiv:1710.09412.
    """
    if context.closed or context.rng.random() >= context.settings.mixup:
        return draft
    other = place(arrange(Draft(context.pick()), context), context)
    ratio = context.rng.beta(32.0, 32.0)
    if draft.drawing and other.drawing:
        draft = replace(draft, drawing=draft.drawing.mixed(other.drawing, ratio))
    else:
        draft = replace(draft, image=cv2.addWeighted(draft.image, ratio, other.image, 1 - ratio, 0))
    return replace(
        draft,
        boxes=np.concatenate((draft.boxes, other.boxes)),
        classes=np.concatenate((draft.classes, other.classes)),
    )
