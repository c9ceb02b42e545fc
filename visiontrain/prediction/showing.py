"""A picture before somebody's eyes: in the notebook, or in the system's viewer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np

from visiontrain.errors import VisionTrainError
from visiontrain.paths import cache_dir
from visiontrain.place import in_notebook
from visiontrain.record.plots.ink import write_picture

_VIEWERS = {"linux": "xdg-open", "darwin": "open", "win32": "explorer"}


def show_picture(picture: np.ndarray, name: str) -> None:
    """Show (H, W, 3) uint8 RGB.

    Args:
        picture: what to show.
        name: of the file in the user's cache that a viewer is given.

    Raises:
        VisionTrainError: there is no notebook and no display.
    """
    if in_notebook():
        from IPython.display import Image, display

        display(Image(data=cv2.imencode(".png", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))[1].tobytes()))
        return
    viewer = shutil.which(_VIEWERS.get(sys.platform, ""))
    screen = sys.platform != "linux" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    if not viewer or not screen:
        raise VisionTrainError("show: there is no display here; save('found.jpg') writes the picture instead")
    subprocess.Popen([viewer, str(_written(picture, name))])


def _written(picture: np.ndarray, name: str) -> Path:
    folder = cache_dir() / "shown"
    folder.mkdir(parents=True, exist_ok=True)
    safe = re.sub(r"[^\w.-]", "_", name)[-80:]
    path = folder / f"{safe}.png"
    write_picture(path, picture)
    return path
