"""How far a window's gradient is from one batch's, on real pictures; and how far the mean of per-micro-batch ratios is.

    python tools/gradient_gap.py data=coco128.yaml images=32 imgsz=320

The same pictures are cut into micro-batches of 16, 8, 4, 2 and 1. BatchNorm is frozen, because no accumulation changes
what it sees. "relative" is ||a - b|| / ||b|| over the flattened gradient, before clipping.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from visiontrain.batch import Batch, collate
from visiontrain.checks import equality
from visiontrain.checks.equality import Pieces, relative
from visiontrain.config.groups import LossConfig
from visiontrain.data.dataset import EvalSet
from visiontrain.data.description import load_description
from visiontrain.data.index import Index, read_split
from visiontrain.distributed import Ranks
from visiontrain.errors import ConfigError, VisionTrainError
from visiontrain.losses import LOSSES
from visiontrain.models import build_model
from visiontrain.models.detector import Detector
from visiontrain.nn.norm import batch_norms, freeze_batch_norm
from visiontrain.training.precision import Precision
from visiontrain.training.two_pass import accumulator

CPU = torch.device("cpu")
MICRO_BATCHES = (16, 8, 4, 2, 1)
USAGE = (
    "python tools/gradient_gap.py data=PATH [split=train] [images=32] [imgsz=320] [model=yolov8n] [seed=0] "
    "[statistics=fresh|pictures] [auxiliary=false|true] [format=text|json]"
)


@dataclass(frozen=True)
class Settings:
    """``imgsz`` in pixels; ``images`` are spread evenly over the split; ``statistics`` of the frozen BatchNorm."""

    data: str
    split: str = "train"
    images: int = 32
    imgsz: int = 320
    model: str = "yolov8n"
    seed: int = 0
    statistics: str = "fresh"
    auxiliary: str = "false"
    format: str = "text"


@dataclass(frozen=True)
class Row:
    """Relative differences to one batch's gradient for micro-batches of ``m``."""

    m: int
    fp32: float
    fp64: float
    mean_of_ratios: float


def main(words: Sequence[str]) -> None:
    settings = read_words(words)
    index = read_split(load_description(settings.data), settings.split)
    batch = pictures(index, settings.images, settings.imgsz)
    model = frozen_model(settings, index.names, batch)
    say(settings, batch)
    rows = compare(model, batch)
    if settings.format == "json":
        print(json.dumps([vars(row) for row in rows]))


def read_words(words: Sequence[str]) -> Settings:
    kinds = {name: type(value) for name, value in vars(Settings("")).items()}
    values: dict[str, str | int] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in kinds or not value or (kinds[name] is int and not value.isdecimal()):
            raise ConfigError(f"{word}: not understood\nusage: {USAGE}")
        values[name] = kinds[name](value)
    if "data" not in values:
        raise ConfigError(f"data= is missing\nusage: {USAGE}")
    if values.get("statistics", "fresh") not in ("fresh", "pictures"):
        raise ConfigError(f"statistics={values['statistics']}: not understood\nusage: {USAGE}")
    if values.get("auxiliary", "false") not in ("false", "true"):
        raise ConfigError(f"auxiliary={values['auxiliary']}: not understood\nusage: {USAGE}")
    return Settings(**values)


def pictures(index: Index, count: int, imgsz: int) -> Batch:
    """``count`` letterboxed pictures, spread over the split, as one batch: all get one size."""
    samples = EvalSet(index, imgsz)
    if count > len(samples):
        raise ConfigError(f"images={count}: the split has {len(samples)}")
    chosen = [samples[int(i)] for i in np.linspace(0, len(samples) - 1, count)]
    return collate(sorted(chosen, key=lambda sample: sample.position))


def frozen_model(settings: Settings, class_names: Sequence[str], batch: Batch) -> Detector:
    """Fresh weights and frozen BatchNorm: with mean 0 and variance 1, or with the statistics of the pictures.

    With mean 0 and variance 1 little of the pictures reaches the head, as at the start of every training from scratch;
    with the pictures' own statistics every layer counts, and float32 shows more of its rounding.
    """
    torch.manual_seed(settings.seed)
    model = build_model(settings.model, class_names, auxiliary=settings.auxiliary == "true").train()
    if settings.statistics == "pictures":
        for norm in batch_norms(model):
            norm.momentum = None  # cumulative: the plain mean of what it sees
        with torch.no_grad():
            for part in batch.split(8):
                model(part.to(CPU).images)
    freeze_batch_norm(model)
    return model


def compare(model: Detector, batch: Batch) -> list[Row]:
    """One row for each size of micro-batch, printed as it comes."""
    single = gradient(model, batch.split(len(batch)))
    double = gradient(model.double(), batch.split(len(batch)))
    rows = []
    for m in MICRO_BATCHES:
        if m >= len(batch):
            continue
        parts = batch.split(m)
        fp64 = relative(gradient(model.double(), parts), double)
        fp32 = relative(gradient(model.float(), parts), single)
        ratios = sum(gradient(model, [part]) for part in parts)
        rows.append(Row(m, fp32, fp64, relative(ratios, single)))
        print(f"{m:>11}   {fp32:>8.1e}   {fp64:>8.1e}   {100 * rows[-1].mean_of_ratios:>12.1f} %", flush=True)
    return rows


def gradient(model: Detector, micro_batches: Sequence[Batch]) -> Tensor:
    """The window's gradient, flattened, in float64."""
    pieces = Pieces(LOSSES[model.loss](LossConfig()), Ranks(CPU), accumulator(model.term_parameters()))
    precision = Precision(CPU, next(model.parameters()).dtype)
    return equality.gradient(pieces, model, micro_batches, precision).vector.double()


def say(settings: Settings, batch: Batch) -> None:
    height, width = batch.images.shape[-2:]
    counts = torch.bincount(batch.targets.image, minlength=len(batch))
    print(
        f"{settings.model}, fresh weights, BatchNorm frozen with {settings.statistics} statistics; {len(batch)} pictures of {settings.data}, {width} x {height} px, "
        f"{len(batch.targets)} objects ({int(counts.min())} to {int(counts.max())} in a picture)\n"
        "Relative difference to the gradient of the same pictures as one batch:\n\n"
        "micro-batch       fp32       fp64   mean of ratios"
    )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except VisionTrainError as error:
        sys.exit(f"{error}")
