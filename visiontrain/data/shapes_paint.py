"""The brushes of the embedded data set: textured grounds, strokes that mean nothing, and filled outlines."""

from __future__ import annotations

import math

import cv2
import numpy as np

_FINE = 4  # outlines are drawn this much larger and averaged down: smooth edges, in place to a fraction of a pixel
_CONTRAST = 70.0  # least difference of brightness between a shape and what it lies on


def ground(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    """(height, width, 3) float32 RGB: two colours mixed by a pattern."""
    base = _colour(rng, rng.uniform(0.1, 0.55), rng.uniform(60, 200))
    shift = rng.uniform(18, 55) * rng.choice((-1, 1))
    other = (base + shift + rng.uniform(-25, 25, 3)).clip(10, 245)
    pattern = _PATTERNS[rng.integers(len(_PATTERNS))](rng, width, height).astype(np.float32)
    clouds = _clouds(rng, width, height) * np.float32(rng.uniform(8, 26))
    clouds -= clouds.mean()
    channels = [
        clouds + pattern * np.float32(step) + np.float32(start) for start, step in zip(base, other - base, strict=True)
    ]
    return cv2.merge(channels)


def strokes(rng: np.random.Generator, canvas: np.ndarray) -> None:
    """Draw curved lines over the ground, in place; they are nobody's outline."""
    height, width = canvas.shape[:2]
    for _ in range(rng.integers(2, 8)):
        start = rng.uniform((0, 0), (width, height))
        heading, bend, length = rng.uniform(0, 2 * math.pi), rng.normal(0, 0.012), rng.uniform(30, 180)
        along = np.arange(0, length, 4)
        angles = heading + bend * along
        points = start + np.cumsum(np.stack((np.cos(angles), np.sin(angles)), axis=1) * 4, axis=0)
        x0, y0 = np.floor(points.min(axis=0) - 4).clip(0, (width, height)).astype(int)
        x1, y1 = np.ceil(points.max(axis=0) + 4).clip(0, (width, height)).astype(int)
        thickness, strength = int(rng.integers(1, 4)), np.float32(rng.uniform(0.35, 0.8) / 255)
        colour = _colour(rng, rng.uniform(0.1, 0.8), rng.uniform(40, 220))
        region = canvas[y0:y1, x0:x1]
        if not region.size:
            continue
        mask = np.zeros(region.shape[:2], np.uint8)
        fixed = np.rint((points - (x0, y0)) * 16).astype(np.int32).reshape(-1, 1, 2)
        cv2.polylines(mask, [fixed], False, 255, thickness, cv2.LINE_AA, 4)
        region += (colour - region) * (mask[..., None] * strength)


def paint_shape(rng: np.random.Generator, canvas: np.ndarray, outline: np.ndarray, hue: float | None = None) -> None:
    """Fill an outline (K, 2) with a colour that stands out from what it covers, in place; ``hue`` in radians, None: any."""
    height, width = canvas.shape[:2]
    x0, y0 = np.floor(outline.min(axis=0) - 1).clip(0, (width, height)).astype(int)
    x1, y1 = np.ceil(outline.max(axis=0) + 1).clip(0, (width, height)).astype(int)
    region = canvas[y0:y1, x0:x1]
    alpha = _coverage(outline - (x0, y0), x1 - x0, y1 - y0)
    under = float((region @ _BRIGHTNESS * alpha).sum() / max(float(alpha.sum()), 1e-3))
    lighter = rng.random() < 0.5
    if under + _CONTRAST > 235 or under - _CONTRAST < 20:
        lighter = under < 128
    bright = rng.uniform(under + _CONTRAST, 245) if lighter else rng.uniform(12, under - _CONTRAST)
    fill = np.broadcast_to(_colour(rng, rng.uniform(0.5, 1.0), bright, hue), region.shape)
    region += (_shaded(rng, fill) - region) * alpha[..., None]


_BRIGHTNESS = np.array((0.299, 0.587, 0.114), np.float32)


def _coverage(outline: np.ndarray, width: int, height: int) -> np.ndarray:
    """(height, width) float32 in 0..1: how much of each pixel lies inside the outline."""
    mask = np.zeros((height * _FINE, width * _FINE), np.uint8)
    # OpenCV puts pixel middles at whole numbers, the outline has them at a half.
    fixed = np.rint((outline * _FINE - 0.5) * 16).astype(np.int32)
    cv2.fillPoly(mask, [fixed.reshape(-1, 1, 2)], 255, cv2.LINE_8, 4)
    return cv2.resize(mask, (width, height), interpolation=cv2.INTER_AREA).astype(np.float32) / 255


def _shaded(rng: np.random.Generator, fill: np.ndarray) -> np.ndarray:
    """Light from one side, and on some a faint weave."""
    height, width = fill.shape[:2]
    ramp = _ramp(rng, width, height) - 0.5
    light = ramp * rng.uniform(0, 44)
    if rng.random() < 0.4:
        light = light + (_stripes(rng, width, height) - 0.5) * rng.uniform(10, 34)
    return fill + light.astype(np.float32)[..., None]


def _colour(rng: np.random.Generator, saturation: float, brightness: float, hue: float | None = None) -> np.ndarray:
    """(3,) float32 RGB with about this brightness (0 to 255); without ``hue`` (radians) of a random one."""
    if hue is None:
        hue = rng.uniform(0, 2 * math.pi)
    pure = 0.5 + 0.5 * np.cos(hue - np.array((0, 2, 4)) * math.pi / 3)
    mixed = saturation * pure + (1 - saturation) * 0.5
    scaled = mixed * brightness / max(float(mixed @ _BRIGHTNESS), 1e-3)
    if scaled.max() > 255:  # too bright for a pure colour: towards white
        grey = float(np.float32(brightness))
        scaled = grey + (scaled - grey) * (255 - grey) / max(float(scaled.max()) - grey, 1e-3)
    return scaled.astype(np.float32)


def _ramp(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    angle = rng.uniform(0, 2 * math.pi)
    x, y = np.linspace(-1, 1, width, dtype=np.float32)[None], np.linspace(-1, 1, height, dtype=np.float32)[:, None]
    flat = x * np.float32(math.cos(angle)) + y * np.float32(math.sin(angle))
    return (flat - flat.min()) / max(float(np.ptp(flat)), 1e-6)


def _stripes(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    angle, period = rng.uniform(0, 2 * math.pi), rng.uniform(7, 40)
    x, y = np.arange(width, dtype=np.float32)[None], np.arange(height, dtype=np.float32)[:, None]
    along = x * np.float32(math.cos(angle) * 2 * math.pi / period) + y * np.float32(
        math.sin(angle) * 2 * math.pi / period
    )
    return np.sin(along) * np.float32(0.5) + np.float32(0.5)


def _clouds(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    total = np.zeros((height, width), np.float32)
    for cells, weight in ((4, 0.5), (9, 0.3), (21, 0.2)):
        coarse = rng.random((cells, cells), dtype=np.float32)
        total += weight * cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    return total.clip(0, 1)


def _checks(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    return 1 / (1 + np.exp(-6 * (_stripes(rng, width, height) + _stripes(rng, width, height) - 1)))


_PATTERNS = (_ramp, _stripes, _clouds, _checks)
