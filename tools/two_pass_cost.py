"""What a window costs that runs twice: seconds of the processor with an auxiliary head against those without, in turn.

    python tools/two_pass_cost.py model=yolov9t imgsz=320 rounds=4

A window is two micro-batches of two noise pictures with seven boxes each, on one thread; of each the fastest round counts.
The last line is the one pass that would not be exact.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

import torch

from visiontrain.batch import Batch, Targets
from visiontrain.config.groups import LossConfig
from visiontrain.distributed import Ranks
from visiontrain.errors import VisionTrainError
from visiontrain.losses import LOSSES
from visiontrain.models import build_model
from visiontrain.models.detector import Detector
from visiontrain.training.precision import Precision
from visiontrain.training.two_pass import accumulate_twice
from visiontrain.training.window import WindowSums, accumulate_window

CPU = torch.device("cpu")
IMAGES, BOXES = 4, 7  # of the window, of a picture
Accumulate = Callable[..., WindowSums]


def main(words: Sequence[str]) -> None:
    given = {"model": "yolov9t", "imgsz": "320", "rounds": "4"} | dict(word.split("=", 1) for word in words)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    batch = noise(int(given["imgsz"]))
    plain, helped = (build_model(given["model"], ["a", "b", "c"], auxiliary=on).train() for on in (False, True))
    ways: dict[str, tuple[Detector, Accumulate]] = {
        "without auxiliary head": (plain, accumulate_window),
        "with it, twice": (helped, accumulate_twice),
        "with it, one pass": (helped, accumulate_window),
    }
    rounds = [{name: took(*way, batch) for name, way in ways.items()} for _ in range(int(given["rounds"]))]
    seconds = {name: min(each[name] for each in rounds) for name in ways}
    for name, each in seconds.items():
        print(f"{name:>22}  {each:6.2f} s  {each / seconds['without auxiliary head']:5.2f}")


def noise(side: int) -> Batch:
    """Pictures of ``side`` pixels and boxes anywhere on them."""
    pixels = torch.randint(0, 256, (IMAGES, 3, side, side), dtype=torch.uint8)
    corner = side * 0.6 * torch.rand(IMAGES * BOXES, 2)
    boxes = torch.cat((corner, corner + side * (0.05 + 0.3 * torch.rand(IMAGES * BOXES, 2))), 1)
    image = torch.arange(IMAGES).repeat_interleave(BOXES)
    return Batch(pixels, Targets(image, torch.zeros_like(image), boxes), tuple(range(IMAGES)))


def took(model: Detector, accumulate: Accumulate, batch: Batch) -> float:
    """Processor seconds of one window."""
    began, criterion = time.process_time(), LOSSES[model.loss](LossConfig())
    precision = Precision(CPU, torch.float32)
    accumulate(model, criterion, batch.split(2), ranks=Ranks(CPU), precision=precision, provisional=8.0)
    model.zero_grad(set_to_none=True)
    return time.process_time() - began


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (VisionTrainError, ValueError) as error:
        sys.exit(f"{error}")
