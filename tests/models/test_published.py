"""Weights that others published: fetched when asked, resumed, checked, confirmed once."""

from __future__ import annotations

import hashlib

import pytest

from visiontrain import cli, fetching
from visiontrain.actions import with_published
from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.errors import WeightsError
from visiontrain.models import build_model, published
from visiontrain.models.published import Published, catalogue, located
from visiontrain.models.weights import read_checkpoint
from visiontrain.source import untrusted
from visiontrain.training.checkpoint import About, save_model

CONTENT = bytes(range(256)) * 40
SUM = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def shelf(server, monkeypatch, user_cache):
    """Names of published weights, with what this project knows of their sum."""
    server.files["thing.pt"] = CONTENT

    def entry(sha256: str, verified: bool, size: int = 0) -> Published:
        return Published("thing.pt", "yolov8", server.url("thing.pt"), size, sha256, "MIT", "somebody", verified)

    entries = {
        "known": entry(SUM, True),
        "wrong": entry("0" * 64, True),
        "told": entry(SUM, False, len(CONTENT)),
        "unknown": entry("", False),
    }
    for name, each in entries.items():
        object.__setattr__(each, "name", f"{name}.pt")
    monkeypatch.setattr(published, "catalogue", lambda: entries)
    return user_cache / "weights"


def test_nothing_is_fetched_unasked_and_source_and_licence_are_said(server, shelf):
    with pytest.raises(WeightsError, match=r"known\.pt is published by somebody, licence MIT.*write download=true"):
        located("known.pt", False, "")
    assert not server.log


def test_what_was_fetched_is_there_for_later(server, shelf, capsys):
    place = located("known.pt", True, "")
    assert place == str(shelf / "known.pt") and (shelf / "known.pt").read_bytes() == CONTENT
    assert "published by somebody, licence MIT" in capsys.readouterr().err
    assert located("known.pth", False, "") == place and len(server.log) == 1


@pytest.mark.parametrize("name", ["known.pt", "unknown.pt"])
def test_a_cut_is_resumed(server, shelf, name):
    server.cuts = [1000, 3000]
    located(name, True, SUM if name == "unknown.pt" else "")
    assert server.log == ["", "bytes=1000-", "bytes=4000-"] and server.sent == len(CONTENT)


def test_without_a_network_it_says_what_to_put_where_and_goes_on_later(server, shelf):
    server.cuts = [1000, *[0] * fetching.FAILURES]
    with pytest.raises(
        WeightsError, match=rf"What came is kept.*thing\.pt elsewhere and put it there as {shelf}/known\.pt"
    ):
        located("known.pt", True, "")
    located("known.pt", True, "")
    assert server.sent == len(CONTENT)


def test_another_file_is_not_used_and_not_kept(server, shelf):
    with pytest.raises(WeightsError, match=rf"SHA-256 is {SUM} and weights\.yaml says 0000"):
        located("wrong.pt", True, "")
    assert not [p for p in shelf.iterdir() if p.suffix != ".lock"]


def test_a_sum_that_nobody_verified_is_confirmed_before_anything_comes(server, shelf):
    with pytest.raises(WeightsError, match=f"could not fetch it to verify that.*sha256={SUM}"):
        located("told.pt", True, "")
    assert not server.log
    with pytest.raises(WeightsError, match=rf"and sha256= says {'1' * 64}"):
        located("told.pt", True, "1" * 64)
    located("told.pt", True, SUM)
    assert located("told.pt", False, "") == str(shelf / "told.pt")  # once is enough


def test_a_sum_that_is_given_must_hold(server, shelf):
    """Also where this project has verified another, and of a file that is in the cache."""
    with pytest.raises(WeightsError, match=f"and sha256= says {'1' * 64}"):
        located("known.pt", True, "1" * 64)
    place = located("known.pt", True, SUM)
    with pytest.raises(WeightsError, match=rf"known\.pt: its SHA-256 is {SUM} and sha256= says {'1' * 64}"):
        located("known.pt", False, "1" * 64)
    assert located("known.pt", False, SUM) == place


def test_a_size_that_is_known_is_said_and_must_be_the_files(server, shelf):
    server.files["thing.pt"] = CONTENT + b"more"
    with pytest.raises(WeightsError, match=rf"file has {len(CONTENT) + 4} bytes and weights\.yaml says {len(CONTENT)}"):
        located("told.pt", True, SUM)
    assert not [p for p in shelf.iterdir() if p.suffix != ".lock"]
    with pytest.raises(WeightsError, match=r"told\.pt \(0\.0 MB\) is published"):
        located("told.pt", False, "")


def test_a_missing_file_of_a_models_name_tells_what_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        WeightsError, match=r"yolov9s to start from scratch; or for free weights one of v9-s\.pt, v9-m\.pt"
    ):
        read_checkpoint("yolov9s.pt")
    with pytest.raises(WeightsError, match="yolov8n to start from scratch; no weights of it are published"):
        read_checkpoint("yolov8n.pt")


def test_an_unknown_sum_is_told_and_confirmed_without_fetching_again(server, shelf):
    with pytest.raises(WeightsError, match=f"kept unused.*confirm once with: sha256={SUM}"):
        located("unknown.pt", True, "")
    assert not (shelf / "unknown.pt").exists()
    located("unknown.pt", True, SUM)
    assert (shelf / "unknown.pt").exists() and len(server.log) == 1


def test_a_file_of_the_users_goes_first(server, shelf, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "known.pt").touch()
    assert located("known.pt", True, "") == "known.pt" and located("runs/known.pt", True, "") == "runs/known.pt"
    assert located("unknown.onnx", True, "") == "unknown.onnx"  # an export of the user's that is not there
    with pytest.raises(WeightsError, match="nothing to confirm"):
        located("mine.pt", True, SUM)
    assert not server.log


def test_every_verb_takes_them(server, shelf, narrow, tiny, tmp_path, capsys):
    file = tmp_path / "made.pt"
    save_model(file, build_model("yolov8n", ["sun", "sea"]), About({"imgsz": 64, "data": str(tiny)}, [], {}, ""), {}, 1)
    server.files["thing.pt"] = file.read_bytes()
    words = ["model=unknown.pt", f"sha256={hashlib.sha256(file.read_bytes()).hexdigest()}", "download=true"]
    assert (
        cli.main(["predict", *words, f"source={tiny.parent}/images/val", "save=false", "imgsz=64", "device=cpu"]) == 0
    )
    words = ["model=unknown.pt"]
    assert cli.main(["val", *words, f"data={tiny}", "imgsz=64", "device=cpu", "workers=0", f"project={tmp_path}"]) == 0
    assert cli.main(["export", *words, "format=torchscript", f"out={tmp_path / 'x.torchscript'}", "pictures=1"]) == 0
    assert cli.main(["plan", *words, "images=8"]) == 0
    assert cli.main(["predict", "model=known.pt", "source=x"]) == WeightsError.exit_code
    assert "write download=true" in capsys.readouterr().err
    config = with_published(build(TrainConfig, {"model": "unknown.pt", "data": str(tiny)}))
    assert config.model == str(shelf / "unknown.pt") and "model" in config.given


def test_what_is_listed():
    entries = catalogue()
    assert {entry.licence for entry in entries.values()} <= {"Apache-2.0", "MIT"}
    assert not any(untrusted(entry.url) or not entry.url.endswith(f"/{entry.name}") for entry in entries.values())
    assert all(len(entry.sha256) == 64 for entry in entries.values() if entry.sha256 or entry.verified)
