"""Ctrl-C and SIGTERM: heard at any time, obeyed only where nothing is half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


INSISTING = 3  # signals after which nothing is waited for any more


class Stop(BaseException):
    """Leaves the open window; no ordinary handler catches it on the way."""


class Interrupt:
    """Listens for the signals while ``listening``; raises Stop inside ``may_stop``, at once or on entering.

    Args:
        alone: False for one of several ranks: it only notes what it ``heard``, and all stop together at their next meeting.
    """

    def __init__(self, *, alone: bool = True) -> None:
        self.alone = alone
        self.heard: str = ""
        self._count = 0
        self._open = False

    @contextmanager
    def listening(self) -> Iterator[Interrupt]:
        """Take over the signals; outside the main thread Python delivers none, so there is nothing to take over."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.signal(number, self._hear) for number in SIGNALS}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def may_stop(self) -> Iterator[None]:
        """A stretch of work that can be thrown away and done again."""
        self._open = self.alone
        try:
            if self.heard and self.alone:
                raise Stop
            yield
        finally:
            self._open = False

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.heard = signal.Signals(number).name
        self._count += 1
        if self._count >= INSISTING:
            raise KeyboardInterrupt
        if self._open:
            self._open = False
            raise Stop
