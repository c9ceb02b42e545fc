"""What a run of two ranks leaves behind: who computed where, each with figures of its own; and what D is."""

from __future__ import annotations

import json

import pytest
import torch
from ranks import run_on_ranks

from visiontrain import models
from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.distributed import Ranks
from visiontrain.errors import ConfigError
from visiontrain.memory import is_out_of_memory
from visiontrain.models.weights import read_checkpoint
from visiontrain.training import run as recipe
from visiontrain.training import transaction
from visiontrain.training.telling import idle_devices
from visiontrain.training.window import accumulate_window

SETTINGS = {"device": "cpu", "workers": 0, "plots": False, "imgsz": 64, "epochs": 1, "warmup_epochs": 0}


def run(ranks, values, fails=False):
    """A run with a narrow network; with ``fails`` rank 1 runs out of memory in its second window."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "_sizes", lambda family: {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}})
        accumulate, windows = accumulate_window, 0

        def failing(*arguments, before, **named):
            nonlocal windows
            windows += 1

            def first(batch):
                if fails and ranks.rank == 1 and windows == 2:
                    error = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")
                    assert is_out_of_memory(error)
                    raise error
                before(batch)

            return accumulate(*arguments, before=first, **named)

        patch.setattr(transaction, "accumulator", lambda reach: failing)
        return recipe.carry_out(recipe.prepare(build(TrainConfig, SETTINGS | values), None, ranks), ()).folder


def test_the_record_has_places_and_figures_of_each_rank(tiny, tmp_path):
    values = {"data": str(tiny), "project": str(tmp_path), "batch": 4, "nbs": 8}
    folder, same = run_on_ranks(2, run, values)
    assert folder == same == tmp_path / "run" and [p.name for p in tmp_path.iterdir()] == ["run"], "rank 0 alone writes"
    record = json.loads((folder / "run.json").read_text())
    assert record["computed"]["parallel"] == {"data": 2, "tensor": 1, "pipeline": 1}
    assert (record["computed"]["ranks"], record["computed"]["micro_batch"]) == (2, 2)
    places = record["measured"]["places"]
    assert [(place["rank"], place["device"]) for place in places] == [(0, "cpu"), (1, "cpu")]
    assert len({place["process"] for place in places}) == 2 and all(place["host"] for place in places)
    phases = record["measured"]["memory"]["phases"]
    assert phases.keys() == {"rank 0, cpu", "rank 1, cpu"}, "never summed"
    assert all(figures["later windows"]["peak"] > 0 for figures in phases.values())
    assert record["measured"]["positions"] == {"applied": 13}


def test_out_of_memory_inside_a_reduction_ends_all_with_a_checkpoint_of_half_the_size(tiny, tmp_path):
    """reduce=ddp: rank 0 waits in its backward pass and can be told nothing."""
    values = {"data": str(tiny), "project": str(tmp_path), "batch": 4, "nbs": 4}
    with pytest.raises(AssertionError) as caught:
        run_on_ranks(2, run, values, True)
    said = str(caught.value)
    assert "OutOfMemory: rank 1: Out of memory" in said and "go on, with the smaller micro-batches, with:" in said
    assert "RankLost: rank 1 (host" in said and "ended: OutOfMemory" in said
    state = read_checkpoint(tmp_path / "run" / "weights" / "last.pt")["state"]
    assert (state["micro_batch"], state["position"], state["updates_applied"]) == (1, 4, 1)


def test_d_counts_data_parallel_ranks_and_not_cards(tiny, monkeypatch):
    """Four cards, of which two share a model: two ranks."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    config = build(TrainConfig, SETTINGS | {"data": str(tiny), "batch": 4, "nbs": 8})
    indices = [read_split(load_description(config.data), split) for split in ("train", "val")]
    setup = recipe.arrange(config, Ranks(torch.device("cpu"), rank=0, size=2), *indices, None)
    setup.val_loader.close()
    assert setup.plan.ranks == 2 and setup.plan.images_per_update == 8
    assert setup.plan.sentences()[0].startswith("2 images x 2 micro-batches x 2 ranks = 8 images per update")


def test_a_card_that_no_rank_uses_is_said_in_plain_words():
    assert (
        idle_devices(2, 1)
        == "2 GPUs are here and 1 rank computes: a second card doubles D only as a rank of its own, device=0,1."
    )
    assert idle_devices(1, 1) == idle_devices(2, 2) == idle_devices(0, 2) == ""


@pytest.mark.parametrize("name", ["fsdp", "tensor_parallel", "pipeline_parallel", "zero", "no_sync"])
def test_engines_that_are_not_built_cannot_be_asked_for(name):
    with pytest.raises(ConfigError, match=f"no setting '{name}'"):
        build(TrainConfig, {"data": "d", name: True})
