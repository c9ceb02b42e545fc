"""YOLOv8: CSP backbone, path-aggregation neck, decoupled anchor-free head.

The layers are numbered as published checkpoints number them (``model.0`` to ``model.22``), upsampling and
concatenation included, so that such files fit key by key.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from visiontrain.models.detector import Detector, scaled_depth, scaled_width, upsampled
from visiontrain.nn.conv import Conv
from visiontrain.nn.csp import C2f
from visiontrain.nn.head import Detect, DetectorOutput, TrainingOutput
from visiontrain.nn.pooling import SPPF


class YOLOv8(Detector):
    """Five sizes of one network; see Detector for shapes.

    Args:
        name: yolov8n, s, m, l or x.
        class_names: one for each class.
        depth, width, widest: the size, from cfg/models/yolov8.yaml.
        class_width: channels inside the class branch; None: as fits the classes.
    """

    family = "yolov8"
    backbone = 10

    def __init__(
        self,
        name: str,
        class_names: Sequence[str],
        *,
        depth: float,
        width: float,
        widest: int,
        class_width: int | None = None,
    ) -> None:
        super().__init__(name, class_names)
        c1, c2, c3, c4, c5 = (scaled_width(c, width, widest) for c in (64, 128, 256, 512, 1024))
        few, many = scaled_depth(3, depth), scaled_depth(6, depth)
        layers = {
            # backbone
            0: Conv(3, c1, 3, 2),
            1: Conv(c1, c2, 3, 2),
            2: C2f(c2, c2, few, shortcut=True),
            3: Conv(c2, c3, 3, 2),
            4: C2f(c3, c3, many, shortcut=True),  # stride 8
            5: Conv(c3, c4, 3, 2),
            6: C2f(c4, c4, many, shortcut=True),  # stride 16
            7: Conv(c4, c5, 3, 2),
            8: C2f(c5, c5, few, shortcut=True),
            9: SPPF(c5, c5),  # stride 32
            # neck, top down
            12: C2f(c5 + c4, c4, few),
            15: C2f(c4 + c3, c3, few),
            # neck, bottom up
            16: Conv(c3, c3, 3, 2),
            18: C2f(c3 + c4, c4, few),
            19: Conv(c4, c4, 3, 2),
            21: C2f(c4 + c5, c5, few),
            22: Detect(len(self.class_names), (c3, c4, c5), class_width=class_width),
        }
        self.model = nn.ModuleDict({str(index): layer for index, layer in layers.items()})

    def forward(self, images: Tensor) -> TrainingOutput | DetectorOutput:
        run = self.run_layers
        b3 = run(images, 0, 1, 2, 3, 4)
        b4 = run(b3, 5, 6)
        b5 = run(b4, 7, 8, 9)
        t4 = run(torch.cat((upsampled(b5), b4), 1), 12)
        n3 = run(torch.cat((upsampled(t4), b3), 1), 15)
        n4 = run(torch.cat((run(n3, 16), t4), 1), 18)
        n5 = run(torch.cat((run(n4, 19), b5), 1), 21)
        return self.model["22"]((n3, n4, n5))
