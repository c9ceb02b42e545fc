"""Between the ranks of a run and the process that started them: events, and how each rank ended, come home."""

from __future__ import annotations

import json
import os
import secrets
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from threading import Thread
from typing import TYPE_CHECKING, Any

from visiontrain.errors import Interrupted, VisionTrainError

if TYPE_CHECKING:  # it brings numpy, and a mistake in the settings is answered without
    from visiontrain.record.events import Event

HOME = "VISIONTRAIN_HOME"  # the environment variable that names home: address, key, which launch


@dataclass(frozen=True, slots=True)
class Came:
    """A rank is there; ``attempt`` counts from 0."""

    rank: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A rank is about to end: with a result, with an error for people, or with the traceback of another."""

    rank: int
    attempt: int
    result: Any = None
    error: VisionTrainError | None = None
    trace: str = ""


@dataclass(eq=False)
class Home:
    """Listens to the ranks of one launch; ``take`` gets what they send, from threads of its own.

    ``environment`` is what the ranks find it by. The key in it keeps strangers out.
    """

    launch: str
    take: Callable[[Came | Ended | Event], None]
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._key, self._open = secrets.token_bytes(32), True
        self._listener = Listener(("127.0.0.1", 0), backlog=64, authkey=self._key)
        self.environment = {HOME: json.dumps([*self._listener.address, self._key.hex(), self.launch])}
        self._doorman = Thread(target=self._let_in, name="home", daemon=True)
        self._doorman.start()

    def __enter__(self) -> Home:
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        Client(self._listener.address, authkey=self._key).close()  # closing alone wakes nobody who waits for a knock
        self._doorman.join()
        self._listener.close()

    def _let_in(self) -> None:
        while self._open:
            with suppress(OSError, EOFError, AuthenticationError):  # a stranger, or one who left at the door
                guest = self._listener.accept()
                Thread(target=self._listen, args=(guest,), name="home", daemon=True).start()

    def _listen(self, guest: Connection) -> None:
        with guest, suppress(EOFError, OSError):
            while True:
                message = guest.recv()
                self.take(message)
                if isinstance(message, Ended):
                    guest.send("heard")


class Wire:
    """The way home of one rank; as a sink it sends every event there."""

    name = "the process that started the ranks"

    def __init__(self, address: tuple[str, int], key: bytes) -> None:
        self._me = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        self._connection = Client(address, authkey=key)
        self._connection.send(Came(*self._me))

    def __call__(self, event: Event) -> None:
        """Send it."""
        self._connection.send(event)

    def end(self, result: Any = None, error: VisionTrainError | None = None, trace: str = "") -> bool:
        """Tell how this rank ends, and wait until it was heard: was it?"""
        try:
            self._connection.send(Ended(*self._me, result, error, trace))
            self._connection.recv()
        except (OSError, EOFError):
            return False
        return True


@cache
def home() -> Wire | None:
    """The way home of this process, if visiontrain started it as a rank and home is still there."""
    if HOME not in os.environ:
        return None
    host, port, key, launch = json.loads(os.environ[HOME])
    if os.environ.get("TORCHELASTIC_RUN_ID") != launch:  # a process that a callback started, say
        return None
    with suppress(OSError, EOFError):
        return Wire((host, port), bytes.fromhex(key))
    return None


@contextmanager
def told_home() -> Iterator[Callable[[Any], None]]:
    """What comes of this rank is told at home and not here: rank 0's result, or the error that it ends with.

    Raises:
        SystemExit: in place of an error that was heard at home, with its exit code.
    """
    try:
        yield _tell
    except BaseException as error:  # whatever it is, the process ends with it
        wire = home()
        told = Interrupted("interrupted at once, as asked for") if isinstance(error, KeyboardInterrupt) else error
        known = told if isinstance(told, VisionTrainError) else None
        if wire is None or not wire.end(error=known, trace="" if known else traceback.format_exc()):
            raise
        raise SystemExit(known.exit_code if known else VisionTrainError.exit_code) from error


def _tell(result: Any) -> None:
    wire = home()
    if wire is not None and os.environ["RANK"] == "0":
        wire.end(result)
