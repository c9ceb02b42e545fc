"""Pictures that are still to be painted: what a loader process decides about them, and torch operations that do it.

Coordinates are continuous: pixel k of a row spans k to k + 1, its middle is k + 0.5. Not run on CUDA.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

GREY = 114  # where no piece lies


@dataclass(frozen=True, slots=True)
class Piece:
    """A rectangle of a picture and where it is drawn.

    ``pixels`` is (h, w, 3) uint8 RGB of that ``shape``, (h, w); None once a batch holds them. ``region`` is x1 y1 x2 y2 in
    whole pixels of the output, ``matrix`` (3, 3) goes from the output to pixels of the piece, and only what comes to lie
    in ``seen``, x1 y1 x2 y2 of those, is drawn; None: all of the region.
    """

    shape: tuple[int, int]
    region: tuple[int, int, int, int]
    matrix: np.ndarray
    seen: tuple[float, float, float, float] | None
    pixels: np.ndarray | None

    def flipped(self, mirror: np.ndarray) -> Piece:
        """``mirror`` (3, 3) takes the output's pixels to where they were."""
        corners = mirror @ np.array((self.region[::2], self.region[1::2], (1, 1)))
        (x1, x2), (y1, y2), _ = np.sort(corners, axis=1).astype(int).tolist()
        return replace(self, region=(x1, y1, x2, y2), matrix=self.matrix @ mirror)


@dataclass(frozen=True, slots=True)
class Drawing:
    """One picture of ``size`` (height, width): pieces on grey, laid one over another.

    With a second layer of pieces the picture is ``ratio`` of the first and the rest of the second. ``colour`` is (3, 3),
    for RGB colours of the result.
    """

    size: tuple[int, int]
    layers: tuple[tuple[Piece, ...], ...]
    ratio: float = 1.0
    colour: np.ndarray | None = None

    @property
    def pieces(self) -> list[Piece]:
        """Of all layers, in order."""
        return [piece for layer in self.layers for piece in layer]

    @property
    def pixels_bytes(self) -> int:
        return sum(3 * math.prod(piece.shape) for piece in self.pieces)

    def mixed(self, other: Drawing, ratio: float) -> Drawing:
        """``ratio`` of this one and the rest of the other; each has one layer and its own colours still."""
        return replace(self, layers=self.layers + other.layers, ratio=ratio)

    def flipped(self, *, upside: bool, sideways: bool) -> Drawing:
        height, width = self.size
        mirror = np.diag((-1.0 if sideways else 1.0, -1.0 if upside else 1.0, 1.0))
        mirror[:2, 2] = width * sideways, height * upside
        return replace(self, layers=tuple(tuple(p.flipped(mirror) for p in layer) for layer in self.layers))


@dataclass(frozen=True, slots=True)
class Drawings:
    """The pictures of a batch: ``pixels`` (n,) uint8 of all pieces, one after another, and ``colours`` (B, 3, 3) float."""

    pixels: Tensor
    colours: Tensor
    each: tuple[Drawing, ...]

    def pin_memory(self) -> Drawings:
        return replace(self, pixels=self.pixels.pin_memory(), colours=self.colours.pin_memory())

    def slice(self, start: int, stop: int) -> Drawings:
        first = sum(drawing.pixels_bytes for drawing in self.each[:start])
        length = sum(drawing.pixels_bytes for drawing in self.each[start:stop])
        return Drawings(self.pixels[first : first + length], self.colours[start:stop], self.each[start:stop])

    def paint(self, height: int, width: int, device: torch.device | str) -> Tensor:
        """The pictures on a device, (B, 3, height, width) uint8 RGB, channels last; grey is what is larger than they are.

        The same on every call: nothing is summed in an order of its own. Differs from what OpenCV draws of the same pieces by
        rounding and by how finely positions are told apart (tests/data/test_lay.py says by how much).
        """
        size = len(self.each), 3, height, width
        images = torch.empty(size, dtype=torch.uint8, device=device, memory_format=torch.channels_last).fill_(GREY)
        colours = self.colours.to(device, non_blocking=True)[..., None, None]
        lengths = [3 * math.prod(piece.shape) for drawing in self.each for piece in drawing.pieces]
        parts = iter(self.pixels.to(device, non_blocking=True).split(lengths))
        for image, drawing, colour in zip(images, self.each, colours, strict=True):
            painted = _layer(drawing, 0, parts, images.device)
            if len(drawing.layers) > 1:
                second = _layer(drawing, 1, parts, images.device)
                painted = (drawing.ratio * painted + (1 - drawing.ratio) * second).round_()
            coloured = (colour * painted).sum(1).round_().clamp_(0, 255)
            image[:, : drawing.size[0], : drawing.size[1]] = coloured
        return images


