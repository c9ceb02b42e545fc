"""The loggers that a run was asked for: whether they can be had, the sinks, and how to look at what they write."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from visiontrain.config.loggers import LOGGERS, names_in
from visiontrain.errors import ConfigError
from visiontrain.record.beside import Beside


def logger_class(name: str) -> Any:
    """The class of a logger: called with the run folder it gives a sink. ``needs`` and ``look`` are optional."""
    module, _, kind = LOGGERS[name].rpartition(".")
    return getattr(import_module(module), kind)


def require_loggers(names: str) -> None:
    """Raises ConfigError where a package is not installed that one of ``names`` needs."""
    needed = {name: getattr(logger_class(name), "needs", "") for name in names_in(names)}
    missing = [name for name, package in needed.items() if package and not _installed(package)]
    if missing:
        extras = ",".join(missing)
        raise ConfigError(
            f"loggers={names}: {' and '.join(missing)} cannot be imported; "
            f'pip install "visiontrain[{extras}]", or leave {"it" if len(missing) == 1 else "them"} out'
        )


def make_loggers(names: str, folder: Path) -> list[Beside]:
    """A sink for each of ``names``, in a thread of its own from its first event on."""
    return [Beside(name, partial(logger_class(name), folder)) for name in names_in(names)]


def how_to_look(names: str, folder: Path) -> list[str]:
    """A sentence for each of ``names``: where it writes, and how to look at it."""
    kinds = [logger_class(name) for name in names_in(names)]
    return [kind.look(folder) for kind in kinds if hasattr(kind, "look")]


def _installed(package: str) -> bool:
    """A folder of that name, such as W&B leaves where it runs, is no package: it has no origin."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None
