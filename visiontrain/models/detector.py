"""What every model family shares: a name, classes, a stride, and which parameters each loss term reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from torch import Tensor, nn
from torch.nn import functional as F

from visiontrain.models.network import Network
from visiontrain.nn.decoupled import DecoupledHead
from visiontrain.nn.head import Detect, DetectorOutput, TrainingOutput
from visiontrain.nn.norm import batch_norms, norm_of
from visiontrain.nn.pooling import sppf_activation
from visiontrain.nn.recompute import recomputed


class Detector(Network):
    """Base of the families: (B, 3, H, W) float RGB in 0..1, H and W multiples of ``stride``.

    Training mode returns HeadOutput (with two heads DualOutput or AuxiliaryOutput, with objectness OffsetOutput), evaluation
    mode DetectorOutput. ``loss`` names its entry in LOSSES.
    ``checkpoint_blocks`` trades time for memory: blocks of backbone and neck are computed again in the backward pass.
    """

    family = ""
    loss = "detection"
    loss_terms: Sequence[str] = ("detect",)
    backbone = 0  # layers before the neck
    has_auxiliary = False  # whether the family knows layers that help in training alone
    input_size: tuple[int, int] | None = (
        None  # (height, width) that pictures must have; None: any multiple of the stride
    )
    model: nn.ModuleDict  # layers by their numbers; the last is the head
    # Those that help in training alone, numbered on; none where there are none or it was not asked.
    auxiliary: nn.ModuleDict

    def __init__(self, name: str, class_names: Sequence[str]) -> None:
        super().__init__()
        self.name = name
        self.class_names = tuple(class_names)
        self.auxiliary = nn.ModuleDict()
        self.checkpoint_blocks = False
        self.licence = ""  # of weights that came from elsewhere, as their file says
        self.origin: tuple[str, ...] = ()  # what is said of where the weights come from, and of what is frozen
        self.transferred: dict[str, Any] = {}  # what was taken over from a checkpoint, for the record
        self._kept: tuple[nn.Module, ...] = ()  # normalisation that is in evaluation mode always

    def forward(self, images: Tensor) -> TrainingOutput | DetectorOutput:
        raise NotImplementedError

    def run_layers(self, x: Tensor, *numbers: int) -> Tensor:
        """Layers of backbone or neck one after the other; families send them all through here."""
        for number in numbers:
            layer = (self.model if str(number) in self.model else self.auxiliary)[str(number)]
            x = recomputed(layer, x) if self.checkpoint_blocks and self.training else layer(x)
        return x

    @property
    def head(self) -> Detect | DecoupledHead:
        """The last layer."""
        return self.model[str(self.last_layer)]

    @property
    def last_layer(self) -> int:
        """Its number."""
        return max(map(int, self.model))

    @property
    def class_width(self) -> int:
        """Channels inside the class branch."""
        return self.head.class_width

    def class_tensors(self) -> set[str]:
        """Names of the tensors with one row for each class."""
        return {f"model.{self.last_layer}.{name}" for name in self.head.class_tensors()}

    def keep_frozen_norms(self) -> None:
        """Let BatchNorm whose parameters do not learn use its statistics and leave them, in training too."""
        self._kept = tuple(norm for norm in batch_norms(self) if not norm.weight.requires_grad)
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for layer in self._kept:
            layer.eval()
        return self

    def term_parameters(self) -> Mapping[str, list[nn.Parameter]]:
        """Trainable parameters that each loss term reaches; with one term it reaches all.

        Terms that share a parameter make each window run twice (training/two_pass.py). A term that reaches more than stands
        here ends the run before its first window.
        """
        return {self.loss_terms[0]: [p for p in self.parameters() if p.requires_grad]}

    @property
    def about_auxiliary(self) -> str:
        """What is said of layers that help in training alone; empty where the family knows none."""
        return ""

    def leave_out_auxiliary(self) -> None:
        """Be the model that evaluation needs."""
        self.auxiliary = nn.ModuleDict()

    def description(self) -> dict[str, Any]:
        """What a checkpoint needs to build this model again."""
        activation = sppf_activation(self)
        return {
            "family": self.family,
            "name": self.name,
            "nc": len(self.class_names),
            "names": list(self.class_names),
            "stride": self.stride,
            "norm": norm_of(self),
            **({} if activation is None else {"sppf_activation": activation}),
            "licence": self.licence,
            "class_width": self.class_width,
        }

    def parameter_count(self) -> int:
        return sum(p.numel() for p in self.parameters())


def scaled_width(channels: int, width: float, widest: int) -> int:
    """Channels of a stage: the base width, limited, times the multiple, up to a multiple of 8."""
    return int(-(-min(channels, widest) * width // 8) * 8)


def scaled_depth(repeats: int, depth: float) -> int:
    """Blocks of a stage; a single block stays."""
    return max(round(repeats * depth), 1) if repeats > 1 else repeats


def upsampled(x: Tensor) -> Tensor:
    """(B, C, H, W) -> (B, C, 2 H, 2 W), each cell four times."""
    return F.interpolate(x, scale_factor=2.0, mode="nearest")
