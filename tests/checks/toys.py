"""A detector of four layers and a loss whose weight depends on the targets, as target scores do: quick to watch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from visiontrain.batch import Batch, Targets
from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.distributed import ALONE, Ranks
from visiontrain.losses import LossSum, Term
from visiontrain.models.detector import Detector
from visiontrain.nn.norm import swap_norms
from visiontrain.training.checkpoint import TrainState
from visiontrain.training.ema import EMA
from visiontrain.training.interrupt import Interrupt
from visiontrain.training.job import Job
from visiontrain.training.optimizer import build_optimizer
from visiontrain.training.run import arrange, job_of
from visiontrain.training.setup import Setup

FEW = (3, 0, 5, 1, 0, 2, 40, 1)  # objects of 8 images


class ToyDetector(Detector):
    """(B, 3, H, W) -> (B, 4): what it says of a whole picture."""

    def __init__(self, norm: bool = True) -> None:
        super().__init__("toy", ["sun", "sea"])
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3, 2, bias=False)
        self.bn = nn.BatchNorm2d(4) if norm else nn.Identity()
        self.head = nn.Linear(4 * 9, 4)

    def forward(self, images: Tensor) -> Tensor:
        features = nn.functional.silu(self.bn(self.conv(images)))
        return self.head(nn.functional.adaptive_avg_pool2d(features, 3).flatten(1))


def toy_loss(outputs: Tensor, targets: Targets) -> LossSum:
    """Squared distance to the boxes; a large box weighs more."""
    boxes = targets.boxes.to(outputs.dtype) / 8
    weights = boxes[:, 2:].sum(-1)
    error = (outputs[targets.image] - boxes).square().sum(-1)
    total = (weights * error).sum() + outputs.square().sum()
    return LossSum({"detect": Term(total, weights.sum())}, {"detect": {"box_loss": total.detach()}})


def pictures() -> Batch:
    """Eight of 32 x 32, with very different numbers of objects."""
    generator = torch.Generator().manual_seed(2)
    images = torch.randint(0, 256, (len(FEW), 3, 32, 32), generator=generator, dtype=torch.uint8)
    index = torch.repeat_interleave(torch.arange(len(FEW)), torch.tensor(FEW))
    corner = 20 * torch.rand(len(index), 2, generator=generator)
    boxes = torch.cat((corner, corner + 2 + 10 * torch.rand(len(index), 2, generator=generator)), 1)
    return Batch(images, Targets(index, torch.zeros_like(index), boxes), tuple(range(len(FEW))))


def about_to_begin(data: str, ranks: Ranks = ALONE, **settings: object) -> tuple[Setup, Job]:
    """Setup and job of a run with this detector and loss: windows of 2 x 2 images unless set otherwise."""
    values = {"data": data, "imgsz": 32, "batch": 2, "nbs": 4, "epochs": 2, "warmup_epochs": 0, "workers": 0}
    config = build(TrainConfig, {**values, "device": "cpu", "optimizer": "SGD", **settings})
    description = load_description(config.data)
    indices = (read_split(description, split) for split in ("train", "val"))
    setup = arrange(config, ranks, *indices, None)
    model = ToyDetector().train()
    swap_norms(model, setup.plan.normalisation.norm)
    optimizer = build_optimizer(model, setup.optimizer.config, setup.plan.weight_decay_used)
    state = TrainState(model, EMA(model), optimizer, setup.precision)
    job = job_of(setup, state, lambda event: None, Interrupt())
    job.criterion = toy_loss
    return setup, job
