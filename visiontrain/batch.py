"""The values that travel: one sample, the ragged targets of a batch, a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
import torch
from torch import Tensor

from visiontrain import drawing
from visiontrain.drawing import GREY, Drawing, Drawings


@dataclass(frozen=True, slots=True)
class Sample:
    """One picture as the model will see it, still on the host.

    ``image`` is (H, W, 3) uint8 RGB, ``classes`` (N,) int64, ``boxes`` (N, 4) float32 xyxy in pixels of ``image``.
    ``position`` is the place in the epoch's order (in the split's order for evaluation), ``original`` the (height, width)
    on disk, ``scale`` and ``pad`` the letterbox: pixel = original * scale + pad, as (x, y). ``path`` is set for evaluation.
    ``bad`` says what is wrong with pictures that could not be read: their place is grey, without objects.
    A picture that the device is to paint has a ``drawing`` and no image.
    """

    image: np.ndarray
    classes: np.ndarray
    boxes: np.ndarray
    position: int
    original: tuple[int, int] = (0, 0)
    scale: tuple[float, float] = (1.0, 1.0)
    pad: tuple[float, float] = (0.0, 0.0)
    path: str = ""
    bad: tuple[str, ...] = ()
    drawing: Drawing | None = None

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) in pixels."""
        return self.drawing.size if self.drawing else self.image.shape[:2]


