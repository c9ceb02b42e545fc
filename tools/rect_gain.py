"""How many pixels rect=true saves on a data set: windows of like shape, windows as they come, each picture for itself.

python tools/rect_gain.py data=coco128/data.yaml nbs=64,16 [imgsz=640] [epochs=10]
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np

from visiontrain.config.groups import AugmentConfig, SamplingConfig
from visiontrain.config.parse import parse_words
from visiontrain.config.schema import TrainConfig
from visiontrain.data.dataset import TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.index import Index, read_split
from visiontrain.data.window_size import fitted_sides, fitted_size


def shares(index: Index, config: TrainConfig, block: int) -> tuple[float, float, float]:
    """Pixels against windows all of imgsz: with rect, of shuffled windows cut to fit, of each picture for itself."""
    common = index, config.imgsz, AugmentConfig(), config.seed, config.epochs
    rect, plain = TrainSet(*common, SamplingConfig(rect=True), block), TrainSet(*common)
    ours = shuffled = 0
    for epoch in range(config.epochs):
        for start in range(0, len(index), block):
            window = (start, min(start + block, len(index)))
            images = window[1] - start
            ours += images * math.prod(rect.size(epoch, window))
            there = index.sizes[plain.order(epoch)[np.arange(*window)]]
            shuffled += images * math.prod(fitted_size(config.imgsz, there))
    alone = config.epochs * int(fitted_sides(config.imgsz, index.sizes).prod(axis=1).sum())
    whole = config.epochs * len(index) * math.prod(config.imgsz)
    return ours / whole, shuffled / whole, alone / whole


def main(words: Sequence[str]) -> None:
    blocks = next((word.split("=")[1] for word in words if word.startswith("nbs=")), "64")
    config = parse_words(
        TrainConfig,
        [
            *([] if any(w.startswith("epochs=") for w in words) else ["epochs=10"]),
            *(word for word in words if not word.startswith("nbs=")),
        ],
    )
    index = read_split(load_description(config.data), "train")
    for block in map(int, blocks.split(",")):
        ours, shuffled, alone = shares(index, config, block)
        print(f"{len(index)} pictures, {block} per update: rect {ours:.0%}, shuffled {shuffled:.0%}, alone {alone:.0%}")


if __name__ == "__main__":
    main(sys.argv[1:])
