"""What a person sees while it runs: the plan, a bar per epoch, a table line per epoch; plain lines without a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from visiontrain.record.events import (
    Curves,
    EpochEnded,
    EpochStarted,
    EvaluationProgress,
    EvaluationStarted,
    Event,
    MicroBatchDone,
    Notice,
    RunEnded,
    RunStarted,
    Validated,
    WindowClosed,
)
from visiontrain.record.sinks.table import Table, clock, gigabytes, short
from visiontrain.terminal import look_of

BAR = "{desc} {percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt}, {rate_fmt}{postfix}, {remaining} left"
NARROW = "{desc} {percentage:3.0f}%  {n_fmt}/{total_fmt}, {rate_fmt}{postfix}, {remaining} left"
NARROW_BELOW = 100  # columns; there the numbers need the room of the bar
PLAIN_EVERY = 30.0  # seconds between plain lines
OF_A_LOG = 120  # columns of the table where there is no terminal


class Console:
    """Prints to ``stream``: bars and colours on a terminal, else a line now and then.

    Args:
        stream: standard output where None; looked up at each use, so that a notebook or a test may replace it.
        now: seconds, for the plain lines and the time left.
    """

    name = "console"

    def __init__(self, stream: TextIO | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._given, self._now = stream, now
        self._bar: Any = None
        self._table: Table | None = None
        self._epoch = Progress(EpochStarted(0, 0, 0), 0.0)
        self._began, self._first_epoch = now(), 0
        self._best = ""
        self._folder = ""

    @property
    def _stream(self) -> TextIO:
        return self._given if self._given is not None else sys.stdout

    def __call__(self, event: Event) -> None:
        """Show the event, if it is one to be shown."""
        handle = _HANDLERS.get(type(event))
        if handle is not None:
            handle(self, event)

    def close(self) -> None:
        """Remove an open bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _say(self, sentence: str) -> None:
        """A sentence, broken between words where the terminal ends."""
        self._print("\n".join(look_of(self._stream).fold(sentence)))

    def _say_plan(self, plan: Sequence[str]) -> None:
        for sentence in plan:
            self._say(sentence)

    def _add_row(self, table: Table, event: EpochEnded, left: float) -> None:
        for line in table.lines(event, left):
            self._print(line)

    def _print(self, text: str) -> None:
        if self._bar is not None:
            self._bar.clear()
        self._stream.write(text + "\n")
        self._stream.flush()
        if self._bar is not None:
            self._bar.refresh()

    def _start(self, event: RunStarted) -> None:
        self._say_plan(event.plan)
        self._folder = str(event.folder)
        self._began, self._first_epoch = self._now(), event.resumed_epoch
        self._table = Table(event.part_names, event.epochs, _width(self._stream), look_of(self._stream).colours)

    def _start_epoch(self, event: EpochStarted) -> None:
        self.close()
        self._epoch = Progress(event, self._now())
        self._open(f"epoch {event.epoch}/{event.epochs}", event.images, event.images_done)

    def _micro_batch(self, event: MicroBatchDone) -> None:
        if self._bar is not None:
            self._bar.update(event.images)

    def _window(self, event: WindowClosed) -> None:
        self._epoch.add(event)
        if self._bar is not None:
            # Set, not added: a window that ran twice (overflow) has told of its images twice.
            self._bar.n = self._epoch.images
            self._bar.set_postfix_str(self._epoch.parts(event.memory, _width(self._stream)))
        elif not self._stream.isatty() and self._now() - self._epoch.told >= PLAIN_EVERY:
            self._epoch.told = self._now()
            self._print(self._epoch.line(event.memory, self._now()))

    def _evaluate(self, event: EvaluationStarted) -> None:
        self.close()
        self._open("validation", event.images, 0)

    def _evaluated(self, event: EvaluationProgress) -> None:
        if self._bar is not None:
            self._bar.update(event.images)

    def _scored(self, event: Curves) -> None:
        self.close()

    def _end_epoch(self, event: EpochEnded) -> None:
        self.close()
        self._remember(event)
        if self._table is None:
            return
        done = event.epoch - self._first_epoch
        left = (self._now() - self._began) / max(done, 1) * (self._table.epochs - event.epoch)
        self._add_row(self._table, event, left)

    def _validated(self, event: Validated) -> None:
        self.close()
        self._remember(event)
        self._epoch.wait(event.took)
        at = f"epoch {event.epoch}, update {event.counters.updates_applied}"
        self._print(f"{at}: AP {event.metrics['ap']:.3f}, AP50 {event.metrics['ap50']:.3f}{' *' if event.best else ''}")
        self._open(f"epoch {event.epoch}/{self._epoch.event.epochs}", self._epoch.event.images, self._epoch.images)

    def _remember(self, event: EpochEnded | Validated) -> None:
        if event.best:
            self._best = f"best AP {event.metrics.get('ap', 0):.3f} (AP50 {event.metrics.get('ap50', 0):.3f})"
            self._best += f" in epoch {event.epoch}"

    def _notice(self, event: Notice) -> None:
        if event.level == "warning":
            self._print(look_of(self._stream).led("warning: ", "yellow", event.text))
        else:
            self._say(event.text)

    def _end(self, event: RunEnded) -> None:
        self.close()
        said = f"{event.outcome.capitalize()} after {clock(self._now() - self._began)}"
        said += f" ({event.reason})" if event.reason else ""
        said += f"; {self._best}" if self._best else ""
        report = Path(self._folder, "report.html")
        where = f"; open {report}" if self._folder and report.is_file() else f"; see {self._folder}"
        self._say(said + (where if self._folder else ""))

    def _open(self, label: str, images: int, done: int) -> None:
        if not self._stream.isatty():
            return
        options: dict[str, Any] = {
            "total": images,
            "initial": done,
            "desc": label,
            "unit": " img",
            "leave": False,
            "mininterval": 0.2,
        }
        options["bar_format"] = BAR if _width(self._stream) >= NARROW_BELOW else NARROW
        self._bar = tqdm(file=self._stream, dynamic_ncols=True, **options)


