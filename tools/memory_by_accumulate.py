"""Peak memory of a window against the number of its micro-batches, at equal m: accumulating must cost (nearly) nothing.

    python tools/memory_by_accumulate.py data=coco128.yaml batch=4 imgsz=320 accumulate=2,16 windows=2

Each number of micro-batches runs in a process of its own, with the settings of ``visiontrain train`` and the trainer's
pieces: augmented pictures, AdamW, the averaged weights. The window's decoded pictures stay on the host until its update; on
the CPU they are part of the figures. The last line compares the last process with the first.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import torch

from visiontrain.config.parse import parse_words
from visiontrain.config.schema import TrainConfig
from visiontrain.data.dataset import TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.data.loader import training_loader
from visiontrain.data.sampler import WindowSampler
from visiontrain.distributed import Ranks, choose_device
from visiontrain.losses import LOSSES
from visiontrain.memory import Phases, peak_is_of
from visiontrain.training.ema import EMA
from visiontrain.training.optimizer import allocate_state, build_optimizer
from visiontrain.training.precision import choose_precision
from visiontrain.training.start import model_with, normalisation_of
from visiontrain.training.update import apply_update
from visiontrain.training.window import accumulate_window

OWN = {"accumulate": "2,16", "windows": "2", "one": ""}


def main(words: Sequence[str]) -> None:
    """Measure each number in a child process and print the table, or be the child."""
    given = dict(word.split("=", 1) for word in words)
    own = {name: given.pop(name, default) for name, default in OWN.items()}
    settings = [f"{name}={value}" for name, value in given.items()]
    if own["one"]:
        print(json.dumps(measure(parse_words(TrainConfig, settings), int(own["one"]), int(own["windows"]))))
        return
    peaks, rises = [], []
    for accumulate in own["accumulate"].split(","):
        command = [sys.executable, __file__, *settings, f"one={accumulate}", f"windows={own['windows']}"]
        said = subprocess.run(command, capture_output=True, text=True)
        if said.returncode:
            sys.exit(f"{' '.join(command)}\n{said.stderr}")
        result = json.loads(said.stdout.splitlines()[-1])
        peaks.append(result["peak"])
        rises.append(result["peak"] - result["phases"]["baseline"])
        figures = ", ".join(f"{name} {peak / 1e6:.1f}" for name, peak in result["phases"].items())
        print(f"A={accumulate:>3}: peak {result['peak'] / 1e6:.1f} MB ({figures}; {result['of']})", flush=True)
    print(
        f"ratio of the peaks {peaks[-1] / peaks[0]:.4f}, of their rises above the baseline {rises[-1] / rises[0]:.4f}"
    )


def measure(config: TrainConfig, accumulate: int, windows: int) -> dict[str, object]:
    """Peaks in bytes by phase, over ``windows`` windows of ``accumulate`` micro-batches of ``config.batch``."""
    torch.manual_seed(config.seed)
    device = choose_device(config.device)
    index = read_split(load_description(config.data), "train")
    dataset = TrainSet(index, config.imgsz, config.augment, config.seed, epochs=1000)
    norm = normalisation_of(config).norm
    model = model_with(config, index.names, norm).to(device, memory_format=torch.channels_last).train()
    ema, criterion, precision = EMA(model), LOSSES[model.loss](config.loss), choose_precision(device, config.amp)
    optimizer = build_optimizer(model, replace(config.optim, optimizer="AdamW", lr0=1e-4), 5e-4)
    allocate_state(optimizer)
    phases = Phases(device)
    phases.close("baseline")
    size = config.batch * accumulate
    spans = [(start, start + size) for start in range(0, windows * size, size)]
    positions = ([(e, p % len(index)) for e, p in keys] for keys in WindowSampler(spans, config.batch, 0))
    batches = training_loader(dataset, positions, max(config.workers, 0))
    for number, _ in enumerate(spans):
        window = list(islice(batches, accumulate))
        sums = accumulate_window(model, criterion, window, ranks=Ranks(device), precision=precision, provisional=64.0)
        apply_update(optimizer, sums, model.term_parameters(), precision)
        ema.update(model, 0.99)
        phases.close("first window" if number == 0 else "later windows")
    return {
        "peak": phases.peak,
        "of": peak_is_of(device),
        "phases": {name: figures["peak"] for name, figures in phases.figures.items()},
    }


if __name__ == "__main__":
    main(sys.argv[1:])
