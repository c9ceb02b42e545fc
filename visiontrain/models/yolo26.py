"""YOLO26: YOLO11 with attention in the neck, distances as numbers, and a second head that needs no suppression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from visiontrain.models.yolo11 import YOLO11
from visiontrain.nn.csp import C3k2
from visiontrain.nn.head import DualDetect
from visiontrain.nn.pooling import SPPF


class YOLO26(YOLO11):
    """Five sizes of one network; training mode returns DualOutput. See YOLO11 for the arguments, Detector for shapes."""

    family = "yolo26"
    head: DualDetect
    loss = "dual_detection"
    loss_terms = ("one_to_many", "one_to_one")

    def layers(self, widths: Sequence[int], few: int, link: str, class_width: int | None) -> dict[int, nn.Module]:
        _, _, c3, c4, c5 = widths
        return super().layers(widths, few, link, class_width) | {
            9: SPPF(c5, c5, activation=False, shortcut=True),
            13: C3k2(c5 + c4, c4, few, "c3k"),
            16: C3k2(c4 + c4, c3, few, "c3k"),
            19: C3k2(c3 + c4, c4, few, "c3k"),
            22: C3k2(c4 + c5, c5, 1, "attention"),
            23: DualDetect(len(self.class_names), (c3, c4, c5), class_width=class_width),
        }

    def use_nms(self, nms: bool | None) -> None:
        self.head.nms = bool(nms)

    @property
    def about_nms(self) -> str:
        if self.head.nms:
            return f"{self.name} is scored by its one-to-many head, with NMS (nms=true)."
        return f"{self.name} is scored by its one-to-one head, which needs no NMS; nms=true takes the other."

    def term_parameters(self) -> Mapping[str, list[nn.Parameter]]:
        """The second head learns from its own term alone, for it sees features without gradient."""
        alone = [p for p in self.head.one_to_one_parameters() if p.requires_grad]
        ids = set(map(id, alone))
        shared = [p for p in self.parameters() if p.requires_grad and id(p) not in ids]
        return {"one_to_many": shared, "one_to_one": alone}