@dataclass(frozen=True, slots=True)
class Targets:
    """Ground truth of a batch: ``image`` (N,) int64 index in the batch, sorted; ``classes`` (N,) int64; ``boxes`` (N, 4) float xyxy pixels."""

    image: Tensor
    classes: Tensor
    boxes: Tensor

    def __len__(self) -> int:
        return len(self.classes)

    def to(self, device: torch.device | str) -> Targets:
        return Targets(*(t.to(device, non_blocking=True) for t in (self.image, self.classes, self.boxes)))


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch: ``images`` (B, 3, H, W) uint8 RGB on the host, float in 0..1 after ``to``; ``samples`` keep what evaluation needs.

    As long as there are ``drawings``, ``images`` has its shape and no pixels: a tensor on the device "meta".
    """

    images: Tensor
    targets: Targets
    positions: tuple[int, ...]
    samples: tuple[Sample, ...] = ()  # without pixels; only evaluation fills it
    bad: tuple[str, ...] = ()  # of all samples
    drawings: Drawings | None = None

    def __len__(self) -> int:
        return len(self.images)

    def to(self, device: torch.device | str, dtype: torch.dtype = torch.float32, room: Tensor | None = None) -> Batch:
        """Move to the device as float in 0..1 (channels last); targets go along. What is still to be painted is, there.

        Args:
            device: where to.
            dtype: of the pictures.
            room: pictures of an earlier batch that nobody needs any more; those of this one are written over them if they
                have its shape, for new memory costs a CPU four times as much as the numbers.
        """
        images = self.painted(device).images.to(device, non_blocking=True)
        if images.dtype == torch.uint8:
            if room is None or (room.shape, room.dtype, room.device) != (images.shape, dtype, images.device):
                room = torch.empty_like(images, dtype=dtype, memory_format=torch.channels_last)
            images = room.copy_(images).div_(255)
        return replace(self, images=images, targets=self.targets.to(device), drawings=None)

    def painted(self, device: torch.device | str = "cpu") -> Batch:
        """With pixels: those that it has, or what is drawn, painted on the device."""
        if self.drawings is None:
            return self
        height, width = self.images.shape[-2:]
        return replace(self, images=self.drawings.paint(height, width, device), drawings=None)

    def pin_memory(self) -> Batch:
        pinned = Targets(*(t.pin_memory() for t in (self.targets.image, self.targets.classes, self.targets.boxes)))
        if self.drawings:
            return replace(self, targets=pinned, drawings=self.drawings.pin_memory())
        return replace(self, images=self.images.pin_memory(), targets=pinned)

    def split(self, size: int) -> list[Batch]:
        """Cut into micro-batches of at most ``size`` consecutive images."""
        return [self.slice(start, min(start + size, len(self))) for start in range(0, len(self), size)]

    def slice(self, start: int, stop: int) -> Batch:
        inside = (self.targets.image >= start) & (self.targets.image < stop)
        targets = Targets(self.targets.image[inside] - start, self.targets.classes[inside], self.targets.boxes[inside])
        bad = () if start else self.bad  # of which sample is not known; once is enough
        drawings = self.drawings.slice(start, stop) if self.drawings else None
        return Batch(
            self.images[start:stop], targets, self.positions[start:stop], self.samples[start:stop], bad, drawings
        )


def regroup(batches: Sequence[Batch], size: int) -> list[Batch]:
    """The same images in the same order as micro-batches of ``size``; the last may be smaller.

    Pixels are copied only where a new micro-batch reaches over a border of the old ones.
    """
    if all(len(batch) == size for batch in batches[:-1]) and len(batches[-1]) <= size:
        return list(batches)
    pieces: list[Batch] = []
    parts: list[Batch] = []
    for batch in batches:
        start = 0
        while start < len(batch):
            stop = min(start + size - sum(map(len, parts)), len(batch))
            parts.append(batch.slice(start, stop))
            start = stop
            if sum(map(len, parts)) == size:
                pieces.append(join(parts))
                parts = []
    return [*pieces, join(parts)] if parts else pieces


def join(parts: Sequence[Batch]) -> Batch:
    """Micro-batches of pictures of one size as one batch, in order."""
    if len(parts) == 1:
        return parts[0]
    starts = [sum(map(len, parts[:i])) for i in range(len(parts))]
    return Batch(
        torch.cat([p.images for p in parts]),
        Targets(
            torch.cat([p.targets.image + start for p, start in zip(parts, starts, strict=True)]),
            torch.cat([p.targets.classes for p in parts]),
            torch.cat([p.targets.boxes for p in parts]),
        ),
        tuple(position for p in parts for position in p.positions),
        tuple(sample for p in parts for sample in p.samples),
        tuple(each for p in parts for each in p.bad),
        drawing.join([p.drawings for p in parts if p.drawings]) if parts[0].drawings else None,
    )


def empty_batch(height: int, width: int) -> Batch:
    """A micro-batch without an image: what a rank without one runs where the passes of the others wait for it.

    Args:
        height, width: of the other ranks' pictures, pixels.
    """
    index = torch.zeros(0, dtype=torch.int64)
    return Batch(torch.zeros(0, 3, height, width, dtype=torch.uint8), Targets(index, index, torch.zeros(0, 4)), ())


def collate(samples: Sequence[Sample], *, keep_samples: bool = False, room: Tensor | None = None) -> Batch:
    """Stack samples into a batch; pictures of different sizes are padded with grey (114) at the right and the bottom.

    Args:
        samples: at least one, images (H, W, 3) uint8; or all of them drawings.
        keep_samples: evaluation needs the letterbox and path of each.
        room: (n,) uint8, as many as ``stacked_bytes`` says, that the pictures are written to; None: new memory.
    """
    shape = _stacked_shape(samples)
    drawings = [s.drawing for s in samples if s.drawing]
    if drawings:
        images = torch.empty(shape, dtype=torch.uint8, device="meta")
    else:
        stacked = torch.empty(shape, dtype=torch.uint8) if room is None else room.view(shape)
        for row, s in zip(stacked.numpy(), samples, strict=True):
            height, width = s.size
            _copy(row[:height, :width], s.image)
            row[height:], row[:height, width:] = GREY, GREY
        images = stacked
    counts = np.array([len(s.classes) for s in samples])
    targets = Targets(
        torch.from_numpy(np.repeat(np.arange(len(samples)), counts).astype(np.int64)),
        torch.from_numpy(np.concatenate([s.classes for s in samples]).astype(np.int64)),
        torch.from_numpy(np.concatenate([s.boxes for s in samples]).reshape(-1, 4).astype(np.float32)),
    )
    kept = tuple(replace(s, image=np.empty((0, 0, 3), np.uint8)) for s in samples) if keep_samples else ()
    bad = tuple(each for s in samples for each in s.bad)
    positions = tuple(s.position for s in samples)
    return Batch(
        images.permute(0, 3, 1, 2), targets, positions, kept, bad, drawing.pack(drawings) if drawings else None
    )


def stacked_bytes(samples: Sequence[Sample]) -> int:
    """That ``collate`` writes for the pictures of these samples; none for drawings, nor without samples."""
    return math.prod(_stacked_shape(samples)) if samples and not samples[0].drawing else 0


def _stacked_shape(samples: Sequence[Sample]) -> tuple[int, int, int, int]:
    height, width = (max(sides) for sides in zip(*(s.size for s in samples), strict=True))
    return len(samples), height, width, 3


def _copy(target: np.ndarray, image: np.ndarray) -> None:
    """The pixels of (H, W, 3); a picture that was flipped is a view from its end, which OpenCV copies faster."""
    upside, sideways = image.strides[0] < 0, image.strides[1] < 0
    if upside or sideways:
        cv2.flip(
            image[:: -1 if upside else 1, :: -1 if sideways else 1], int(sideways) - 2 * (upside and sideways), target
        )
    else:
        target[...] = image
