"""A comparison as a file that was not there: its ending says whether a page or a picture."""

from __future__ import annotations

from pathlib import Path

from visiontrain.errors import ConfigError
from visiontrain.record.compare import Comparison


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write the page (.html) or the curves (.png).

    Raises:
        ConfigError: the file is there, or its folder is not.
    """
    if path.exists():
        raise ConfigError(f"out={path}: is there already, and nothing is overwritten; choose another name")
    if not path.parent.is_dir():
        raise ConfigError(f"out={path}: there is no folder {path.parent}; make it, or choose another")
    if path.suffix.lower() == ".html":
        from visiontrain.record.report.comparison import write_page

        write_page(comparison, path)
    else:
        from visiontrain.record.plots.comparison import write_curves

        write_curves(comparison, path)
