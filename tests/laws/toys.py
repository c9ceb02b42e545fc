"""What the laws are tried on: a model of three layers, a narrow real detector, and a window taken apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from narrow import LARGE_YOLOV9, SIZES
from torch import Tensor, nn

from visiontrain.batch import Batch, Targets
from visiontrain.config.groups import LossConfig
from visiontrain.distributed import Ranks
from visiontrain.losses import AuxiliaryDetectionLoss, DetectionLoss, DualDetectionLoss, LossSum, Term, YOLOXLoss
from visiontrain.models.detector import Detector
from visiontrain.models.yolo26 import YOLO26
from visiontrain.models.yolov8 import YOLOv8
from visiontrain.models.yolov9 import YOLOv9
from visiontrain.models.yolox import YOLOX
from visiontrain.nn.norm import freeze_batch_norm
from visiontrain.training.precision import Precision
from visiontrain.training.update import Update, apply_update
from visiontrain.training.window import WindowSums, accumulate_window

torch.set_num_threads(1)  # small tensors; other processes share the machine

ALONE = Ranks(torch.device("cpu"))
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}  # accumulation.md, section 12
MIXED = (3, 0, 5, 1, 0, 2, 40, 1, 4, 0, 0, 0, 2, 1, 7, 3)  # objects of 16 images, some without


@dataclass(frozen=True)
class Pieces:
    """The two halves of a window; a mutation replaces one of them by a faulty one."""

    accumulate: Callable[..., WindowSums] = accumulate_window
    apply: Callable[..., Update] = apply_update


OURS = Pieces()


class Probe(torch.optim.SGD):
    """An optimizer that notes the flattened gradient of every step it takes."""

    def __init__(self, model: nn.Module, lr: float = 0.01, momentum: float = 0.9) -> None:
        super().__init__(model.parameters(), lr=lr, momentum=momentum)
        self.seen: list[Tensor] = []

    def step(self, closure=None):
        self.seen.append(flat([p.grad for g in self.param_groups for p in g["params"]]))
        return super().step(closure)


def flat(tensors: Sequence[Tensor | None]) -> Tensor:
    return torch.cat([t.detach().reshape(-1) for t in tensors if t is not None])


def relative(a: Tensor, b: Tensor) -> float:
    """||a - b|| / ||b||, in float64."""
    return float((a.double() - b.double()).norm() / b.double().norm())


def full_precision(dtype: torch.dtype = torch.float64) -> Precision:
    return Precision(torch.device("cpu"), dtype)


def scaled(scale: float = 2.0**16) -> Precision:
    return Precision(torch.device("cpu"), torch.float32, torch.amp.GradScaler("cpu", init_scale=scale))


def reach_of(model: nn.Module, term: str) -> dict[str, list[nn.Parameter]]:
    return {term: [p for p in model.parameters() if p.requires_grad]}


@dataclass
class Toy:
    """Three layers and a loss whose weight depends on the targets, as target scores do; quick."""

    dtype: torch.dtype = torch.float64
    term: str = "toy"

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.SiLU(), nn.Linear(16, 4))
        return layers.to(self.dtype)

    def batch(self, objects: Sequence[int] = MIXED) -> Batch:
        generator = torch.Generator().manual_seed(1)
        images = torch.randn(len(objects), 3, 2, 2, generator=generator, dtype=torch.float64)
        index = torch.repeat_interleave(torch.arange(len(objects)), torch.tensor(objects))
        boxes = torch.randn(len(index), 4, generator=generator, dtype=torch.float64) * (1 + index[:, None] % 5)
        targets = Targets(index, torch.zeros_like(index), boxes.to(self.dtype))
        return Batch(images.to(self.dtype), targets, tuple(range(len(objects))))

    def criterion(self, outputs: Tensor, targets: Targets) -> LossSum:
        weights = targets.boxes.abs().sum(-1) / 4
        error = (outputs[targets.image] - targets.boxes).square().sum(-1)
        background = outputs.square().sum() / 8
        return LossSum({self.term: Term((weights * error).sum() + background, weights.sum())})


@dataclass
class Narrow:
    """yolov8 with a sixteenth of the channels, BatchNorm frozen, on pictures of 64 x 64."""

    dtype: torch.dtype = torch.float64
    term: str = "detect"

    def model(self) -> Detector:
        torch.manual_seed(0)
        model = YOLOv8("yolov8n", ["a", "b", "c"], depth=0.33, width=0.0625, widest=1024)
        return freeze_batch_norm(model.to(self.dtype).train())

    def batch(self, objects: Sequence[int] = MIXED) -> Batch:
        generator = torch.Generator().manual_seed(2)
        images = torch.randint(0, 256, (len(objects), 3, 64, 64), generator=generator, dtype=torch.uint8)
        index = torch.repeat_interleave(torch.arange(len(objects)), torch.tensor(objects))
        corner = 40 * torch.rand(len(index), 2, generator=generator)
        size = 4 + 20 * torch.rand(len(index), 2, generator=generator)
        classes = torch.randint(0, 3, (len(index),), generator=generator)
        targets = Targets(index, classes, torch.cat((corner, corner + size), 1))
        return Batch(images, targets, tuple(range(len(objects))))

    @property
    def criterion(self) -> DetectionLoss:
        return DetectionLoss(LossConfig())


@dataclass
class NarrowDual(Narrow):
    """yolo26 with a sixteenth of the channels: two heads, a term and a weight each."""

    def model(self) -> Detector:
        torch.manual_seed(0)
        model = YOLO26("yolo26n", ["a", "b", "c"], depth=0.5, width=0.0625, widest=1024, c3k=False)
        return freeze_batch_norm(model.to(self.dtype).train())

    @property
    def criterion(self) -> DualDetectionLoss:
        return DualDetectionLoss(LossConfig(), progress=0.4)


@dataclass
class NarrowX(Narrow):
    """yolox with a sixteenth of the channels: how many anchors are positive follows from the predictions."""

    def model(self) -> Detector:
        torch.manual_seed(0)
        model = YOLOX("yolox_n", ["a", "b", "c"], depth=0.33, width=0.0625, depthwise=True)
        return freeze_batch_norm(model.to(self.dtype).train())

    @property
    def criterion(self) -> YOLOXLoss:
        return YOLOXLoss(LossConfig(), class_weights=(0.3, 1.0, 4.0), last=0.5, progress=0.6)


@dataclass
class NarrowHelped(Narrow):
    """yolov9 with few channels and its auxiliary layers: two terms that share the backbone.

    ``leading``: as the large sizes, whose auxiliary layers are a second backbone.
    """

    leading: bool = False

    def model(self) -> Detector:
        torch.manual_seed(0)
        size = LARGE_YOLOV9 if self.leading else SIZES["yolov9"]
        model = YOLOv9("yolov9n", ["a", "b", "c"], **size, auxiliary=True)
        return freeze_batch_norm(model.to(self.dtype).train())

    @property
    def criterion(self) -> AuxiliaryDetectionLoss:
        return AuxiliaryDetectionLoss(LossConfig())


@dataclass(frozen=True)
class Outcome:
    """A window after its end: ``gradient`` as the optimizer saw it (None where it took no step)."""

    gradient: Tensor | None
    sums: WindowSums
    update: Update
    model: nn.Module


def run_window(
    world: Toy | Narrow,
    micro_batches: Sequence[Batch],
    pieces: Pieces = OURS,
    *,
    provisional: float = 1.0,
    clip_norm: float = math.inf,
    precision: Precision | None = None,
    criterion: Callable[..., LossSum] | None = None,
) -> Outcome:
    """One window of a fresh model, from its first forward to its update; without clipping unless asked."""
    model = world.model()
    precision = precision or full_precision(world.dtype)
    optimizer = Probe(model)
    sums = pieces.accumulate(
        model,
        criterion or world.criterion,
        micro_batches,
        ranks=ALONE,
        precision=precision,
        provisional=provisional,
    )
    reach = model.term_parameters() if isinstance(model, Detector) else reach_of(model, world.term)
    update = pieces.apply(optimizer, sums, reach, precision, clip_norm)
    return Outcome(optimizer.seen[-1] if optimizer.seen else None, sums, update, model)


def gradient_by_hand(world: Toy | Narrow, batch: Batch) -> Tensor:
    """images * d(sum S)/dp / max(sum w, 1) of one batch, over all terms, straight from autograd: no piece of the trainer."""
    model = world.model()
    batch = batch.to("cpu", world.dtype)
    terms = world.criterion(model(batch.images), batch.targets).terms.values()
    mean = len(batch) * sum(term.total / term.weight.clamp(min=1.0).to(term.total.dtype) for term in terms)
    gradients = torch.autograd.grad(mean, [p for p in model.parameters() if p.requires_grad], allow_unused=True)
    return flat(gradients)


def cut(batch: Batch, sizes: Sequence[int]) -> list[Batch]:
    """Micro-batches of these sizes, in order."""
    assert sum(sizes) == len(batch)
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    return [batch.slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]
