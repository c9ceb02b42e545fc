"""Pictures that are in memory: NumPy arrays, PIL images and torch tensors as (H, W, 3) uint8 RGB."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor

from visiontrain.errors import ConfigError

_CHANNELS = {1: cv2.COLOR_GRAY2RGB, 3: cv2.COLOR_BGR2RGB, 4: cv2.COLOR_BGRA2RGB}
_TAKEN = (
    "a path, an address, a list of these; a NumPy array (H, W, 3) uint8 in OpenCV's order, BGR; a PIL image; a torch tensor "
    "(3, H, W) or (B, 3, H, W), RGB, uint8 or floats in 0..1"
)


def pixels_of(source: Any) -> list[Callable[[], np.ndarray]]:
    """Functions that give each picture of ``source`` as (H, W, 3) uint8 RGB; no copy is made before they are called.

    Args:
        source: an array (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) uint8, BGR as OpenCV reads it; a PIL image, whose EXIF
            orientation is applied; a tensor (3, H, W) or (B, 3, H, W), RGB, uint8 or floating in 0..1. Alpha is left out.

    Raises:
        ConfigError: it is none of these.
    """
    if isinstance(source, np.ndarray):
        shape = source.shape if source.ndim == 3 else (*source.shape, 1)
        if source.dtype != np.uint8 or len(shape) != 3 or shape[-1] not in _CHANNELS or not source.size:
            raise _refused(f"a NumPy array {source.shape} of {source.dtype}")
        return [partial(_of_array, source)]
    if isinstance(source, Tensor):
        return _of_tensors(source)
    if hasattr(source, "getexif"):
        if source.mode.startswith(("I", "F")):
            raise _refused(f"a PIL image of mode {source.mode}, whose black and white are not agreed")
        return [partial(_of_pil, source)]
    raise _refused(f"{type(source).__name__}")


def _refused(what: str) -> ConfigError:
    return ConfigError(f"source: {what} is no picture here; it takes {_TAKEN}")


def _of_array(array: np.ndarray) -> np.ndarray:
    whole = np.ascontiguousarray(array if array.ndim == 3 else array[..., None])
    return cv2.cvtColor(whole, _CHANNELS[whole.shape[-1]])


def _of_pil(picture: Any) -> np.ndarray:
    from PIL import ImageOps

    return np.array(ImageOps.exif_transpose(picture).convert("RGB"))


def _of_tensors(source: Tensor) -> list[Callable[[], np.ndarray]]:
    pictures = source if source.ndim == 4 else source[None]
    if pictures.ndim != 4 or pictures.shape[1] != 3 or not pictures.numel():
        raise _refused(f"a tensor {tuple(source.shape)}")
    if pictures.dtype != torch.uint8:
        if not pictures.is_floating_point():
            raise _refused(f"a tensor of {source.dtype}")
        low, high = (float(bound) for bound in pictures.aminmax())
        if not (low >= 0 and high <= 1):
            raise _refused(f"a tensor of {source.dtype} with values from {low:g} to {high:g}")
    return [partial(_of_tensor, picture) for picture in pictures]


def _of_tensor(picture: Tensor) -> np.ndarray:
    """Floats are rounded to 8 bits, as files have them."""
    values = picture.detach().cpu()
    whole = values if values.dtype == torch.uint8 else (values.float() * 255).round().to(torch.uint8)
    return np.ascontiguousarray(whole.permute(1, 2, 0).numpy())
