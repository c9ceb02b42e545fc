"""Losses as sums. LOSSES maps a model family's loss name to its class."""

from __future__ import annotations

from visiontrain.losses.detection import AuxiliaryDetectionLoss, DetectionLoss, DualDetectionLoss
from visiontrain.losses.sums import LossSum, Term
from visiontrain.losses.yolox import YOLOXLoss

LOSSES: dict[str, type[DetectionLoss | DualDetectionLoss | AuxiliaryDetectionLoss | YOLOXLoss]] = {
    "auxiliary_detection": AuxiliaryDetectionLoss,
    "detection": DetectionLoss,
    "dual_detection": DualDetectionLoss,
    "yolox": YOLOXLoss,
}

__all__ = ["LOSSES", "AuxiliaryDetectionLoss", "DetectionLoss", "DualDetectionLoss", "LossSum", "Term", "YOLOXLoss"]
