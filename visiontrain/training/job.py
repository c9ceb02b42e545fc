"""What the loop works with."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path

from visiontrain.batch import Batch
from visiontrain.config.schema import TrainConfig
from visiontrain.distributed import Ranks
from visiontrain.memory import Phases
from visiontrain.record.events import Event
from visiontrain.training.checkpoint import About, TrainState
from visiontrain.training.interrupt import Interrupt
from visiontrain.training.plan import Plan
from visiontrain.training.reduction import Reduction
from visiontrain.training.schedule import Horizon, Schedule
from visiontrain.training.window import Criterion


@dataclass(slots=True)
class Job:
    """What the loop works with; ``state`` changes, the rest stays.

    ``micro_batches`` yields those of all windows that are left, over the epochs, so that loading does not pause between
    them; ``evaluate()`` scores the averaged weights; ``show`` draws the first micro-batches.
    """

    config: TrainConfig
    plan: Plan
    schedule: Schedule
    horizon: Horizon
    ranks: Ranks
    reduction: Reduction
    criterion: Criterion
    state: TrainState
    micro_batches: Generator[Batch, None, None]
    evaluate: Callable[[], dict[str, float]]
    show: Callable[[Batch], None]
    record: Callable[[Event], None]
    interrupt: Interrupt
    about: About
    folder: Path
    phases: Phases
    saved_at: float = field(default_factory=time.monotonic)
    saved_updates: int = 0
    validated_at: float = field(default_factory=time.monotonic)
    clock: float = field(default_factory=time.monotonic)
    training_seconds: float = 0.0  # of the open epoch, in this process
    trained_images: int = 0
    unreadable: dict[str, None] = field(default_factory=dict)  # what is wrong with pictures, each once, in order

    @property
    def last(self) -> Path:
        return self.folder / "weights" / "last.pt"

    def tick(self) -> float:
        """Add the time since the last call to the run's seconds; returns the run's."""
        now = time.monotonic()
        self.state.seconds += now - self.clock
        self.clock = now
        return self.state.seconds
