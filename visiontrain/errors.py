"""What can go wrong for a person, each with the exit code that scripts see."""

from __future__ import annotations


class VisionTrainError(Exception):
    """Something a person can put right; the message says what, where and how."""

    exit_code = 1


class ConfigError(VisionTrainError, ValueError):
    """The words or settings are wrong."""

    exit_code = 2


class DataError(VisionTrainError, ValueError):
    """The pictures, labels or their description are wrong."""

    exit_code = 3


class WeightsError(VisionTrainError, ValueError):
    """A checkpoint cannot be found, read or used here."""

    exit_code = 4


class OutOfMemory(VisionTrainError, RuntimeError):
    """The work does not fit, and nothing smaller is left to try."""

    exit_code = 5


class TrainingStopped(VisionTrainError, RuntimeError):
    """Training cannot go on (ten windows in a row were not finite); the last good checkpoint stands."""


class Interrupted(VisionTrainError):
    """Ctrl-C or SIGTERM; a checkpoint has been written."""

    exit_code = 130
