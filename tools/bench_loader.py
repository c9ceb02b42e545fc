"""Training samples per second of one process, and where the time goes.

    python tools/bench_loader.py data=coco128 imgsz=640 [samples=512] [repeat=16] [cache=ram] [partners=any] [processes=1] [format=json]

``repeat`` lists each picture that many times over, so that a small data set cannot stay in memory as a whole: a picture
is decoded as often as in a large one. With ``cache=ram`` all are decoded once before the clock starts, as they are after
the first epoch. With ``processes`` batches also come from so many loader processes, as in a training whose model takes no time.
Stages are shares of the same minutes; samples per second cannot be compared with another day's. Compare
with a peer by running both in turn.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import cv2
import numpy as np

from visiontrain.config.parse import parse_words
from visiontrain.config.schema import TrainConfig
from visiontrain.data import augment, image, pixels
from visiontrain.data.augment import affine
from visiontrain.data.cache import close, in_memory
from visiontrain.data.dataset import TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.index import Index, read_split
from visiontrain.data.loader import Loader
from visiontrain.data.pixels import room, sides
from visiontrain.data.sampler import APART, BACK, BLOCK, WindowSampler

OWN = {"samples": "512", "repeat": "16", "processes": "0", "format": "text"}
BATCH = 8  # images that a loader process hands over together
STAGES = {  # what is timed; a stage inside another is taken off it
    "open and decode": [(image, "read")],
    "shrink to training size": [(image, "resize")],
    "draw tiles": [(affine, "paint")],
    "boxes": [(affine, "clip_boxes"), (affine, "move_boxes")],
    "colour": [(augment.AUGMENTATIONS, "colour")],
    "flip": [(augment.AUGMENTATIONS, "flip")],
}


class Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            before, others = time.perf_counter(), sum(self.seconds.values())
            result = call(*arguments)
            self.seconds[name] += time.perf_counter() - before - (sum(self.seconds.values()) - others)
            return result

        return timed

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Put the clock around every stage, and take it away again."""
        with ExitStack() as stack:
            for name, places in STAGES.items():
                for owner, attribute in places:
                    stack.enter_context(_replaced(owner, attribute, lambda call, name=name: self.around(name, call)))
            yield


@contextmanager
def _replaced(owner: Any, name: str, change: Callable[[Any], Any]) -> Iterator[None]:
    content = owner if isinstance(owner, dict) else vars(owner)
    before = content[name]
    content[name] = change(before)
    try:
        yield
    finally:
        content[name] = before


def repeated(index: Index, times: int) -> Index:
    """The same pictures listed ``times`` over."""
    n = len(index.path_ends)

    def ends(column: np.ndarray) -> np.ndarray:
        return np.concatenate([column + k * int(column[-1]) for k in range(times)]) if n else column

    return replace(
        index,
        path_bytes=np.tile(index.path_bytes, times),
        path_ends=ends(index.path_ends),
        sizes=np.tile(index.sizes, (times, 1)),
        box_ends=ends(index.box_ends),
        all_boxes=np.tile(index.all_boxes, (times, 1)),
        all_classes=np.tile(index.all_classes, times),
    )


def through_processes(dataset: TrainSet, processes: int, warm: int, samples: int) -> float:
    """Milliseconds between samples that come from loader processes, after the first ``warm``."""
    batches = WindowSampler([(0, warm // BATCH * BATCH + samples)], BATCH, 0)
    with Loader(dataset, processes) as loader:
        run = loader.run(batches)
        for _ in range(warm // BATCH):
            next(run)
        began = time.perf_counter()
        count = sum(map(len, run))
        return 1000 * (time.perf_counter() - began) / count


def measure(config: TrainConfig, samples: int, repeat: int, processes: int) -> dict[str, Any]:
    """Samples per second without the clock, then the shares with it, over other positions."""
    cv2.setNumThreads(0)
    index = repeated(read_split(load_description(config.data), "train"), repeat)
    cache = in_memory(*sides(index, config.imgsz)) if config.cache else None

    def training(makers: int = 1) -> TrainSet:
        kept = room(config.imgsz, makers)
        return TrainSet(index, config.imgsz, config.augment, config.seed, epochs=1000, kept=kept, cache=cache)

    dataset = training()
    if cache:
        for number in range(len(index)):
            dataset.pixels[number]
    warm = min(
        BACK * APART + BLOCK, len(index) // 3
    )  # until what partners need is there, as it is but for the start of an epoch
    for position in range(warm):
        dataset[0, position]
    decoded = [0]
    with _replaced(
        pixels, "read", lambda call: lambda *words: (decoded.__setitem__(0, decoded[0] + 1), call(*words))[1]
    ):
        began = time.perf_counter()
        for position in range(warm, warm + samples):
            dataset[0, position]
        seconds = time.perf_counter() - began
    clock = Clock()
    with clock.watching():
        began = time.perf_counter()
        for position in range(warm + samples, warm + 2 * samples):
            dataset[0, position]
        whole = time.perf_counter() - began
    arrive = through_processes(training(processes), processes, warm, samples) if processes else None
    if cache:
        close(cache)
    shares = {name: clock.seconds[name] / whole for name in STAGES}
    return {
        "samples_per_second": samples / seconds,
        "milliseconds": 1000 * seconds / samples,
        "milliseconds_through_processes": arrive,
        "decoded_per_sample": decoded[0] / samples,
        "shares": {**shares, "everything else": 1 - sum(shares.values())},
    }


def main(words: Sequence[str]) -> None:
    pairs = dict(word.split("=", 1) for word in words)
    own = {name: pairs.pop(name, value) for name, value in OWN.items()}
    config = parse_words(TrainConfig, [f"{name}={value}" for name, value in pairs.items()])
    if config.cache == "disk":
        raise SystemExit("cache=disk reads the same pages as cache=ram once they are in memory; measure cache=ram")
    result = measure(config, int(own["samples"]), int(own["repeat"]), int(own["processes"]))
    if own["format"] == "json":
        print(json.dumps(result))
        return
    print(
        f"{result['samples_per_second']:.0f} samples/s ({result['milliseconds']:.2f} ms each, one process) at {config.imgsz} px, "
        f"{result['decoded_per_sample']:.2f} pictures decoded for each"
    )
    if arrive := result["milliseconds_through_processes"]:
        print(f"{1000 / arrive:.0f} samples/s ({arrive:.2f} ms each) from loader processes: {own['processes']}")
    for name, share in result["shares"].items():
        print(f"{name:>24}  {100 * share:5.1f} %")


if __name__ == "__main__":
    main(sys.argv[1:])
