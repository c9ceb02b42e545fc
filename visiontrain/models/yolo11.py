"""YOLO11: the network of YOLOv8 with thinner blocks, attention after the backbone and a depth-wise class branch.

The layers are numbered as published checkpoints number them (``model.0`` to ``model.23``), upsampling and
concatenation included, so that such files fit key by key.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from visiontrain.models.detector import Detector, scaled_depth, scaled_width, upsampled
from visiontrain.nn.attention import C2PSA
from visiontrain.nn.conv import Conv
from visiontrain.nn.csp import C3k2
from visiontrain.nn.head import Detect, DetectorOutput, TrainingOutput
from visiontrain.nn.pooling import SPPF

BASE = (64, 128, 256, 512, 1024)  # channels of the stages before the width is applied


class YOLO11(Detector):
    """Five sizes of one network; see Detector for shapes.

    Args:
        name: yolo11n, s, m, l or x.
        class_names: one for each class.
        depth, width, widest: the size, from cfg/models/yolo11.yaml.
        c3k: every stage has C3k blocks, and not the last ones alone.
        class_width: channels inside the class branch; None: as fits the classes.
    """

    family = "yolo11"
    backbone = 11

    def __init__(
        self,
        name: str,
        class_names: Sequence[str],
        *,
        depth: float,
        width: float,
        widest: int,
        c3k: bool,
        class_width: int | None = None,
    ) -> None:
        super().__init__(name, class_names)
        widths = [scaled_width(c, width, widest) for c in BASE]
        layers = self.layers(widths, scaled_depth(2, depth), "c3k" if c3k else "plain", class_width)
        self.model = nn.ModuleDict({str(index): layer for index, layer in sorted(layers.items())})

    def layers(self, widths: Sequence[int], few: int, link: str, class_width: int | None) -> dict[int, nn.Module]:
        """All layers by their numbers.

        Args:
            widths: channels of the stages.
            few: repeats of a block.
            link: of the C3k2 blocks that are thin in the small sizes.
            class_width: of the head.
        """
        c1, c2, c3, c4, c5 = widths
        return {
            # backbone
            0: Conv(3, c1, 3, 2),
            1: Conv(c1, c2, 3, 2),
            2: C3k2(c2, c3, few, link, expansion=0.25),
            3: Conv(c3, c3, 3, 2),
            4: C3k2(c3, c4, few, link, expansion=0.25),  # stride 8
            5: Conv(c4, c4, 3, 2),
            6: C3k2(c4, c4, few, "c3k"),  # stride 16
            7: Conv(c4, c5, 3, 2),
            8: C3k2(c5, c5, few, "c3k"),
            9: SPPF(c5, c5),
            10: C2PSA(c5, few),  # stride 32
            # neck, top down
            13: C3k2(c5 + c4, c4, few, link),
            16: C3k2(c4 + c4, c3, few, link),
            # neck, bottom up
            17: Conv(c3, c3, 3, 2),
            19: C3k2(c3 + c4, c4, few, link),
            20: Conv(c4, c4, 3, 2),
            22: C3k2(c4 + c5, c5, few, "c3k"),
            23: Detect(len(self.class_names), (c3, c4, c5), depthwise=True, class_width=class_width),
        }

    def forward(self, images: Tensor) -> TrainingOutput | DetectorOutput:
        run = self.run_layers
        b3 = run(images, 0, 1, 2, 3, 4)
        b4 = run(b3, 5, 6)
        b5 = run(b4, 7, 8, 9, 10)
        t4 = run(torch.cat((upsampled(b5), b4), 1), 13)
        n3 = run(torch.cat((upsampled(t4), b3), 1), 16)
        n4 = run(torch.cat((run(n3, 17), t4), 1), 19)
        n5 = run(torch.cat((run(n4, 20), b5), 1), 22)
        return self.model["23"]((n3, n4, n5))
