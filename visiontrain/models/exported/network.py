"""An exported file in the place of a model: its one output becomes a DetectorOutput."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from visiontrain.boxes import xywh_to_xyxy
from visiontrain.errors import ConfigError
from visiontrain.models.exported.metadata import Metadata
from visiontrain.models.network import Network
from visiontrain.nn.head import DetectorOutput

Run = Callable[[Tensor], Tensor]  # (B, 3, H, W) float32 RGB 0..1 -> the file's output


class Exported(Network):
    """(B, 3, H, W) float RGB in 0..1 -> DetectorOutput, by another program than torch's modules; on the CPU.

    Where the file has one size and number of images, H and W must be that size, and B may be any.

    Args:
        path: the file.
        metadata: what it says of itself.
        run: calls it.
    """

    def __init__(self, path: Path, metadata: Metadata, run: Run) -> None:
        super().__init__()
        self.path, self.metadata, self.run = path, metadata, run
        self.name, self.class_names, self.stride = metadata.name, tuple(metadata.names), metadata.stride
        self.licence = metadata.licence
        self.input_size = None if metadata.dynamic else metadata.height_width
        self.eval()

    def __reduce__(self) -> tuple[Callable[[Path], Exported], tuple[Path]]:
        """Another rank opens the file itself."""
        return _again, (self.path,)

    def forward(self, images: Tensor) -> DetectorOutput:
        images = images.float().contiguous()
        output = self.run(images) if self.metadata.dynamic else self._in_batches(images, self.metadata.batch or 1)
        return self._detections(output) if self.metadata.rows else self._anchors(output)

    def _in_batches(self, images: Tensor, size: int) -> Tensor:
        """Of a file that takes so many images, no more and no less: the last batch is filled up with black."""
        lacking = -len(images) % size
        full = F.pad(images, (0, 0, 0, 0, 0, 0, 0, lacking))
        return torch.cat([self.run(part) for part in full.split(size)])[: len(images)]

    def _anchors(self, output: Tensor) -> DetectorOutput:
        rows = output.transpose(1, 2)
        return DetectorOutput(xywh_to_xyxy(rows[..., :4]), rows[..., 4:])

    def _detections(self, output: Tensor) -> DetectorOutput:
        classes = output[..., 5:].long().clamp(0, len(self.class_names) - 1)
        scores = output.new_zeros(*output.shape[:2], len(self.class_names)).scatter(2, classes, output[..., 4:5])
        return DetectorOutput(output[..., :4], scores, end_to_end=True)

    def use_nms(self, nms: bool | None) -> None:
        if self.metadata.nms and nms is False:
            raise ConfigError(f"nms=false: NMS is inside {self.path}; leave nms=auto, or export without nms=true")
        if self.metadata.end_to_end and nms:
            raise ConfigError(
                f"nms=true: {self.path} holds the head that needs none; leave nms=auto, or export with nms=true"
            )
        if not self.metadata.rows:
            super().use_nms(nms)

    def require(self, asked: Mapping[str, Any]) -> None:
        wrong = [sentence for name, value in asked.items() if (sentence := self._lacks(name, value))]
        if wrong:
            raise ConfigError(
                "\n".join(f"{sentence} inside {self.path}; leave it out, or export anew" for sentence in wrong)
            )

    def _lacks(self, name: str, value: Any) -> str:
        """What is wrong with a value, ""  where the file can do it."""
        inside = self.metadata
        if name == "imgsz" and self.input_size and tuple(value) not in ((0, 0), self.input_size):
            return f"imgsz={value}: it is {','.join(map(str, self.input_size))}"
        if name == "max_det" and inside.max_det is not None and value > inside.max_det:
            return f"max_det={value}: it is {inside.max_det}"
        if name == "conf" and inside.conf is not None and value < inside.conf:
            return f"conf={value:g}: what scores below {inside.conf:g} is dropped"
        if name == "iou" and inside.iou is not None and value != inside.iou:
            return f"iou={value:g}: it is {inside.iou:g}"
        return ""

    @property
    def about_nms(self) -> str:
        inside = self.metadata
        if inside.nms:
            return (
                f"NMS is inside {self.path.name}: conf={inside.conf:g} iou={inside.iou:g} max_det={inside.max_det}. What "
                f"scores less than {inside.conf:g} is not found, which lowers AP."
            )
        if inside.end_to_end:
            return f"{self.path.name} gives detections that need no NMS (max_det={inside.max_det})."
        return ""


def _again(path: Path) -> Exported:
    from visiontrain.models.exported import load_exported

    return load_exported(path)[0]
