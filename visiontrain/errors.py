"""What can go wrong for a person, each with the exit code that scripts see."""

from __future__ import annotations

import re
import traceback


class VisionTrainError(Exception):
    """Something a person can put right; the message says what, where and how."""

    exit_code = 1
    told_by: int | None = None  # the rank that tells it, where several have it

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of pages of frames."""
        notes = getattr(self, "__notes__", [])
        return [f"\x1b[31m{type(self).__name__}\x1b[0m: {said_in_python(str(self))}", *notes]


class ConfigError(VisionTrainError, ValueError):
    """The words or settings are wrong."""

    exit_code = 2


class DataError(VisionTrainError, ValueError):
    """The pictures, labels or their description are wrong."""

    exit_code = 3


class WeightsError(VisionTrainError, ValueError):
    """A checkpoint cannot be found, read or used here."""

    exit_code = 4


class ExportError(VisionTrainError, RuntimeError):
    """An exported file could not be made, or does not find what its checkpoint finds."""


class OutOfMemory(VisionTrainError, RuntimeError):
    """The work does not fit, and nothing smaller is left to try; ``largest`` are the images of the failed micro-batch."""

    exit_code = 5

    def __init__(self, message: str, largest: int = 0) -> None:
        super().__init__(message, largest)
        self.largest = largest

    def __str__(self) -> str:
        return str(self.args[0])


class TrainingStopped(VisionTrainError, RuntimeError):
    """Training cannot go on (ten windows in a row were not finite); the last good checkpoint stands."""


class RankLost(VisionTrainError, RuntimeError):
    """A rank of the run is gone or does not come: those in ``lost``; ``saved``: it wrote the checkpoint before it went."""

    def __init__(self, message: str, lost: tuple[int, ...] = (), saved: bool = False) -> None:
        super().__init__(message, lost, saved)
        self.lost, self.saved = lost, saved

    def __str__(self) -> str:
        return str(self.args[0])


class RankFailed(VisionTrainError, RuntimeError):
    """A rank that this process started ended with an error that nobody foresaw; its traceback is in the message."""


class Interrupted(VisionTrainError):
    """Ctrl-C or SIGTERM; a checkpoint has been written."""

    exit_code = 130


def said_in_python(text: str) -> str:
    """The same where the reader sits in Python: ``visiontrain train resume=X`` is ``model.train(resume="X")``."""
    return re.sub(r"visiontrain train resume=(.+?\.pt)\b", r'model.train(resume="\1")', text)


def empty_frames(error: BaseException) -> None:
    """Clear the variables of the frames that an error came through, and of those behind it: whoever keeps it, as an
    interactive Python does until the next one, would keep model, optimizer and activations."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        each = todo.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            traceback.clear_frames(each.__traceback__)
            todo += [each.__cause__, each.__context__]
