"""A training that is about to begin, with a toy detector: what a check watches."""

from __future__ import annotations

import pytest


@pytest.fixture
def begin(tiny):
    """Setup and job of a run of 13 pictures: windows of 2 x 2 images and a last one of 1."""
    from checks.toys import ToyDetector, toy_loss

    from visiontrain.config.schema import TrainConfig, build
    from visiontrain.data.description import load_description
    from visiontrain.data.index import read_split
    from visiontrain.distributed import Ranks, choose_device
    from visiontrain.training.checkpoint import TrainState
    from visiontrain.training.ema import EMA
    from visiontrain.training.interrupt import Interrupt
    from visiontrain.training.optimizer import build_optimizer
    from visiontrain.training.run import arrange, job_of

    def make(**settings):
        values = {"data": str(tiny), "imgsz": 32, "batch": 2, "nbs": 4, "epochs": 2, "warmup_epochs": 0, "workers": 0}
        config = build(TrainConfig, {**values, "device": "cpu", "optimizer": "SGD", **settings})
        description = load_description(config.data)
        indices = (read_split(description, split) for split in ("train", "val"))
        setup = arrange(config, Ranks(choose_device("cpu")), *indices, None)
        model = ToyDetector().train()
        optimizer = build_optimizer(model, setup.optimizer.config, setup.plan.weight_decay_used)
        state = TrainState(model, EMA(model), optimizer, setup.precision)
        job = job_of(setup, state, lambda event: None, Interrupt())
        job.criterion = toy_loss
        return setup, job

    return make
