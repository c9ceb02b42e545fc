"""Train a detector from the public pieces, without the trainer: no folder, no evaluation, no resuming.

    python tools/plain_train.py data=shapes epochs=1 batch=8 imgsz=320

Each line is one the trainer has too; what it adds around them is recovery, evaluation and the record.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice

import torch

from visiontrain.config.parse import parse_words
from visiontrain.config.schema import TrainConfig
from visiontrain.data.dataset import TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.data.loader import training_loader
from visiontrain.distributed import Ranks, choose_device
from visiontrain.models import build_model
from visiontrain.models.detector import Detector
from visiontrain.nn.norm import swap_norms
from visiontrain.training.ema import EMA
from visiontrain.training.normalisation import choose_norm
from visiontrain.training.optimizer import build_optimizer, choose_optimizer, set_schedule
from visiontrain.training.plan import make_plan
from visiontrain.training.precision import choose_precision
from visiontrain.training.schedule import horizon, schedule_of
from visiontrain.training.setup import chosen, criterion_of
from visiontrain.training.update import apply_update
from visiontrain.training.window import accumulate_window, power_of_two


def plain_train(config: TrainConfig) -> Detector:
    """The averaged weights after ``config.epochs`` epochs."""
    torch.manual_seed(config.seed)
    description = load_description(config.data)
    index = chosen(config, read_split(description, "train"), description)
    plan = make_plan(
        batch=config.batch,
        nbs=config.nbs,
        images=len(index),
        epochs=config.epochs,
        weight_decay=config.optim.weight_decay,
        warmup_epochs=config.optim.warmup_epochs,
        normalisation=choose_norm(config.norm),
    )
    print(*plan.sentences(), sep="\n")

    device = choose_device(config.device)
    model = build_model(config.model, index.names)
    swap_norms(model, plan.normalisation.norm)
    model = model.to(device, memory_format=torch.channels_last).train()
    criterion = criterion_of(config, index, model.loss)
    optim = choose_optimizer(
        config.optim,
        config.given,
        updates=plan.updates,
        classes=len(index.names),
        images_per_update=plan.images_per_update,
    ).config
    optimizer = build_optimizer(model, optim, plan.weight_decay_used)
    schedule = schedule_of(plan, optim)
    precision, ema, look_back = choose_precision(device, config.amp), EMA(model), horizon(plan.images_planned)
    shared = config.augment, config.seed, config.epochs, config.sampling
    dataset = TrainSet(index, config.imgsz, *shared, block=plan.images_per_update)

    images, provisional = 0, 1.0
    for epoch in range(plan.epochs):
        windows = plan.windows(epoch)
        keys = [dataset.keys(epoch, window, *cut) for window in windows for cut in plan.micro_batches(*window)]
        batches = training_loader(dataset, keys, max(config.workers, 0))
        for start, stop in windows:
            window = list(islice(batches, len(plan.micro_batches(start, stop))))
            sums = accumulate_window(
                model, criterion, window, ranks=Ranks(device), precision=precision, provisional=provisional
            )
            lr, _ = set_schedule(optimizer, schedule, images + sums.images)
            update = apply_update(optimizer, sums, model.term_parameters(), precision)
            if update.applied:
                images += sums.images
                provisional = power_of_two(max(sums.weights.values()) / sums.micro_batches)
                ema.update(model, look_back.decay(sums.images, images))
            print(f"epoch {epoch + 1}  images {images}  loss {sums.loss:.3f}  lr {lr:.2e}  {update.reason}")
    return ema.model


if __name__ == "__main__":
    words: Sequence[str] = sys.argv[1:]
    plain_train(parse_words(TrainConfig, words))
