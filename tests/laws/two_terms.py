"""A model with an auxiliary head on the trunk that its main head has, and a detector with one: terms that share parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from laws.toys import MIXED, Probe, Toy, flat, full_precision
from torch import Tensor, nn

from visiontrain.batch import Batch, Targets
from visiontrain.losses import DetectionLoss, LossSum, Term
from visiontrain.models.yolov8 import YOLOv8
from visiontrain.nn.head import Detect, HeadOutput


class Helped(nn.Module):
    """A trunk with what is given inside it, and two heads that both teach it."""

    def __init__(self, inside: Sequence[nn.Module] = ()) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Flatten(), nn.Linear(12, 16), *inside, nn.SiLU())
        self.main, self.aux = nn.Linear(16, 4), nn.Linear(16, 2)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.trunk(images)
        return self.main(features), self.aux(features)

    def reach(self) -> dict[str, list[nn.Parameter]]:
        trunk = list(self.trunk.parameters())
        return {"main": [*trunk, *self.main.parameters()], "aux": [*trunk, *self.aux.parameters()]}


def helped_loss(outputs: tuple[Tensor, Tensor], targets: Targets) -> LossSum:
    """Both weights follow from how well the predictions fit, as those of task-aligned assignment do."""
    main, aux = outputs
    error = (main[targets.image] - targets.boxes).square().sum(-1)
    score = 1 / (1 + error.detach())
    other = (aux[targets.image] - targets.boxes[:, :2]).abs().sum(-1)
    fits = 3 * torch.exp(-other.detach())
    return LossSum(
        {
            "main": Term((score * error).sum() + main.square().sum() / 8, score.sum()),
            "aux": Term((fits * other).sum() + aux.square().sum(), fits.sum()),
        },
        {"main": {"box_loss": error.detach().sum()}, "aux": {"aux_loss": other.detach().sum()}},
    )


@dataclass
class World:
    """The toy's pictures for the helped model."""

    dtype: torch.dtype = torch.float64
    inside: Callable[[], Sequence[nn.Module]] = tuple

    def model(self) -> Helped:
        torch.manual_seed(0)
        return Helped(self.inside()).to(self.dtype)

    def batch(self, objects: Sequence[int] = MIXED) -> Batch:
        return Toy(self.dtype).batch(objects)


def by_hand(world: World, batch: Batch) -> Tensor:
    """images * sum over terms of d(S)/dp / max(w, 1) of one batch, straight from autograd."""
    model = world.model()
    terms = helped_loss(model(batch.images), batch.targets).terms.values()
    mean = len(batch) * sum(t.total / t.weight.clamp(min=1) for t in terms)
    return flat(torch.autograd.grad(mean, list(model.parameters())))


def gradient_of(world: World, micro_batches, pieces, precision=None, criterion=helped_loss, **named):
    """What the optimizer saw of a window of a fresh model (in the order of its parameters), its sums and the model."""
    model = world.model()
    optimizer, precision = Probe(model), precision or full_precision(world.dtype)
    sums = pieces.accumulate(model, criterion, micro_batches, precision=precision, **named)
    update = pieces.apply(optimizer, sums, model.reach(), precision, 1e9)
    return (optimizer.seen[-1] if update.applied else None), sums, model


class HelpedHead(Detect):
    """In training also (B, classes): how many objects of each class a picture has."""

    def __init__(self, nc: int, channels: Sequence[int]) -> None:
        super().__init__(nc, channels)
        self.aux = nn.Linear(channels[-1], nc)

    def forward(self, features):
        out = super().forward(features)
        return (out, self.aux(features[-1].mean((2, 3)))) if isinstance(out, HeadOutput) else out


class HelpedDetector(YOLOv8):
    """yolov8 whose backbone and neck also learn from the counts."""

    family = "helped"
    loss = "helped"
    loss_terms = ("detect", "count")

    def __init__(self, name, class_names, **size) -> None:
        super().__init__(name, class_names, **size)
        inputs = [branch[0].conv.in_channels for branch in self.model["22"].cv2]
        self.model["22"] = HelpedHead(len(class_names), inputs)

    def term_parameters(self):
        head = self.model["22"]
        of_detect = {id(p) for branch in (head.cv2, head.cv3) for p in branch.parameters()}
        of_count = {id(p) for p in head.aux.parameters()}
        trainable = [p for p in self.parameters() if p.requires_grad]
        return {
            "detect": [p for p in trainable if id(p) not in of_count],
            "count": [p for p in trainable if id(p) not in of_detect],
        }


class HelpedLoss(DetectionLoss):
    """The detection loss, and a term for the counts; what fits weighs more, so the weight depends on predictions."""

    part_names = (*DetectionLoss.part_names, "count_loss")

    def __call__(self, output, targets):
        head, counts = output
        loss = super().__call__(head, targets)
        truth = torch.zeros_like(counts)
        truth.index_put_((targets.image, targets.classes), truth.new_ones(len(targets)), accumulate=True)
        error = (counts - truth).square()
        fits = 1 / (1 + error.detach())
        total = (fits * error).sum()
        term = Term(total, fits.sum(dtype=torch.float64))
        return LossSum({**loss.terms, "count": term}, {**loss.parts, "count": {"count_loss": total.detach()}})
