"""What is known of a run before its first window."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from visiontrain.config.schema import TrainConfig
from visiontrain.data.cache import Cache
from visiontrain.data.dataset import TrainSet
from visiontrain.data.index import Index
from visiontrain.data.loader import EvaluationLoader
from visiontrain.data.pixels import KEPT
from visiontrain.distributed import Ranks, choose_device
from visiontrain.errors import ConfigError
from visiontrain.place import Place
from visiontrain.training.autobatch import BatchChoice
from visiontrain.training.optimizer import Choice
from visiontrain.training.plan import Plan
from visiontrain.training.precision import Precision
from visiontrain.training.resume import Resumed
from visiontrain.training.statistics import AS_IT_IS, BatchNormPolicy


def device_of(config: TrainConfig, here: Place) -> torch.device:
    """The device of this rank.

    Raises:
        ConfigError: it is not there, or cannot do what the settings ask of it.
    """
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

    @property
    def training_set(self) -> TrainSet:
        """The samples of the run."""
        config, makers = self.config, max(self.workers, 1) * self.ranks.place.local_size
        return TrainSet(
            self.train,
            config.imgsz,
            config.augment,
            seed=config.seed,
            epochs=self.plan.epochs,
            kept=KEPT // makers,
            cache=self.cache,
        )

    @property
    def deterministic(self) -> bool:
        return is_deterministic(self.config, self.ranks)


def is_deterministic(config: TrainConfig, ranks: Ranks) -> bool:
    """As set; by default on the CPU, where it costs nothing."""
    return ranks.device.type == "cpu" if config.deterministic is None else config.deterministic
