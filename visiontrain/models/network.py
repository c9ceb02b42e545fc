"""What validation and prediction know of a model, whether it was trained here or comes from an exported file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from visiontrain.errors import ConfigError


class Network(nn.Module):
    """(B, 3, H, W) float RGB in 0..1 -> DetectorOutput, in evaluation mode."""

    name: str
    class_names: tuple[str, ...]
    stride = 32
    licence: str
    # (height, width) that every batch must have; None: multiples of the stride.
    input_size: tuple[int, int] | None = None

    def use_nms(self, nms: bool | None) -> None:
        """Which head evaluation uses, where there are two; None: the one that needs no suppression.

        Raises:
            ConfigError: no NMS is asked of a model that needs it.
        """
        if nms is False:
            raise ConfigError(
                f"nms=false: {self.name} finds each object several times and needs NMS; leave nms=auto, or use a yolo26 model"
            )

    def require(self, asked: Mapping[str, Any]) -> None:
        """Look whether evaluation can have what was asked for by name: imgsz, conf, iou, max_det. Of a checkpoint it can.

        Raises:
            ConfigError: an exported file has another value inside.
        """

    @property
    def about_nms(self) -> str:
        """What is said of a choice of heads; empty where there is none."""
        return ""
