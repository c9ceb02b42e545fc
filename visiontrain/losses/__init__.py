"""Losses as sums. LOSSES maps a model family's loss name to its class."""

from __future__ import annotations

from visiontrain.losses.detection import DetectionLoss
from visiontrain.losses.sums import LossSum, Term

LOSSES = {"detection": DetectionLoss}

__all__ = ["LOSSES", "DetectionLoss", "LossSum", "Term"]
