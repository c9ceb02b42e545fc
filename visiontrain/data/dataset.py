"""Samples: augmented for training, letterboxed for evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from visiontrain.batch import Sample
from visiontrain.config.image_size import ImageSize, image_size
from visiontrain.config.schema import SamplingConfig
from visiontrain.data import image as pictures_io
from visiontrain.data.augment import augment
from visiontrain.data.augment.draft import Context
from visiontrain.data.balance import repeat_factors
from visiontrain.data.index import Index
from visiontrain.data.sampler import Orders
from visiontrain.data.shuffle import Shuffle
from visiontrain.data.window_size import drawn_size, fitted_size, shape_kinds

if TYPE_CHECKING:
    from visiontrain.config.schema import AugmentConfig

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
    ) -> None:
        self.index = index
        self.imgsz = image_size(imgsz)
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

        Raises:
            DataError: a picture that was readable when the index was made is not any more.
        """
        epoch, position, *size = key
        order = self.order(epoch)
        rng = np.random.default_rng([self.seed, epoch, position])
        context = Context(
            rng=rng,
            settings=self.augment,
            size=size[0] if size else self.imgsz,
            pictures=self.index,
            pick=lambda: int(order[rng.integers(*self._partners(position))]),
            closed=self.closed(epoch),
        )
        draft = augment(int(order[position]), context)
        return Sample(
            image=draft.image,
            classes=draft.classes.astype(np.int64),
            boxes=draft.boxes.astype(np.float32),
            position=position,
            original=self.index.size(draft.index),
            path=self.index.path(draft.index),
        )

    def _partners(self, position: int) -> tuple[int, int]:
        """Positions [first, last) that a mosaic may draw on: with rect pictures of like shape, those of the block."""
        if not self.sampling.rect:
            return 0, len(self.index)
        first = position // self.block * self.block
        return first, min(first + self.block, len(self.index))


class EvalSet:
    """Letterboxed samples, in an order that puts like shapes together so that batches pad little.

    Args:
        index: the split.
        imgsz: the long side of each picture in pixels, or the (height, width) that it fits into; smaller ones are enlarged.
        stride: the sides of a sample are multiples of it.
    """

    def __init__(self, index: Index, imgsz: int | tuple[int, int], stride: int = 32) -> None:
        self.index = index
        self.imgsz = image_size(imgsz)
        self.stride = stride
        height, width = index.sizes[:, 0].astype(np.float64), index.sizes[:, 1].astype(np.float64)
        self._order = np.argsort(height / width, kind="stable")

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, i: int) -> Sample:
        """The i-th sample; its ``position`` is its number in the split.

        Raises:
            DataError: a picture that was readable when the index was made is not any more.
        """
        number = int(self._order[i])
        path = self.index.path(number)
        image, scale, pad = pictures_io.letterbox(pictures_io.read(path), self.imgsz, self.stride)
        boxes = self.index.pixel_boxes(number) * np.tile(scale, 2) + np.tile(pad, 2)
        return Sample(
            image=image,
            classes=self.index.classes(number).astype(np.int64),
            boxes=boxes.astype(np.float32),
            position=number,
            original=self.index.size(number),
            scale=scale,
            pad=pad,
            path=path,
        )
