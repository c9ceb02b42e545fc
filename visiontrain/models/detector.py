"""What every model family shares: a name, classes, a stride, and which parameters each loss term reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from visiontrain.nn.head import DetectorOutput, HeadOutput
from visiontrain.nn.norm import norm_of
from visiontrain.nn.recompute import recomputed


class Detector(nn.Module):
    """Base of the families: (B, 3, H, W) float RGB in 0..1, H and W multiples of ``stride``.

    Training mode returns HeadOutput, evaluation mode DetectorOutput. ``loss`` names its entry in LOSSES.
    ``checkpoint_blocks`` trades time for memory: blocks of backbone and neck are computed again in the backward pass.
    """

    family = ""
    loss = "detection"
    loss_terms: Sequence[str] = ("detect",)
    stride = 32

    def __init__(self, name: str, class_names: Sequence[str]) -> None:
        super().__init__()
        self.name = name
        self.class_names = tuple(class_names)
        self.checkpoint_blocks = False

    def forward(self, images: Tensor) -> HeadOutput | DetectorOutput:
        raise NotImplementedError

    def run_block(self, block: nn.Module, x: Tensor) -> Tensor:
        """A block of backbone or neck; families send them all through here."""
        return recomputed(block, x) if self.checkpoint_blocks and self.training else block(x)

    def term_parameters(self) -> Mapping[str, list[nn.Parameter]]:
        """Trainable parameters that each loss term reaches; with one term it reaches all.

        Terms that share a parameter make each window run twice (training/two_pass.py). A term that reaches more than stands
        here ends the run before its first window.
        """
        return {self.loss_terms[0]: [p for p in self.parameters() if p.requires_grad]}

    def description(self) -> dict[str, Any]:
        """What a checkpoint needs to build this model again."""
        return {
            "family": self.family,
            "name": self.name,
            "nc": len(self.class_names),
            "names": list(self.class_names),
            "stride": self.stride,
            "norm": norm_of(self),
        }

    def parameter_count(self) -> int:
        return sum(p.numel() for p in self.parameters())


def scaled_width(channels: int, width: float, widest: int) -> int:
    """Channels of a stage: the base width, limited, times the multiple, up to a multiple of 8."""
    return int(-(-min(channels, widest) * width // 8) * 8)


def scaled_depth(repeats: int, depth: float) -> int:
    """Blocks of a stage; a single block stays."""
    return max(round(repeats * depth), 1) if repeats > 1 else repeats
