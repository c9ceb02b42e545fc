"""A logger works in a thread of its own: one that is slow, or hangs, keeps no window waiting."""

from __future__ import annotations

from collections.abc import Callable
from queue import Full, Queue
from threading import Event as Flag
from threading import Thread

from visiontrain.record.events import EvaluationProgress, Event, MicroBatchDone

PATIENCE = 120.0  # seconds that a run waits for a logger when it starts, and again when it ends
BEHIND = 10_000  # events that a logger may be late
FOR_THE_BAR = (MicroBatchDone, EvaluationProgress)


class Beside:
    """A sink that hands events to a logger in another thread; what goes wrong there is raised here, at the next event.

    Args:
        name: of the logger.
        make: makes it, in that thread too; a ``close`` of what it makes is called at the end, also after a failure.
        patience: seconds that the first event and ``close`` wait for it.
        behind: events that it may be late.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Callable[[Event], None]],
        patience: float = PATIENCE,
        behind: int = BEHIND,
    ) -> None:
        self.name, self._make, self._patience = name, make, patience
        self._events: Queue[Event | None] = Queue(behind)
        self._error: BaseException | None = None
        self._settled = Flag()  # it took its first event, or failed
        self._thread = Thread(target=self._work, name=name, daemon=True)

    def __call__(self, event: Event) -> None:
        """Hand the event on.

        Raises:
            TimeoutError: the logger is too slow.
            BaseException: what it failed with.
        """
        if isinstance(event, FOR_THE_BAR):
            return
        self._hand(event)
        if not self._thread.ident:
            self._thread.start()
            if not self._settled.wait(self._patience):
                raise TimeoutError(f"not ready after {self._patience:g} s")
        self._tell()

    def close(self) -> None:
        """Let it finish.

        Raises:
            TimeoutError: it takes too long, and is left to itself.
            BaseException: what it failed with.
        """
        if self._thread.ident:
            self._hand(None)
            self._thread.join(self._patience)
            self._tell()
            if self._thread.is_alive():
                raise TimeoutError(f"not done after {self._patience:g} s")

    def _hand(self, event: Event | None) -> None:
        self._tell()
        try:
            self._events.put_nowait(event)
        except Full:
            raise TimeoutError(f"{self._events.maxsize} events behind") from None

    def _tell(self) -> None:
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            self._log()
        except SystemExit as error:  # some libraries take themselves for the program
            self._error = RuntimeError(f"it wanted to end the program ({error})")
        except BaseException as error:  # raised in the thread that trains
            self._error = error
        self._settled.set()

    def _log(self) -> None:
        logger = self._make()
        try:
            while (event := self._events.get()) is not None:
                logger(event)
                self._settled.set()
        finally:
            if (close := getattr(logger, "close", None)) is not None:
                close()