class Progress:
    """The open epoch: images so far and losses weighted by images."""

    def __init__(self, event: EpochStarted, now: float) -> None:
        self.event, self.images, self.told, self._began = event, event.images_done, now, now
        self._sums: dict[str, float] = {}
        self._applied = 0

    def add(self, event: WindowClosed) -> None:
        """Count a window that closed; losses only where it was applied."""
        self.images += event.images
        if event.applied:
            self._applied += event.images
            for name, value in event.losses.items():
                self._sums[name] = self._sums.get(name, 0.0) + value * event.images

    def wait(self, seconds: float) -> None:
        """Leave out time that was not spent on images."""
        self._began += seconds

    def losses(self) -> str:
        """For example ``box 1.42 cls 2.01 dfl 1.10``."""
        return " ".join(f"{short(name)} {total / max(self._applied, 1):.3g}" for name, total in self._sums.items())

    def parts(self, memory: int, width: int) -> str:
        """What stands behind the bar, as far as there is room: losses, then memory."""
        around = len(f"epoch {self.event.epoch}/{self.event.epochs} 100%  {self.images}/{self.event.images}")
        room, text = width - around - len(", 1234.56 img/s, 00:00 left, ") - (12 if width >= NARROW_BELOW else 0), ""
        for part in (self.losses(), gigabytes(memory)):
            text += f"{', ' if text else ''}{part}" if len(text) + len(part) + 2 <= room else ""
        return text

    def line(self, memory: int, now: float) -> str:
        """The same as a sentence, for logs."""
        event, fresh = self.event, self.images - self.event.images_done
        rate = fresh / max(now - self._began, 1e-9)
        left = clock((event.images - self.images) / max(rate, 1e-9))
        start = f"epoch {event.epoch}/{event.epochs}: {self.images}/{event.images} images, {rate:.1f} images/s"
        return f"{start}, {self.losses()}, {gigabytes(memory)}, {left} left"


def _width(stream: TextIO) -> int:
    return look_of(stream).columns or OF_A_LOG


_HANDLERS: dict[type, Callable[[Console, Any], None]] = {
    RunStarted: Console._start,
    EpochStarted: Console._start_epoch,
    MicroBatchDone: Console._micro_batch,
    WindowClosed: Console._window,
    EvaluationStarted: Console._evaluate,
    EvaluationProgress: Console._evaluated,
    Curves: Console._scored,
    EpochEnded: Console._end_epoch,
    Validated: Console._validated,
    Notice: Console._notice,
    RunEnded: Console._end,
}
