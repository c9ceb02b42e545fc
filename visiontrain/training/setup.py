"""What is known of a run before its first window."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from visiontrain.config.schema import TrainConfig
from visiontrain.data.cache import Cache
from visiontrain.data.dataset import TrainSet
from visiontrain.data.index import Index
from visiontrain.data.loader import EvaluationLoader
from visiontrain.data.pixels import KEPT
from visiontrain.distributed import Ranks
from visiontrain.training.autobatch import BatchChoice
from visiontrain.training.optimizer import Choice
from visiontrain.training.plan import Plan
from visiontrain.training.precision import Precision
from visiontrain.training.resume import Resumed
from visiontrain.training.statistics import AS_IT_IS, BatchNormPolicy


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
