"""What a person sees under the cell that trains: the plan, a table of epochs, and below it one bar that is used again and again."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence

from visiontrain.errors import said_in_python
from visiontrain.inline import BESIDE, Area, InlineBar, card, table
from visiontrain.place import in_notebook
from visiontrain.record.events import Curves, EpochEnded, Event, RunEnded
from visiontrain.record.sinks.console import Console
from visiontrain.record.sinks.table import Table

LATEST = 20  # epochs in the table, and the best one: after a thousand the page is as quick as after twenty


class Inline(Console):
    """The console of a notebook; what it leaves in the notebook's file is small however long the run is."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: deque[list[str]] = deque(maxlen=LATEST)
        self._best_row: list[str] = []
        self._under_plan, self._under_table = Area(), Area()

    def __call__(self, event: Event) -> None:
        """Show the event, if it is one to be shown."""
        super().__call__(event)
        if isinstance(event, Curves | RunEnded):
            self._under_table.show("")

    def _say(self, sentence: str) -> None:
        super()._say(said_in_python(sentence))

    def _say_plan(self, plan: Sequence[str]) -> None:
        Area().show(card(plan), "\n".join(plan))

    def _open(self, label: str, images: int, done: int) -> None:
        if self._table and not self._rows:  # so that it lies above the bar
            self._show(self._table)
        self._bar = InlineBar(self._under_table, desc=label, total=images, initial=done, unit=" img", bar_format=BESIDE)

    def _add_row(self, epochs: Table, event: EpochEnded, left: float) -> None:
        self._rows.append(epochs.cells(event, left))
        self._best_row = self._rows[-1] if event.best else self._best_row
        self._show(epochs)

    def _show(self, epochs: Table) -> None:
        above = [self._best_row] if self._best_row and self._best_row not in self._rows else []
        rows = [*above, *self._rows]
        best = [number for number, row in enumerate(rows) if row is self._best_row]
        full = f"The latest {LATEST} epochs and the best one; all are in metrics.csv." if above else ""
        self._under_plan.show(table(epochs.titles, rows, best, full))


def console() -> Console:
    """The one that suits the place: a cell's own where standard output goes there, else that of terminals and files."""
    return Inline() if in_notebook() and type(sys.stdout).__module__.startswith("ipykernel") else Console()
