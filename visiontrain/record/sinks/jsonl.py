"""updates.jsonl: a row per window, applied or not."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from visiontrain.record.events import Event, WindowClosed
from visiontrain.record.files import plain


class UpdatesJsonl:
    """Appends a line when a window closes. The file is opened for each: nothing is held, nothing is lost by a kill."""

    name = "updates.jsonl"

    def __init__(self, folder: Path) -> None:
        self._path = folder / self.name

    def __call__(self, event: Event) -> None:
        """Write the line of a ``WindowClosed``."""
        if isinstance(event, WindowClosed):
            line = json.dumps(plain(update_row(event)), ensure_ascii=False, allow_nan=False)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


def update_row(event: WindowClosed) -> dict[str, Any]:
    """One window: totals of the run under the names used everywhere, what belongs to the window alone as ``window_*``."""
    own = asdict(event)
    window = {f"window_{key}": own.pop(key) for key in ("images", "targets", "micro_batches")}
    counters = own.pop("counters") | {"epoch": own.pop("epoch")}
    return {"epoch": counters.pop("epoch"), **counters, **window, **own}
