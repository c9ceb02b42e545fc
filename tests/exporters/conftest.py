from __future__ import annotations

from pathlib import Path

import pytest
import torch
from narrow import narrow_families

from visiontrain import models
from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.models.weights import SCHEMA_VERSION


@pytest.fixture(scope="module", autouse=True)
def slim():
    """As ``narrow``, for a whole module: writing ONNX takes seconds, so files are shared."""
    with pytest.MonkeyPatch.context() as patch:
        narrow_families(patch)
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(before)


@pytest.fixture(scope="module")
def checkpoints(slim, tiny, tmp_path_factory) -> dict[str, Path]:
    """A checkpoint of each family whose scores and boxes vary, though it was never trained, by the model's name."""
    found = {}
    for family in models.MODELS:
        torch.manual_seed(0)
        model = models.build_model(f"{family}n", ("sun", "sea"))
        for layer in model.modules():
            if isinstance(layer, torch.nn.BatchNorm2d):
                layer.momentum = 1.0
        model(torch.rand(4, 3, 96, 96))  # so that every layer has values of the size that trained ones have
        for name, weight in model.named_parameters():
            if name in model.class_tensors():
                torch.nn.init.normal_(weight, std=0.05)  # a larger one makes rounding larger too
        model.eval()
        settings = build(TrainConfig, {"data": str(tiny), "imgsz": 96}).leaves()
        content = {
            "schema_version": SCHEMA_VERSION,
            "kind": "model",
            "model": model.description(),
            "settings": settings,
        }
        path = tmp_path_factory.mktemp(family) / "best.pt"
        torch.save({**content, "weights": model.state_dict()}, path)
        found[f"{family}n"] = path
    return found
