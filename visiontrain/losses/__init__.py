"""Losses as sums. LOSSES maps a model family's loss name to its class."""

from __future__ import annotations

from visiontrain.losses.detection import DetectionLoss, DualDetectionLoss
from visiontrain.losses.sums import LossSum, Term
from visiontrain.losses.yolox import YOLOXLoss

LOSSES: dict[str, type[DetectionLoss | DualDetectionLoss | YOLOXLoss]] = {
    "detection": DetectionLoss,
    "dual_detection": DualDetectionLoss,
    "yolox": YOLOXLoss,
}

__all__ = ["LOSSES", "DetectionLoss", "DualDetectionLoss", "LossSum", "Term", "YOLOXLoss"]
