"""cache= changes where pixels come from and nothing else."""

from __future__ import annotations

import json

import pytest
from ranks import run_on_ranks

from visiontrain import models
from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.distributed import ALONE
from visiontrain.errors import ConfigError
from visiontrain.models.weights import read_checkpoint
from visiontrain.training import caching
from visiontrain.training import run as recipe

NARROW = {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}}


def run_of(ranks, values):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "_sizes", lambda family: NARROW)
        plain = {"device": "cpu", "plots": False, "val": False, "imgsz": 64, "epochs": 2, "batch": 4, "nbs": 4}
        setup = recipe.prepare(build(TrainConfig, plain | values), None, ranks)
        return recipe.carry_out(setup, ()).folder


def weights_of(folder):
    return read_checkpoint(folder / "weights" / "last.pt")["weights"]


@pytest.mark.parametrize("kind", ["ram", "disk"])
def test_a_run_with_a_cache_is_the_run_without(tiny, tmp_path, user_cache, kind, capsys):
    values = {"data": str(tiny), "project": str(tmp_path), "workers": 1}
    plain, kept = run_of(ALONE, values), run_of(ALONE, values | {"cache": kind})
    assert "Training pictures are kept decoded in" in capsys.readouterr().out
    one, two = weights_of(plain), weights_of(kept)
    assert all(tensor.equal(two[name]) for name, tensor in one.items())
    assert json.loads((kept / "run.json").read_text())["given"]["settings"]["cache"] == kind
    left = [path.name for path in user_cache.rglob("*") if path.is_file() and "pictures" in path.parts]
    assert sorted(left) == (["pixels.bin", "state.json"] if kind == "disk" else [])


def test_two_ranks_share_one_cache(tiny, tmp_path):
    values = {"data": str(tiny), "project": str(tmp_path), "workers": 0}
    plain = run_on_ranks(2, run_of, values, timeout=60)
    kept = run_on_ranks(2, run_of, values | {"cache": "ram"}, timeout=60)
    one, two = weights_of(plain[0]), weights_of(kept[0])
    assert all(tensor.equal(two[name]) for name, tensor in one.items())


def test_memory_that_does_not_suffice_is_said_with_numbers(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(caching, "free_bytes", lambda device: 10_000)
    with pytest.raises(ConfigError, match=r"cache=ram: 13 pictures take .* GB at training size.*cache=disk"):
        run_of(ALONE, {"data": str(tiny), "project": str(tmp_path), "workers": 0, "cache": "ram"})


def test_too_little_shared_memory_is_said_and_fewer_workers_are_used(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(recipe, "fitting_workers", lambda wanted, *more: 1)
    run_of(ALONE, {"data": str(tiny), "project": str(tmp_path), "workers": 2, "epochs": 1})
    assert "room for the batches of 1 of 2 loader processes, so 1 are used" in capsys.readouterr().out
