"""How much memory an image needs: on a CPU nothing raises before the machine is in trouble."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from visiontrain.batch import Batch
from visiontrain.nn.norm import running_statistics
from visiontrain.training.precision import Precision
from visiontrain.training.window import Criterion


def bytes_per_image(model: nn.Module, criterion: Criterion, batch: Batch, precision: Precision) -> float:
    """Measured: what one forward pass and its loss keep for the backward pass, parameters left out, over its images.

    Running statistics are as before afterwards.
    """
    kept: dict[int, int] = {}
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    parameter = next(model.parameters())
    statistics = running_statistics(model)
    before = [t.clone() for t in statistics]
    moved = batch.to(parameter.device, parameter.dtype)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), precision.autocast():
        loss = criterion(model(moved.images), moved.targets)
    del loss
    for tensor, value in zip(statistics, before, strict=True):
        tensor.copy_(value)
    return sum(kept.values()) / len(batch)
