"""YOLOX: CSP backbone with a space-to-depth stem, path-aggregation neck, decoupled head with objectness.

Layers are numbered as those of the other families, upsampling and concatenation included.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from visiontrain.models.detector import Detector, scaled_depth, scaled_width, upsampled
from visiontrain.nn.conv import Conv, Focus, SeparableConv
from visiontrain.nn.csp import C3
from visiontrain.nn.decoupled import DecoupledHead
from visiontrain.nn.head import DetectorOutput, OffsetOutput
from visiontrain.nn.pooling import SPPF


class YOLOX(Detector):
    """Six sizes of one network; training mode returns OffsetOutput. See Detector for shapes.

    Args:
        name: yolox_nano, tiny, s, m, l or x.
        class_names: one for each class.
        depth, width, widest, depthwise: the size, from cfg/models/yolox.yaml.
        class_width: channels inside the head's branches; None: as the size has.

    Source:
        Ge et al., YOLOX: Exceeding YOLO Series in 2021, arXiv:2107.08430.
    """

    family = "yolox"
    loss = "yolox"
    backbone = 10

    def __init__(
        self,
        name: str,
        class_names: Sequence[str],
        *,
        depth: float,
        width: float,
        widest: int = 1024,
        depthwise: bool = False,
        class_width: int | None = None,
    ) -> None:
        super().__init__(name, class_names)
        c1, c2, c3, c4, c5 = (scaled_width(c, width, widest) for c in (64, 128, 256, 512, 1024))
        few, many = scaled_depth(3, depth), 3 * scaled_depth(3, depth)
        conv = SeparableConv if depthwise else Conv
        layers = {
            # backbone
            0: Focus(3, c1, 3),
            1: conv(c1, c2, 3, 2),
            2: C3(c2, c2, few, True, depthwise),
            3: conv(c2, c3, 3, 2),
            4: C3(c3, c3, many, True, depthwise),  # stride 8
            5: conv(c3, c4, 3, 2),
            6: C3(c4, c4, many, True, depthwise),  # stride 16
            7: conv(c4, c5, 3, 2),
            8: SPPF(c5, c5),
            9: C3(c5, c5, few, False, depthwise),  # stride 32
            # neck, top down
            10: Conv(c5, c4),
            13: C3(2 * c4, c4, few, False, depthwise),
            14: Conv(c4, c3),
            17: C3(2 * c3, c3, few, False, depthwise),
            # neck, bottom up
            18: conv(c3, c3, 3, 2),
            20: C3(2 * c3, c4, few, False, depthwise),
            21: conv(c4, c4, 3, 2),
            23: C3(2 * c4, c5, few, False, depthwise),
            24: DecoupledHead(len(self.class_names), (c3, c4, c5), class_width or c3, depthwise),
        }
        self.model = nn.ModuleDict({str(index): layer for index, layer in layers.items()})

    def forward(self, images: Tensor) -> OffsetOutput | DetectorOutput:
        run = self.run_layers
        b3 = run(images, 0, 1, 2, 3, 4)
        b4 = run(b3, 5, 6)
        t5 = run(b4, 7, 8, 9, 10)
        t4 = run(torch.cat((upsampled(t5), b4), 1), 13, 14)
        n3 = run(torch.cat((upsampled(t4), b3), 1), 17)
        n4 = run(torch.cat((run(n3, 18), t4), 1), 20)
        n5 = run(torch.cat((run(n4, 21), t5), 1), 23)
        return self.model["24"]((n3, n4, n5))
