"""The ledger of an epoch: every position applied once, skipped with a reason, or left out by policy. Numbers alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from visiontrain.errors import TrainingStopped

APPLIED = "applied"
EARLIER = "closed before a ledger was kept"


@dataclass(slots=True)
class Ledger:
    """What became of each position.

    Positions close in order, so the open epoch is a list of stretches [start, stop, fate], equal neighbours joined, and
    a position that comes twice or not at all is seen at once. ``closed`` counts those of closed epochs by fate.
    """

    stretches: list[tuple[int, int, str]] = field(default_factory=list)
    closed: Counter[str] = field(default_factory=Counter)

    @property
    def position(self) -> int:
        """The first position of the open epoch that nothing has become of yet."""
        return self.stretches[-1][1] if self.stretches else 0

    def close(self, positions: Sequence[int], fate: str) -> None:
        """These positions, in order, have come to an end.

        Raises:
            TrainingStopped: one of them was closed before, or one before them was not.
        """
        for expected, position in enumerate(positions, self.position):
            if position < expected:
                raise TrainingStopped(f"position {position} was dealt twice in one epoch; nothing of it was saved")
            if position > expected:
                raise TrainingStopped(f"position {expected} was passed over: {position} came before it")
        start, stop = self.position, self.position + len(positions)
        if self.stretches and self.stretches[-1][2] == fate:
            start = self.stretches.pop()[0]
        if stop > start:
            self.stretches.append((start, stop, fate))

    def close_epoch(self, images: int) -> None:
        """Check that something became of every position, and begin the next epoch.

        Args:
            images: positions of the epoch.

        Raises:
            TrainingStopped: some are missing.
        """
        if self.position != images:
            raise TrainingStopped(f"positions {self.position} to {images - 1} of the epoch were never dealt")
        for start, stop, fate in self.stretches:
            self.closed[fate] += stop - start
        self.stretches = []

    def content(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return {"open": [list(stretch) for stretch in self.stretches], "closed": dict(self.closed)}

    @classmethod
    def of(cls, content: dict[str, Any]) -> Ledger:
        """The ledger that a checkpoint holds."""
        return cls([(start, stop, fate) for start, stop, fate in content["open"]], Counter(content["closed"]))

    @classmethod
    def of_position(cls, position: int, images_seen: int) -> Ledger:
        """For a checkpoint without one, which knows how far it came and no more."""
        return cls(
            [(0, position, EARLIER)] if position else [],
            Counter({EARLIER: images_seen - position} if images_seen > position else {}),
        )
