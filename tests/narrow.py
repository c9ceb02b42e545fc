"""Sizes of every family that take milliseconds: for tests of the machinery, not of the network."""

from __future__ import annotations

from typing import Any

_SIXTEENTH = {"depth": 0.33, "width": 0.0625, "widest": 1024}
_NECK = {"neck": (16, 16, 32), "repeats": 1}
SIZES: dict[str, dict[str, Any]] = {
    "yolov8": _SIXTEENTH,
    "yolo11": {**_SIXTEENTH, "c3k": False},
    "yolo26": {**_SIXTEENTH, "c3k": False},
    "yolov9": {
        "stem": [8, 8],
        "stages": [[8, 8], [16, 16], [16, 16], [24, 24]],
        "finest": 16,
        "down": [8, 16],
        "repeats": 1,
        "halving": "mean",
        "leading": False,
    },
    "yolox": {**_SIXTEENTH, "depthwise": True},
    "resnet": _NECK,
    "convnext": _NECK,
}
# As the large sizes of yolov9, whose auxiliary layers are a second backbone.
LARGE_YOLOV9 = {
    **SIZES["yolov9"],
    "stages": [[16, 8], [24, 16], [32, 32], [32, 32]],
    "down": [16, 32],
    "halving": "mean and largest",
    "leading": True,
}


def narrow_families(monkeypatch) -> None:
    """Each family has one size, n."""
    from torchvision import models as torchvision_models
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt
    from torchvision.models.resnet import BasicBlock, ResNet

    from visiontrain import models

    def resnet(weights):
        return ResNet(BasicBlock, [1, 1, 1, 1])

    def convnext(weights, stochastic_depth_prob):
        stages = [CNBlockConfig(*stage) for stage in ((8, 16, 1), (16, 24, 1), (24, 32, 1), (32, None, 1))]
        return ConvNeXt(stages, stochastic_depth_prob)

    monkeypatch.setattr(models, "_sizes", lambda family: {"n": SIZES[family]})
    monkeypatch.setattr(torchvision_models, "resnetn", resnet, raising=False)
    monkeypatch.setattr(torchvision_models, "convnextn", convnext, raising=False)
