"""What a run will move between its ranks and hold of its data, computed before there is a model or a picture. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from visiontrain.config.sizes import Counts
from visiontrain.data.index_size import PER_IMAGE, PER_OBJECT, index_bytes

# COCO 2017 as counted in Liu et al., Deep Learning for Generic Object Detection: A Survey, IJCV 128, 2020, table 3.
OBJECTS_PER_IMAGE = 860_001 / 118_287
PATH_BYTES = 64  # of a path, where there is none to look at
GRADIENT = 4  # bytes of a number: float32, under mixed precision too
STATISTICS = 16  # bytes of a BatchNorm channel: mean and variance, summed in float64
WORTH_A_SENTENCE = 10**8  # bytes of an index
AVERAGED = ("batch",)  # normalisations whose running statistics differ between ranks until they are averaged


def choose_reduction(reduce: str, accumulate: int, ranks: int) -> str:
    """How ranks sum their gradients: ``none``, ``window`` or ``ddp``; once for a run, by the nominal ``accumulate``.

    Args:
        reduce: the setting: auto, window or ddp.
        accumulate: micro-batches of a window after the warm-up.
        ranks: data-parallel processes.
    """
    if ranks == 1:
        return "none"
    if reduce == "auto":
        return "ddp" if accumulate == 1 else "window"
    return reduce


def reduction_sentence(reduce: str, accumulate: int, ranks: int) -> str:
    """What the plan says of it, "" where there is nothing to know."""
    way = choose_reduction(reduce, accumulate, ranks)
    if way == "none":
        return "" if reduce == "auto" else f"reduce={reduce}: one rank reduces nothing."
    when = {"window": "once, at the end of a window", "ddp": "while the last backward pass of a window runs"}[way]
    many = "one micro-batch" if accumulate == 1 else f"{accumulate} micro-batches"
    why = f"{way}, reduce=auto: a window is {many}" if reduce == "auto" else f"reduce={reduce}"
    return f"The ranks sum their gradients {when} ({why})."


@dataclass(frozen=True, slots=True)
class Footprint:
    """What is known of model and data. ``path_bytes`` is the mean length of the paths, None where none was looked at."""

    counts: Counts
    classes_known: bool = False
    path_bytes: float | None = None

    def sentences(self, ranks: int, norm: str, images: int) -> Iterator[str]:
        """For the plan.

        Args:
            ranks: data-parallel processes.
            norm: the normalisation that was decided.
            images: training images; 0: not known.
        """
        counts = self.counts
        if ranks > 1:
            moved = self.moved(ranks, norm)
            assumed = "" if self.classes_known else ", which is assumed"
            statistics = f" and {_size(moved['statistics_bytes'])} of BatchNorm's statistics" * (norm in AVERAGED)
            passes = " What SyncBatchNorm sums in every pass comes on top." * (norm == "sync")
            yield (
                f"An update sums {_size(moved['gradient_bytes'])} of gradient{statistics} over the ranks"
                f" ({counts.parameters} parameters of {counts.name} at {counts.classes} classes{assumed},"
                f" {GRADIENT} bytes each); in a ring each rank sends {_size(moved['ring_bytes'])}, 2 x {ranks - 1}/{ranks}"
                f" of it. Computed, not measured.{passes}"
            )
        index = self.index(images)
        if index["bytes"] >= WORTH_A_SENTENCE:
            yield (
                f"The index of the data takes {_size(index['bytes'])}, once on the host that reads it, where ranks and workers map"
                f" one file, and in each rank of other hosts: {PER_IMAGE} bytes an"
                f" image, {index['bytes_per_path']:.4g} its path{' (assumed)' * index['path_assumed']}, {PER_OBJECT} an object, at"
                f" {OBJECTS_PER_IMAGE:.2f} objects an image as in COCO 2017."
            )

    def facts(self, ranks: int, norm: str, images: int) -> dict[str, Any]:
        """The same as numbers, for JSON."""
        counts = self.counts
        return {
            "model": {
                "name": counts.name,
                "parameters": counts.parameters,
                "classes": counts.classes,
                "classes_assumed": not self.classes_known,
            },
            "moved": self.moved(ranks, norm),
            "index": self.index(images) if images else None,
        }

    def moved(self, ranks: int, norm: str) -> dict[str, int]:
        """Bytes that the ranks sum in an update, and what a ring all-reduce of them makes each rank send.

        Source:
            Patarasu and Yuan, Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations, JPDC 69, 2009.
        """
        gradient = GRADIENT * self.counts.parameters if ranks > 1 else 0
        statistics = STATISTICS * self.counts.channels if ranks > 1 and norm in AVERAGED else 0
        ring = math.ceil(2 * (ranks - 1) * (gradient + statistics) / ranks)
        return {"gradient_bytes": gradient, "statistics_bytes": statistics, "ring_bytes": ring}

    def index(self, images: int) -> dict[str, Any]:
        """Bytes of the index of so many images, and what they were computed from."""
        length = PATH_BYTES if self.path_bytes is None else self.path_bytes
        return {
            "bytes": index_bytes(images, images * OBJECTS_PER_IMAGE, images * length),
            "bytes_per_image": PER_IMAGE,
            "bytes_per_object": PER_OBJECT,
            "bytes_per_path": length,
            "path_assumed": self.path_bytes is None,
            "objects_per_image": OBJECTS_PER_IMAGE,
        }


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count} bytes"
