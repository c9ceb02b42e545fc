"""Images per second of training and where the time goes, on this machine, with real data.

    python tools/bench_train.py data=shapes model=yolov8n imgsz=320 batch=8 windows=6

Stages of one run are shares of the same minutes, so they can be compared on a noisy machine; images per second cannot be
compared with another day's. Compare with a peer by running both in turn.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

import torch

from visiontrain.batch import Batch
from visiontrain.config.parse import parse_words
from visiontrain.config.schema import TrainConfig
from visiontrain.data.dataset import EvalSet, TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.data.loader import Loader, evaluation_loader, worker_count
from visiontrain.data.sampler import WindowSampler
from visiontrain.distributed import Ranks, choose_device
from visiontrain.evaluation.evaluator import evaluate
from visiontrain.losses import LOSSES
from visiontrain.memory import peak_bytes
from visiontrain.training.ema import EMA
from visiontrain.training.optimizer import build_optimizer
from visiontrain.training.precision import choose_precision
from visiontrain.training.start import model_with, normalisation_of
from visiontrain.training.two_pass import accumulator
from visiontrain.training.update import apply_update


class Clock:
    """Seconds by stage; ``around`` makes a callable that counts for a stage and is taken off the stage it runs in."""

    def __init__(self, device: torch.device) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.device = device

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        before, others = time.perf_counter(), sum(self.seconds.values())
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        inside = sum(self.seconds.values()) - others
        self.seconds[name] += time.perf_counter() - before - inside

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            with self.stage(name):
                return call(*arguments)

        return timed


def main(words: Sequence[str]) -> None:
    own = dict(word.split("=", 1) for word in words if word.split("=", 1)[0] in ("windows", "format"))
    config = parse_words(TrainConfig, [word for word in words if word.split("=", 1)[0] not in own])
    result = measure(config, int(own.get("windows", 6)))
    print(f"{config.model}, {config.imgsz} px, batch {config.batch}, {torch.get_num_threads()} threads")
    print(f"{result['images_per_second']:.1f} images/s in training, peak memory {result['peak_bytes'] / 1e9:.2f} GB")
    for name, share in result["shares"].items():
        print(f"{name:>12}  {100 * share:5.1f} %")
    print(f"{result['validation_images_per_second']:.1f} images/s in validation")
    if own.get("format") == "json":
        print(json.dumps(result))


def measure(config: TrainConfig, windows: int) -> dict[str, Any]:
    device = choose_device(config.device)
    description = load_description(config.data)
    index = read_split(description, "train")
    torch.manual_seed(config.seed)
    norm = normalisation_of(config).norm
    model = model_with(config, index.names, norm).to(device, memory_format=torch.channels_last).train()
    ema = EMA(model)  # before the model is wrapped: it copies all that is set on it
    clock = Clock(device)
    criterion = clock.around("loss", LOSSES[model.loss](config.loss))
    forward = model.forward
    model.forward = clock.around("forward", forward)  # type: ignore[method-assign]
    optimizer = build_optimizer(model, replace(config.optim, optimizer="AdamW"), 5e-4)
    precision = choose_precision(device, config.amp)
    dataset = TrainSet(index, config.imgsz, config.augment, seed=config.seed, epochs=1000)
    size = max(config.nbs // config.batch, 1) * config.batch
    spans = [(k * size % len(index), k * size % len(index) + size) for k in range(windows + 1)]
    spans = [(start, min(stop, len(index))) for start, stop in spans]
    images = 0
    with Loader(dataset, worker_count(config.workers), device.type == "cuda") as loader:
        batches = loader.run(WindowSampler(spans, config.batch, 0))
        for number, (start, stop) in enumerate(spans):
            if number == 1:  # the first window warms up
                clock.seconds.clear()
                began, images = time.perf_counter(), 0
            with clock.stage("loading"):
                window: list[Batch] = list(islice(batches, -(-(stop - start) // config.batch)))
            with clock.stage("backward"):
                sums = accumulator(model.term_parameters())(
                    model, criterion, window, ranks=Ranks(device), precision=precision, provisional=64.0
                )
            with clock.stage("update"):
                apply_update(optimizer, sums, model.term_parameters(), precision)
                ema.update(model, 0.99)
            images += sums.images
        seconds = time.perf_counter() - began
    model.forward = forward  # type: ignore[method-assign]
    val = read_split(description, "val")
    loader_val = evaluation_loader(EvalSet(val, config.imgsz), 2 * config.batch, worker_count(config.workers))
    began = time.perf_counter()
    evaluate(ema.model, loader_val, device=device, scoring=config.scoring, class_names=val.names, index=val)
    validation = len(val) / (time.perf_counter() - began)
    loader_val.close()
    return {
        "images_per_second": images / seconds,
        "shares": {name: value / seconds for name, value in clock.seconds.items()},
        "validation_images_per_second": validation,
        "peak_bytes": peak_bytes(device),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