def pack(drawings: Sequence[Drawing]) -> Drawings:
    """Pictures of a batch, the pixels of their pieces in one tensor: one copy to the device."""
    pixels = np.empty(sum(drawing.pixels_bytes for drawing in drawings), np.uint8)
    start = 0
    for piece in (piece for drawing in drawings for piece in drawing.pieces):
        assert piece.pixels is not None
        stop = start + piece.pixels.size
        pixels[start:stop].reshape(piece.pixels.shape)[...] = piece.pixels
        start = stop
    colours = np.array([np.eye(3) if drawing.colour is None else drawing.colour for drawing in drawings], np.float32)
    emptied = tuple(
        replace(d, layers=tuple(tuple(replace(p, pixels=None) for p in layer) for layer in d.layers)) for d in drawings
    )
    return Drawings(torch.from_numpy(pixels), torch.from_numpy(colours), emptied)


def join(parts: Sequence[Drawings]) -> Drawings:
    """Pictures of several batches as those of one, in order."""
    return Drawings(
        torch.cat([part.pixels for part in parts]),
        torch.cat([part.colours for part in parts]),
        tuple(drawing for part in parts for drawing in part.each),
    )


def _layer(drawing: Drawing, number: int, parts: Iterator[Tensor], device: torch.device) -> Tensor:
    """(3, H, W) float: whole numbers in 0..255."""
    canvas = torch.full((3, *drawing.size), float(GREY), dtype=torch.float32, device=device)
    for piece in drawing.layers[number]:
        x1, y1, x2, y2 = piece.region
        target = canvas[:, y1:y2, x1:x2]
        target.copy_(_drawn(piece, next(parts).view(*piece.shape, 3), target))
    return canvas.round_()


def _drawn(piece: Piece, pixels: Tensor, under: Tensor) -> Tensor:
    """What a piece makes of its region, (3, h, w) float; ``under`` is what lies there."""
    x1, y1, x2, y2 = piece.region
    columns = torch.arange(x1, x2, dtype=torch.float32, device=pixels.device) + 0.5
    rows = (torch.arange(y1, y2, dtype=torch.float32, device=pixels.device) + 0.5)[:, None]
    x, y = (a * columns + b * rows + c for a, b, c in piece.matrix[:2].tolist())
    inside = None
    if piece.seen is not None:
        a, b, c = piece.matrix[2].tolist()
        depth = a * columns + b * rows + c  # not above 0: behind the eye
        ahead = depth > 0
        depth = torch.where(ahead, depth, 1.0)
        x, y = x / depth, y / depth
        left, top, right, bottom = piece.seen
        inside = ahead & (x >= left) & (x < right) & (y >= top) & (y < bottom)
    # grid_sample's coordinates go from -1 to 1, edge to edge; beyond the middle of the last pixel it repeats that.
    grid = torch.stack((x * (2 / piece.shape[1]) - 1, y * (2 / piece.shape[0]) - 1), -1)
    drawn = functional.grid_sample(
        pixels.permute(2, 0, 1)[None].float(), grid[None], mode="bilinear", padding_mode="border", align_corners=False
    )[0]
    return drawn if inside is None else torch.where(inside, drawn, under)
