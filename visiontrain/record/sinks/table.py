"""The table of epochs: aligned, as wide as there is room, a mark where the epoch is the best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from visiontrain.record.amounts import clock, gigabytes
from visiontrain.record.events import EpochEnded
from visiontrain.terminal import Look

HEADER_EVERY = 20


@dataclass(frozen=True, slots=True)
class Column:
    """``rank`` 0 always stays; the highest ranks go first where the terminal is narrow."""

    title: str
    width: int
    rank: int
    text: Callable[[EpochEnded, float], str]


class Table:
    """Lines for epochs, the header among them now and then."""

    def __init__(self, part_names: tuple[str, ...], epochs: int, width: int, colours: bool) -> None:
        self.epochs, self._look, self._lines = epochs, Look(colours), 0
        self._columns = _fitting(_columns(part_names, epochs), width - 2)

    @property
    def titles(self) -> list[str]:
        """Of the columns there is room for."""
        return [column.title for column in self._columns]

    def cells(self, event: EpochEnded, left: float) -> list[str]:
        """The row of one epoch, a text under each title."""
        return [column.text(event, left) for column in self._columns]

    def lines(self, event: EpochEnded, left: float) -> list[str]:
        """The line of one epoch, with the header above it where it is time. ``left``: seconds to the end of the run."""
        row = "  ".join(column.text(event, left).rjust(column.width) for column in self._columns)
        header = "  ".join(column.title.rjust(column.width) for column in self._columns)
        shown = [self._look.paint(header, "bold")] if self._lines % HEADER_EVERY == 0 else []
        self._lines += 1
        return [*shown, self._look.paint(row + " *", "green") if event.best else row]


def _columns(part_names: tuple[str, ...], epochs: int) -> list[Column]:
    digits = len(str(epochs))
    return [
        Column("epoch", max(2 * digits + 1, 5), 0, lambda e, left: f"{e.epoch}/{epochs}"),
        *(Column(short(name), 6, 1, _loss(name)) for name in part_names),
        Column("P", 5, 3, _metric("precision")),
        Column("R", 5, 3, _metric("recall")),
        Column("AP50", 5, 0, _metric("ap50")),
        Column("AP", 5, 0, _metric("ap")),
        Column("lr", 8, 4, lambda e, left: f"{e.lr:.2e}"),
        Column("images/s", 8, 5, lambda e, left: f"{e.images_per_second:.1f}"),
        Column("memory", 7, 6, lambda e, left: gigabytes(e.memory)),
        Column("time", 7, 2, lambda e, left: clock(e.seconds)),
        Column("left", 7, 2, lambda e, left: clock(left)),
    ]


def _fitting(columns: list[Column], width: int) -> list[Column]:
    def needed(kept: list[Column]) -> int:
        return sum(column.width + 2 for column in kept) - 2

    while needed(columns) > width and (worst := max(column.rank for column in columns)) > 0:
        columns = [column for column in columns if column.rank < worst]
    return columns


def _loss(name: str) -> Callable[[EpochEnded, float], str]:
    return lambda event, left: f"{event.losses[name]:.4g}" if name in event.losses else "-"


def _metric(key: str) -> Callable[[EpochEnded, float], str]:
    return lambda event, left: f"{event.metrics[key]:.3f}" if key in event.metrics else "-"


def short(part: str) -> str:
    """``box_loss`` is shown as ``box``."""
    return part.removesuffix("_loss")
