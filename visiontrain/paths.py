"""Where the shipped descriptions lie, in a checkout and in a wheel, and where files of the user's are kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def shipped(kind: str) -> Path:
    """The folder of shipped YAML: beside this file in a wheel, one level up in a checkout.

    Args:
        kind: ``cfg``, ``datasets`` or ``weights``.
    """
    inside = _HERE / kind
    return inside if inside.is_dir() else _HERE.parent / kind


def cfg_dir() -> Path:
    """Folder of default.yaml and models/*.yaml."""
    return shipped("cfg")


def datasets_dir() -> Path:
    """Folder of the shipped dataset descriptions; descriptions only, never pictures."""
    return shipped("datasets")


def weights_dir() -> Path:
    """Folder of weights.yaml, the list of published weights; never the files."""
    return shipped("weights")


def cache_dir() -> Path:
    """The user's cache: $VISIONTRAIN_CACHE, else where the platform keeps caches. Not created here."""
    named = os.environ.get("VISIONTRAIN_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    return _platform_cache() / "visiontrain"


def _platform_cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    variable = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    named = os.environ.get(variable, "")
    # The XDG convention: a relative path in the variable is invalid and to be ignored.
    return Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
