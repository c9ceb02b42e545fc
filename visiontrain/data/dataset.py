"""Samples: augmented for training, letterboxed for evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from visiontrain.batch import Sample
from visiontrain.config.groups import SamplingConfig
from visiontrain.config.image_size import ImageSize, image_size
from visiontrain.data import image as pictures_io
from visiontrain.data.augment import augment
from visiontrain.data.augment.draft import Context
from visiontrain.data.balance import repeat_factors
from visiontrain.data.cache import Cache
from visiontrain.data.index import Index
from visiontrain.data.pixels import MOST, Pixels
from visiontrain.data.sampler import FEW, Orders, anywhere, partners
from visiontrain.data.shuffle import Shuffle
from visiontrain.data.window_size import drawn_size, fitted_size, shape_kinds

if TYPE_CHECKING:
    from visiontrain.config.groups import AugmentConfig

Key = tuple[int, int, ImageSize]  # epoch and position, from 0, and the size of the window


class TrainSet:
    """Training samples by (epoch, position); a sample is a function of seed, epoch and position alone.

    Args:
        index: the split.
        imgsz: side of square samples in pixels, or their (height, width).
        augment: strengths and probabilities.
        seed: of the run.
        epochs: of the run; the last ``close_mosaic`` of them see single pictures (no mosaic, no mixup).
        sampling: how pictures are drawn, and their sizes; None: each once in an epoch, all of ``imgsz``.
        block: with ``sampling.rect``, images of a window: so many positions in a row get pictures of like shape.
        kept: bytes of decoded pictures that this process may keep for samples near by.
        cache: keeps all of them.
    """

    def __init__(
        self,
        index: Index,
        imgsz: int | tuple[int, int],
        augment: AugmentConfig,
        seed: int,
        epochs: int,
        sampling: SamplingConfig | None = None,
        block: int = 1,
        kept: int = MOST,
        cache: Cache | None = None,
    ) -> None:
        self.index = index
        self.imgsz = image_size(imgsz)
        self.pixels = Pixels(index, self.imgsz, kept, cache)
        self.augment = augment
        self.seed = seed
        self.epochs = epochs
        self.sampling = sampling = sampling or SamplingConfig()
        self.block = block
        balanced = sampling.balance != "none"
        factors = repeat_factors(index, sampling.balance, sampling.balance_threshold) if balanced else None
        kinds = shape_kinds(self.imgsz, index.sizes) if sampling.rect else None
        self._orders = Orders(seed, len(index), factors, kinds, block)
        self._order: tuple[int, np.ndarray | Shuffle] | None = None

    def __len__(self) -> int:
        return len(self.index)

    def order(self, epoch: int) -> np.ndarray | Shuffle:
        """The picture at each position of an epoch (counted from 0)."""
        if self._order is None or self._order[0] != epoch:
            self._order = None  # two at once would be 8 bytes a picture more, in every loader process
            self._order = epoch, self._orders(epoch)
        return self._order[1]

    def closed(self, epoch: int) -> bool:
        """Whether an epoch (from 0) is one of the last, which see single pictures."""
        return epoch >= self.epochs - self.augment.close_mosaic

    def size(self, epoch: int, window: tuple[int, int]) -> ImageSize:
        """Of all samples of a window, positions [start, stop) of an epoch."""
        size = drawn_size(self.imgsz, self.sampling.multi_scale, self.seed, epoch, window[0])
        if not self.sampling.rect:
            return size
        return fitted_size(size, self.index.sizes[self.order(epoch)[np.arange(*window)]])

    def keys(self, epoch: int, window: tuple[int, int], start: int, stop: int) -> list[Key]:
        """Of the samples at positions [start, stop), a part of a window."""
        size = self.size(epoch, window)
        return [(epoch, position, size) for position in range(start, stop)]

    def __getitem__(self, key: tuple[int, int] | Key) -> Sample:
        """The sample at (epoch, position), both from 0, of ``imgsz``; at a key of ``keys``, of the size of its window.

        Where a picture that was readable when the index was made is not any more, its place is grey.
        """
        epoch, position, *size = key
        order = self.order(epoch)
        rng = np.random.default_rng([self.seed, epoch, position])
        others = self._others(epoch, position, rng)
        context = Context(
            rng=rng,
            settings=self.augment,
            size=size[0] if size else self.imgsz,
            pictures=self.pixels,
            pick=lambda: int(order[next(others)]),
            closed=self.closed(epoch),
        )
        number = int(order[position])
        self.pixels.begin(number)
        draft = augment(number, context)
        return Sample(
            image=draft.image,
            classes=draft.classes.astype(np.int64),
            boxes=draft.boxes.astype(np.float32),
            position=position,
            original=self.index.size(draft.index),
            path=self.index.path(draft.index),
            bad=tuple(context.bad),
            drawing=draft.drawing,
        )

    @property
    def draws_near(self) -> bool:
        """Whether samples draw their partners from positions a little before theirs, and need their pictures decoded."""
        near = self.augment.partners == "near" and not self.sampling.rect and len(self) >= FEW
        return near and self.pixels.cache is None

    def path(self, key: tuple[int, int] | Key) -> str:
        """Of the picture that a sample is about."""
        epoch, position, *_ = key
        return self.index.path(int(self.order(epoch)[position]))

    def _others(self, epoch: int, position: int, rng: np.random.Generator) -> Iterator[int]:
        """Positions of other pictures for the sample at ``position``; with rect of like shape, so of its block."""
        if self.sampling.rect:
            first = position // self.block * self.block
            return anywhere(rng, first, min(first + self.block, len(self)))
        if self.augment.partners == "near":
            return partners(self.seed, epoch, position, len(self), rng)
        return anywhere(rng, 0, len(self))


class EvalSet:
    """Letterboxed samples, in an order that puts those of one size together.

    Args:
        index: the split.
        imgsz: the long side of each picture in pixels, or the (height, width) that it fits into; smaller ones are enlarged.
        stride: the sides of a sample are multiples of it.
        canvas: the (height, width) of every sample; None: as small as ``letterbox`` makes it.
    """

    def __init__(
        self, index: Index, imgsz: int | tuple[int, int], stride: int = 32, canvas: tuple[int, int] | None = None
    ) -> None:
        self.index = index
        self.imgsz = image_size(imgsz)
        self.stride = stride
        self.canvas = canvas
        self._order, self._ends = np.arange(len(index)), np.array([len(index)])
        if canvas is None:
            size = pictures_io.letterbox_outer(index.sizes[:, 0], index.sizes[:, 1], self.imgsz, stride)
            self._order = np.lexsort(size)
            other = np.any([np.diff(side[self._order]) for side in size], axis=0)
            self._ends = np.append(np.flatnonzero(other) + 1, len(index))

    def __len__(self) -> int:
        return len(self.index)

    def batches(self, most: int) -> list[range]:
        """All samples, at most ``most`` at a time, of one size each: nothing is padded to fit a larger one.

        So what a model sees of a picture, and what it says, does not depend on the others of its batch.
        """
        starts = np.append(0, self._ends[:-1]).tolist()
        return [
            range(first, min(first + most, end))
            for start, end in zip(starts, self._ends.tolist(), strict=True)
            for first in range(start, end, most)
        ]

    def path(self, i: int) -> str:
        """Of the i-th picture."""
        return self.index.path(int(self._order[i]))

    def __getitem__(self, i: int) -> Sample:
        """The i-th sample; its ``position`` is its number in the split; grey, without objects, where it cannot be read."""
        number = int(self._order[i])
        path = self.index.path(number)
        picture, bad = pictures_io.read_or_grey(path, self.index.size(number))
        image, scale, pad = pictures_io.letterbox(picture, self.imgsz, self.stride, self.canvas)
        boxes, classes = self.index.pixel_boxes(number), self.index.classes(number)
        if bad:
            boxes, classes = boxes[:0], classes[:0]
        return Sample(
            image=image,
            classes=classes.astype(np.int64),
            boxes=(boxes * np.tile(scale, 2) + np.tile(pad, 2)).astype(np.float32),
            position=number,
            original=self.index.size(number),
            scale=scale,
            pad=pad,
            path=path,
            bad=bad,
        )
