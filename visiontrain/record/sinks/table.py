"""The table of epochs: aligned, as wide as there is room, a mark where the epoch is the best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from visiontrain.record.events import EpochEnded

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
        self.epochs, self._colours, self._lines = epochs, colours, 0
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
        shown = [self._paint(header, "1")] if self._lines % HEADER_EVERY == 0 else []
        self._lines += 1
        return [*shown, self._paint(row + " *", "32") if event.best else row]

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colours else text


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


def gigabytes(count: int) -> str:
    """Bytes for people, in GB of 10^9."""
    return f"{count / 1e9:.2f} GB"


def clock(seconds: float) -> str:
    """``1:02:03``, ``2:03``."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
