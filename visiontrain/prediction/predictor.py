"""Pictures in, results out, in the same order and a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import torch

from visiontrain.batch import collate
from visiontrain.config.image_size import ImageSize, image_size
from visiontrain.config.schema import AS_TRAINED, PredictConfig
from visiontrain.data.select import class_numbers
from visiontrain.distributed import choose_device
from visiontrain.errors import ConfigError, OutOfMemory
from visiontrain.memory import NoRoom, attempt, halved, release
from visiontrain.models.exported import device_for
from visiontrain.models.network import Network
from visiontrain.prediction.merging import TILE_IOU, Part, fuse, join
from visiontrain.prediction.postprocess import choose, in_original_pixels
from visiontrain.prediction.results import Boxes, Results
from visiontrain.prediction.sources import Frame
from visiontrain.prediction.views import View, Views

STAGES = ("preprocess", "inference", "postprocess")
T = TypeVar("T")
LOW = 0.001  # confidence that counts in a view: only what all views say together is held against conf


class Predictor:
    """Detects with one network and one set of settings.

    Args:
        network: on any device; it moves to that of the settings.
        trained: settings of its training.
        config: of the prediction.
        on_shrink: is told, in a sentence, when fewer pictures fit at once.

    Raises:
        ConfigError: the network or the device cannot do what is asked.
    """

    def __init__(
        self,
        network: Network,
        trained: dict[str, Any],
        config: PredictConfig,
        on_shrink: Callable[[str], None] = lambda said: None,
    ) -> None:
        self.config, self.on_shrink = config, on_shrink
        self.device = choose_device(device_for(config.model, config.device))
        self.classes = class_numbers(config.classes, network.class_names, "model")
        self.views = _views(network, trained, config)
        self.seconds = dict.fromkeys(("read", *STAGES), 0.0)
        self.at_once = config.batch
        network.use_nms(config.nms)
        network.require({name: value for name, value in config.values().items() if name in config.given})
        self.network = network.to(self.device, memory_format=torch.channels_last)
        self.dtype = next((p.dtype for p in network.parameters()), None)
        if config.half and (self.device.type != "cuda" or self.dtype is None):
            where = "an exported file computes as it was exported" if self.dtype is None else f"this is {self.device}"
            raise ConfigError(f"half=true: float16 is for checkpoints on a CUDA device, and {where}; leave it out")

    def results(self, frames: Iterable[Frame]) -> Iterator[Results]:
        """One for each picture, in order; at most ``batch`` pictures are in memory."""
        together = self.config.batch if self.views.single else 1
        incoming = self._timed("read", frames)
        while group := list(islice(incoming, together)):
            before = dict(self.seconds)
            parts = self._look([frame.image for frame in group])
            spent = {stage: 1000 * (self.seconds[stage] - before[stage]) / len(group) for stage in STAGES}
            for frame, part in zip(group, parts, strict=True):
                yield self._result(frame, part, spent)

    def _result(self, frame: Frame, part: Part, speed: dict[str, float]) -> Results:
        boxes, scores, classes = part
        rows = np.concatenate((boxes, scores[:, None], classes[:, None]), 1).astype(np.float32)
        size = frame.image.shape[0], frame.image.shape[1]
        names = dict(enumerate(self.network.class_names))
        return Results(frame, names, Boxes(torch.from_numpy(rows), size), speed)

    def _look(self, images: Sequence[np.ndarray]) -> list[Part]:
        """What is found in each picture. Only views of one shape share a batch: none is padded for another's sake."""
        parts: list[list[tuple[bool, Part]]] = [[] for _ in images]
        waiting: dict[tuple[int, int], list[tuple[int, View]]] = {}
        for number, image in enumerate(images):
            for view in self._timed("preprocess", self.views.of(image)):
                alike = waiting.setdefault(view.sample.size, [])
                alike.append((number, view))
                if len(alike) >= self.config.batch:
                    self._detect_all(waiting.pop(view.sample.size), parts)
        for alike in waiting.values():
            self._detect_all(alike, parts)
        with self._stage("postprocess"):
            return [self._merged(each) for each in parts]

    def _merged(self, parts: Sequence[tuple[bool, Part]]) -> Part:
        """One part of those of a picture, each with whether it is a tile's."""
        if self.views.single:
            return parts[0][1]
        config = self.config
        tiles = [part for of_tile, part in parts if of_tile]
        whole = fuse([part for of_tile, part in parts if not of_tile], iou=config.iou, agnostic=config.agnostic)
        iou = min(config.iou, TILE_IOU)
        boxes, scores, classes = join([whole, *tiles], iou=iou, agnostic=config.agnostic) if tiles else whole
        sure = np.flatnonzero(scores > config.conf)[: config.max_det]
        return boxes[sure], scores[sure], classes[sure]

    def _detect_all(self, alike: list[tuple[int, View]], parts: list[list[tuple[bool, Part]]]) -> None:
        """Put what is found in views of one shape to the parts of their pictures; in halves where memory runs out."""
        done = 0
        while done < len(alike):
            piece = alike[done : done + self.at_once]
            found = attempt(partial(self._detect, [view for _, view in piece]))
            if isinstance(found, NoRoom):
                self._shrink(piece[0][1], len(piece), found)
                continue
            for (number, view), part in zip(piece, found, strict=True):
                parts[number].append((view.tile, part))
            done += len(piece)

    def _shrink(self, view: View, failed: int, failure: NoRoom) -> None:
        release(self.device)
        if failed == 1:
            height, width = view.sample.size
            raise OutOfMemory(
                f"one picture of {width} x {height} pixels does not fit ({failure.said}). Make room on the device, or use a "
                "smaller imgsz or model."
            )
        before, self.at_once = self.at_once, halved(self.at_once, failed)
        self.on_shrink(
            f"Out of memory ({failure.said}): {self.at_once} pictures at a time instead of {before} from here on."
        )

    def _detect(self, views: Sequence[View]) -> list[Part]:
        config = self.config
        with self._stage("preprocess"):
            batch = collate([view.sample for view in views], keep_samples=True)
            images = batch.to(self.device, self.dtype or torch.float32).images
        with self._stage("inference"), torch.no_grad(), self._precision():
            output: Any = self.network(images)
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
        with self._stage("postprocess"):
            if getattr(output, "end_to_end", False) and self.views.single:
                self._refuse_idle()
            chosen = choose(
                output,
                conf=config.conf if self.views.single else min(config.conf, LOW),
                iou=config.iou,
                max_det=config.max_det,
                classes=self.classes,
                agnostic=config.agnostic,
            )
            columns = in_original_pixels(chosen.detections, batch.samples)
            ends = np.cumsum(columns.counts)[:-1]
            rows = (np.split(column, ends) for column in (columns.boxes, columns.scores, columns.classes))
            return [_in_picture(view, *part) for view, *part in zip(views, *rows, strict=True)]

    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast("cuda", torch.float16) if self.config.half else nullcontext()

    def _refuse_idle(self) -> None:
        idle = [name for name in ("iou", "agnostic") if name in self.config.given]
        if idle:
            raise ConfigError(
                f"{' and '.join(idle)}: {self.network.name} gives each object one box and needs no NMS; leave that out"
            )

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        began = perf_counter()
        yield
        self.seconds[name] += perf_counter() - began

    def _timed(self, name: str, things: Iterable[T]) -> Iterator[T]:
        """The same things; the time it takes to get them belongs to a stage."""
        began = perf_counter()
        for thing in things:
            self.seconds[name] += perf_counter() - began
            yield thing
            began = perf_counter()


def _in_picture(view: View, boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray) -> Part:
    whole = view.whole(boxes)
    return view.in_picture(boxes[whole]), scores[whole], classes[whole]


def _views(network: Network, trained: dict[str, Any], config: PredictConfig) -> Views:
    """How to look; a file exported for one size takes no other."""
    fixed = network.input_size and ImageSize(*network.input_size)
    if fixed and config.augment:
        raise ConfigError(f"augment=true: {network.name} takes pictures of {fixed} pixels alone; leave it out")
    if fixed and config.imgsz not in (AS_TRAINED, fixed):
        raise ConfigError(f"imgsz={config.imgsz}: {network.name} takes pictures of {fixed} pixels alone; leave it out")
    imgsz = fixed or (image_size(trained["imgsz"]) if config.imgsz == AS_TRAINED else config.imgsz)
    return Views(imgsz, network.stride, network.input_size, config.augment, config.tile, config.tile_overlap)
