"""What is known of a run before its first window."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from visiontrain.batch import Batch, Targets
from visiontrain.config.image_size import ImageSize
from visiontrain.config.schema import TrainConfig
from visiontrain.data.bad import refuse_mostly_bad
from visiontrain.data.balance import class_weights
from visiontrain.data.cache import Cache
from visiontrain.data.dataset import TrainSet
from visiontrain.data.description import Description
from visiontrain.data.index import Index
from visiontrain.data.loader import EvaluationLoader
from visiontrain.data.pixels import room
from visiontrain.data.select import select
from visiontrain.distributed import Ranks, choose_device
from visiontrain.errors import ConfigError
from visiontrain.losses import LOSSES
from visiontrain.models.detector import Detector
from visiontrain.nn.recompute import untouched_statistics
from visiontrain.place import Place
from visiontrain.training.autobatch import BatchChoice
from visiontrain.training.optimizer import Choice
from visiontrain.training.plan import Plan
from visiontrain.training.precision import Precision
from visiontrain.training.resume import Resumed
from visiontrain.training.statistics import AS_IT_IS, BatchNormPolicy
from visiontrain.training.window import Criterion, check_terms


def device_of(config: TrainConfig, here: Place) -> torch.device:
    """The device of this rank.

    Raises:
        ConfigError: it is not there, or cannot do what the settings ask of it.
    """
    if config.augment.augment_device == "gpu" and config.augment.albumentations.own:
        raise ConfigError(
            "augment_device=gpu: albumentations works on finished pictures in the loader processes, and there are none then; "
            "leave out one of the two"
        )
    device = choose_device(config.device, here)
    if config.augment.augment_device == "gpu" and device.type != "cuda":
        raise ConfigError(
            f"augment_device=gpu: samples are painted on the GPU that trains, and this run is on {device.type}; train on a "
            "GPU (device=0), or leave augment_device out: with cpu the loader processes paint them"
        )
    return device


@dataclass(frozen=True, slots=True)
class Setup:
    """What is known before the first window."""

    config: TrainConfig
    folder: Path
    ranks: Ranks
    train: Index
    val: Index
    val_loader: EvaluationLoader
    plan: Plan
    optimizer: Choice
    precision: Precision
    resumed: Resumed | None
    workers: int
    statistics: BatchNormPolicy = AS_IT_IS
    auto: BatchChoice | None = None
    cache: Cache | None = None

    def samples(self, imgsz: ImageSize | None = None) -> TrainSet:
        """The training samples of the run; ``imgsz`` is another size to have them at."""
        config = self.config
        return TrainSet(
            self.train,
            imgsz or config.imgsz,
            config.augment,
            config.seed,
            self.plan.epochs,
            config.sampling,
            self.plan.images_per_update,
            room(imgsz or config.imgsz, max(self.workers, 1), self.plan.ranks),
            None if imgsz else self.cache,
        )

    @property
    def plan_kept(self) -> dict[str, Any]:
        """The plan as a checkpoint keeps it."""
        resumed = self.resumed
        return {**self.plan.facts(), "updates_at_start": resumed.updates_at_start if resumed else self.plan.updates}

    @property
    def deterministic(self) -> bool:
        return is_deterministic(self.config, self.ranks)


def chosen(config: TrainConfig, index: Index, description: Description) -> Index:
    """What of a split the settings leave; fraction is of the training pictures alone.

    Raises:
        DataError: more pictures are bad than can be used.
    """
    refuse_mostly_bad(index.findings, len(index), f"{description.file}, {index.split}")
    sampling = config.sampling
    fraction = sampling.fraction if index.split == "train" else 1.0
    return select(index, description.root, fraction, sampling.classes, sampling.single_cls)


def criterion_of(config: TrainConfig, index: Index, loss: str) -> Criterion:
    """The loss that a model family names, with the gains and class weights of the settings.

    Args:
        index: what is trained on; shares of classes are counted there.
    """
    weights = class_weights(index, config.sampling.class_weights)
    criterion = LOSSES[loss](config.loss, class_weights=weights) if weights else LOSSES[loss](config.loss)
    closing = getattr(criterion, "closing", None)  # of a loss that changes where mosaic ends
    return closing(min(config.augment.close_mosaic / config.epochs, 1.0)) if closing else criterion


def prove_terms(model: Detector, criterion: Criterion, ranks: Ranks) -> None:
    """Where a loss has several terms: each reaches only the parameters that the detector says. Every rank calls this.

    Args:
        model: in training mode, on its device.

    Raises:
        ConfigError, TypeError: as ``check_terms``.
    """
    if len(model.loss_terms) > 1:
        reach, dtype = model.term_parameters(), next(model.parameters()).dtype
        batch = _two_pictures(2 * model.stride).to(ranks.device, dtype)
        with untouched_statistics(model):
            ranks.meet(lambda: check_terms(model, criterion, batch, reach))


def _two_pictures(side: int) -> Batch:
    """Noise with an object in the middle of each; ``side`` in pixels."""
    pixels = torch.randint(0, 256, (2, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    box = torch.tensor([side / 4, side / 4, 3 * side / 4, 3 * side / 4])
    return Batch(pixels, Targets(torch.arange(2), torch.zeros(2, dtype=torch.int64), box.repeat(2, 1)), (0, 1))


def is_deterministic(config: TrainConfig, ranks: Ranks) -> bool:
    """As set; by default on the CPU, where it costs nothing."""
    return ranks.device.type == "cpu" if config.deterministic is None else config.deterministic
