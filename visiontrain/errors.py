"""What can go wrong for a person, each with the exit code that scripts see."""

from __future__ import annotations


class VisionTrainError(Exception):
    """Something a person can put right; the message says what, where and how."""

    exit_code = 1
    told_by: int | None = None  # the rank that tells it, where several have it


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
