"""YOLOv9: a network of efficient layer aggregation (GELAN), and layers beside it that help it learn and are left out afterwards.

The layers are numbered as the published checkpoints of the MIT project (MultimediaTechLab/YOLO) number them, from 0 to 22 and
the auxiliary ones on from there, upsampling and concatenation included; techlab.py has their names inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from visiontrain.models.detector import Detector, upsampled
from visiontrain.nn.conv import Conv
from visiontrain.nn.elan import ELAN, AConv, ADown, CBLinear, RepNCSPELAN
from visiontrain.nn.head import AuxiliaryOutput, Detect, DetectorOutput, HeadOutput, TrainingOutput
from visiontrain.nn.pooling import SPPF

HEAD = 22  # number of the last layer; those above it are auxiliary


class YOLOv9(Detector):
    """Four sizes of one network; see Detector for shapes. With ``auxiliary`` training mode returns AuxiliaryOutput.

    The auxiliary layers are a second neck on the backbone, in the large sizes a second backbone that is led by the first;
    their head reaches the first backbone too. In evaluation they do not run.

    Args:
        name: yolov9t, s, m or c.
        class_names: one for each class.
        stem: channels of the first two layers.
        stages: of the four stages of the backbone each [channels, those inside the block].
        finest: channels of the finest map of the neck.
        down: channels on the two ways down from it.
        repeats: bottlenecks in a row.
        halving: mean: AConv; mean and largest: ADown.
        leading: the auxiliary layers are a second backbone, and the first stage is a RepNCSPELAN too.
        class_width: channels inside the class branch; None: as fits the classes.
        auxiliary: with the layers that help in training.

    Source:
        Wang, Yeh and Liao, YOLOv9: Learning What You Want to Learn Using Programmable Gradient Information, arXiv:2402.13616.
    """

    family = "yolov9"
    backbone = 9
    has_auxiliary = True

    def __init__(
        self,
        name: str,
        class_names: Sequence[str],
        *,
        stem: Sequence[int],
        stages: Sequence[Sequence[int]],
        finest: int,
        down: Sequence[int],
        repeats: int,
        halving: str,
        leading: bool,
        class_width: int | None = None,
        auxiliary: bool = False,
    ) -> None:
        super().__init__(name, class_names)
        self.repeats, self.leading = repeats, leading
        self.halve = AConv if halving == "mean" else ADown
        _, c3, c4, c5 = (channels for channels, _ in stages)
        layers = self.backbone_layers(stem, stages) | {
            # neck, top down
            9: SPPF(c5, c5),
            12: self.block(c5 + c4, c4),
            15: self.block(c4 + c3, finest),
            # neck, bottom up
            16: self.halve(finest, down[0]),
            18: self.block(down[0] + c4, c4),
            19: self.halve(c4, down[1]),
            21: self.block(down[1] + c5, c5),
            HEAD: self.detect((finest, c4, c5), class_width or min(2 * len(self.class_names), 128)),
        }
        self.model = nn.ModuleDict({str(index): layer for index, layer in layers.items()})
        if auxiliary:
            make = self.second_backbone if leading else self.second_neck
            self.auxiliary.update({str(index): layer for index, layer in make(stem, stages, finest).items()})
            self.loss, self.loss_terms = "auxiliary_detection", ("detect", "auxiliary")

    def block(self, c_in: int, c_out: int, part: int | None = None) -> nn.Module:
        """Aggregation of two links; ``part`` channels inside, None: as it gives."""
        return RepNCSPELAN(c_in, c_out, part or c_out, self.repeats)

    def detect(self, channels: Sequence[int], class_width: int) -> Detect:
        """A head whose class branch is so wide, and as the finest map at the least."""
        return Detect(len(self.class_names), channels, class_width=max(channels[0], class_width), groups=4)

    def backbone_layers(self, stem: Sequence[int], stages: Sequence[Sequence[int]]) -> dict[int, nn.Module]:
        """Layers 0 to 8: two convolutions, then four stages, of which the last three halve the map."""
        (before, part), *rest = stages
        first = self.block(stem[1], before, part) if self.leading else ELAN(stem[1], before, part)
        layers: dict[int, nn.Module] = {0: Conv(3, stem[0], 3, 2), 1: Conv(stem[0], stem[1], 3, 2), 2: first}
        for number, (channels, part) in zip((3, 5, 7), rest, strict=True):
            layers |= {number: self.halve(before, part), number + 1: self.block(part, channels, part)}
            before = channels
        return layers

    def second_neck(self, stem: Sequence[int], stages: Sequence[Sequence[int]], finest: int) -> dict[int, nn.Module]:
        """Top down alone, on the maps of the backbone."""
        _, c3, c4, c5 = (channels for channels, _ in stages)
        return {
            23: SPPF(c5, c5),
            26: self.block(c5 + c4, c4),
            29: self.block(c4 + c3, finest),
            30: self.detect((finest, c4, c5), self.class_width),
        }

    def second_backbone(
        self, stem: Sequence[int], stages: Sequence[Sequence[int]], finest: int
    ) -> dict[int, nn.Module]:
        """The backbone once more, and three layers that deal the maps of the first to its stages."""
        again = self.backbone_layers(stem, stages)
        into3, into4, into5 = (again[number].cv1.conv.in_channels for number in (4, 6, 8))
        _, c3, c4, c5 = (channels for channels, _ in stages)
        dealing = {23: CBLinear(c3, into3), 24: CBLinear(c4, into3, into4), 25: CBLinear(c5, into3, into4, into5)}
        places = dict(zip(again, (26, 27, 28, 29, 31, 32, 34, 35, 37), strict=True))
        moved = {places[number]: layer for number, layer in again.items()}
        return {**dealing, **moved, 38: self.detect((c3, c4, c5), self.class_width)}

    def forward(self, images: Tensor) -> TrainingOutput | DetectorOutput:
        run = self.run_layers
        b3 = run(images, 0, 1, 2, 3, 4)
        b4 = run(b3, 5, 6)
        b5 = run(b4, 7, 8)
        n5 = run(b5, 9)
        n4 = run(torch.cat((upsampled(n5), b4), 1), 12)
        p3 = run(torch.cat((upsampled(n4), b3), 1), 15)
        p4 = run(torch.cat((run(p3, 16), n4), 1), 18)
        p5 = run(torch.cat((run(p4, 19), n5), 1), 21)
        found = self.head((p3, p4, p5))
        if not (self.training and self.auxiliary):
            return found
        helped = self.led(images, b3, b4, b5) if self.leading else self.beside(b3, b4, b5)
        return AuxiliaryOutput(found, helped)

    def beside(self, b3: Tensor, b4: Tensor, b5: Tensor) -> HeadOutput:
        """The second neck and its head."""
        run = self.run_layers
        a5 = run(b5, 23)
        a4 = run(torch.cat((upsampled(a5), b4), 1), 26)
        a3 = run(torch.cat((upsampled(a4), b3), 1), 29)
        return self.auxiliary["30"]((a3, a4, a5))

    def led(self, images: Tensor, b3: Tensor, b4: Tensor, b5: Tensor) -> HeadOutput:
        """The second backbone, to each of whose stages what the first says of it and of later ones is added, and its head."""
        run = self.run_layers
        (from3,), (from43, from44), (from53, from54, from55) = (
            self.auxiliary[number](b) for number, b in (("23", b3), ("24", b4), ("25", b5))
        )
        a3 = run(run(images, 26, 27, 28, 29) + from3 + upsampled(from43) + upsampled(upsampled(from53)), 31)
        a4 = run(run(a3, 32) + from44 + upsampled(from54), 34)
        a5 = run(run(a4, 35) + from55, 37)
        return self.auxiliary["38"]((a3, a4, a5))

    def class_tensors(self) -> set[str]:
        helping = {
            f"auxiliary.{number}.{name}"
            for number, layer in self.auxiliary.items()
            if isinstance(layer, Detect)
            for name in layer.class_tensors()
        }
        return super().class_tensors() | helping

    def term_parameters(self) -> Mapping[str, list[nn.Parameter]]:
        """Both heads reach the backbone; each reaches its own neck alone."""
        if not self.auxiliary:
            return super().term_parameters()
        mine = [p for p in self.model.parameters() if p.requires_grad]
        backbone = [p for n in range(self.backbone) for p in self.model[str(n)].parameters() if p.requires_grad]
        return {"detect": mine, "auxiliary": backbone + [p for p in self.auxiliary.parameters() if p.requires_grad]}

    @property
    def about_auxiliary(self) -> str:
        if not self.auxiliary:
            return f"{self.name} learns without its auxiliary head (auxiliary=false), in one pass."
        count = sum(p.numel() for p in self.auxiliary.parameters())
        return f"The auxiliary layers ({count / 1e6:.2f} M parameters) help in training alone; nothing else runs them."

    def description(self) -> dict[str, Any]:
        return super().description() | {"auxiliary": bool(self.auxiliary)}
