"""checkpoint_blocks: the same gradients, statistics counted once, random numbers drawn alike, less kept."""

from __future__ import annotations

import pytest
import torch
from laws.toys import ALONE, Narrow, flat, full_precision, relative
from torch import nn

from visiontrain.models import build_model
from visiontrain.models.yolov8 import YOLOv8
from visiontrain.nn.norm import NORMS, running_statistics, swap_norms
from visiontrain.nn.recompute import recomputed, untouched_statistics
from visiontrain.training.window import accumulate_window

torch.set_num_threads(1)


def window(norm: str, checkpoint_blocks: bool, dtype: torch.dtype) -> YOLOv8:
    """A narrow detector after forward and backward of a window of three micro-batches."""
    world = Narrow(dtype)
    torch.manual_seed(0)
    model = YOLOv8("yolov8n", ["a", "b", "c"], depth=0.33, width=0.0625, widest=1024).to(dtype).train()
    swap_norms(model, norm)
    model.checkpoint_blocks = checkpoint_blocks
    parts = world.batch().split(6)
    accumulate_window(model, world.criterion, parts, ranks=ALONE, precision=full_precision(dtype))
    return model


@pytest.mark.parametrize("norm", sorted(NORMS))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradients_and_statistics_are_those_of_a_run_without(norm, dtype):
    plain, again = window(norm, False, dtype), window(norm, True, dtype)
    gradients = [flat([p.grad for p in model.parameters()]) for model in (again, plain)]
    assert gradients[0].norm() > 0
    if dtype == torch.float64:
        assert relative(*gradients) <= 1e-12
    assert torch.equal(*gradients)  # the same operations on the same numbers: resuming with the other setting is exact
    statistics = [running_statistics(model) for model in (again, plain)]
    assert bool(statistics[0]) == (norm in ("batch", "sync"))
    assert all(torch.equal(a, b) for a, b in zip(*statistics, strict=True))


def test_random_numbers_are_drawn_alike_both_times():
    block = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5), nn.Linear(64, 64))
    x = torch.randn(4, 64, requires_grad=True)
    gradients, states = [], []
    for run in (block, lambda x: recomputed(block, x)):
        torch.manual_seed(3)
        (gradient,) = torch.autograd.grad(run(x).square().sum(), x)
        gradients.append(gradient)
        states.append(torch.get_rng_state())
    assert torch.equal(*gradients) and torch.equal(*states)


def test_statistics_are_their_own_again_after_an_error():
    block = nn.Sequential(nn.BatchNorm2d(3))
    before = running_statistics(block)
    with pytest.raises(RuntimeError, match="out of memory"), untouched_statistics(block):
        block(torch.randn(2, 3, 4, 4))
        raise RuntimeError("out of memory")
    assert all(a is b for a, b in zip(running_statistics(block), before, strict=True))
    assert [int(t.count_nonzero()) for t in before] == [0, 3, 0]


def test_evaluation_keeps_nothing_back(monkeypatch):
    model = build_model("yolov8n", ["a"]).eval()
    model.checkpoint_blocks = True
    monkeypatch.setattr("visiontrain.models.detector.recomputed", None)  # calling it would fail
    model(torch.rand(1, 3, 64, 64))


def kept_bytes(model: nn.Module, images: torch.Tensor) -> int:
    """Bytes that autograd holds between forward and backward, each storage once, parameters and buffers not counted."""
    own = {t.untyped_storage().data_ptr() for t in model.state_dict().values()}
    held: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()  # kept alive, so no other gets its address
        if storage.data_ptr() not in own:
            held[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(images)
    return sum(storage.nbytes() for storage in held.values())


@pytest.mark.parametrize("norm", sorted(NORMS))
def test_at_least_a_third_less_is_kept(norm):
    """yolov8n, method of ``kept_bytes``: tensors saved for the backward pass, seen by torch's hooks."""
    model = build_model("yolov8n", ["a"]).train()
    swap_norms(model, norm)
    images = torch.rand(2, 3, 160, 160)
    plain = kept_bytes(model, images)
    model.checkpoint_blocks = True
    again = kept_bytes(model, images)
    print(f"{norm}: {plain / 1e6:.1f} MB kept, with checkpoint_blocks {again / 1e6:.1f} MB")
    assert again <= plain * 2 / 3
