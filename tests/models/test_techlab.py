"""YOLOv9 as the MIT project computes it and as its files store it; files made here have few channels and their names."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from narrow import LARGE_YOLOV9, SIZES
from torch import nn

from visiontrain import cli, models
from visiontrain.errors import WeightsError
from visiontrain.models import build_model
from visiontrain.models.weights import load_model, load_network, read_checkpoint
from visiontrain.nn.norm import freeze_batch_norm


def rows(expected, head, part):
    """All levels of one part, (4, A, channels); of a distance the sides are outermost, as here."""
    levels = [torch.from_numpy(expected[f"out/{head}/{level}/{part}"]) for level in range(3)]
    sides = [x.transpose(1, 2) if x.ndim == 5 else x for x in levels]
    return torch.cat([x.flatten(1, -3).flatten(2).mT for x in sides], 1)


def test_both_heads_say_what_theirs_say(shared):
    folder = shared / "reference" / "parity"
    expected, batch = np.load(folder / "v9-t-expected.npz"), np.load(folder / "batch.npz")
    model = freeze_batch_norm(load_model(folder / "v9-t-random.pt").train())
    # Theirs has its sixteen bins on each of six levels, ours on each of two heads.
    assert model.parameter_count() == expected["params"] - 6 * 16 + 2 * 16 == 3_717_680
    images = torch.from_numpy(batch["images"]).float() / 255
    with torch.inference_mode():
        said, alone = model(images), model.eval()(images)
    for head, ours in (("Main", said.main), ("AUX", said.auxiliary), ("Main", alone.raw)):
        torch.testing.assert_close(ours.scores, rows(expected, head, 0), rtol=0, atol=1e-4)
        torch.testing.assert_close(ours.distances, rows(expected, head, 1), rtol=0, atol=1e-4)
        torch.testing.assert_close(model.head.dfl(ours.distances), rows(expected, head, 2), rtol=0, atol=1e-4)


def test_a_file_of_theirs_is_read_converted_and_used(shared, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = shared / "reference" / "parity" / "v9-t-random.pt"
    about = read_checkpoint(path)["model"]
    assert (about["name"], about["nc"], about["auxiliary"]) == ("yolov9t", 80, True)
    assert about["licence"] == "MIT (of the published weights; the file names none)"
    assert (about["names"][0], about["names"][79], about["imgsz"]) == ("person", "toothbrush", 640)
    assert cli.main(["convert", f"weights={path}", "out=x.pt"]) == 0
    assert "licence MIT (of the published weights; the file names none);" in capsys.readouterr().out
    theirs, ours = load_model(path).state_dict(), load_model("x.pt").state_dict()
    assert theirs.keys() == ours.keys() and all(torch.equal(theirs[key], ours[key]) for key in ours)
    picture = next((shared / "data/bccd/images").rglob("*.jpg"))
    assert cli.main(["predict", f"model={path}", f"source={picture}", "imgsz=64", "save=false", "device=cpu"]) == 0
    assert not load_network(path)[0].auxiliary


# ---- Files made here

THEIR_NAMES = (
    (r"^(?:model|auxiliary)\.", ""),
    (r"^(9|23)\.cv2\.(conv|bn)", r"\1.conv5.\2"),
    (r"^(22|30|38)\.cv2\.", r"\1.heads.#anchor_conv."),
    (r"^(22|30|38)\.cv3\.", r"\1.heads.#class_conv."),
    (r"#(\w+)\.(\d)\.", r"\2.\1."),
    (r"\bcv(\d)\.", r"conv\1."),
    (r"\bm\.", "bottleneck."),
)


def their_name(name):
    for pattern, replacement in THEIR_NAMES:
        name = re.sub(pattern, replacement, name)
    return name


def state_of(model):
    """The model's state dict as theirs, the bins on each level."""
    state = {their_name(key): value.clone() for key, value in model.state_dict().items() if ".dfl." not in key}
    for head in {key.partition(".heads.")[0] for key in state if ".heads." in key}:
        state |= {f"{head}.heads.{n}.anc2vec.anc2vec.weight": torch.arange(16.0).view(1, 16, 1, 1, 1) for n in range(3)}
    return state


def test_the_names_made_here_are_theirs(shared):
    state = torch.load(shared / "reference/parity/v9-t-random.pt", weights_only=True)
    with torch.device("meta"):
        model = build_model("yolov9t", [f"class{n}" for n in range(80)], auxiliary=True)
    assert {key: value.shape for key, value in state_of(model).items()} == {k: v.shape for k, v in state.items()}


@pytest.fixture(params=[SIZES["yolov9"], LARGE_YOLOV9], ids=["second neck", "second backbone"])
def theirs(request, monkeypatch):
    """A narrow model with numbers of its own, of both kinds."""
    monkeypatch.setattr(models, "_sizes", lambda family: {"n": request.param if family == "yolov9" else SIZES[family]})
    torch.manual_seed(0)
    model = build_model("yolov9n", ["class0", "class1"], auxiliary=True)
    for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm2d)):
        nn.init.uniform_(norm.running_mean), nn.init.uniform_(norm.running_var)
    return model.eval()


def with_prefix(prefix, state):
    return {prefix + key: value for key, value in state.items()}


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("place", ["alone", "model_state_dict", "training", "training without average"])
def test_wherever_they_keep_it(theirs, tmp_path, place, half):
    state = state_of(theirs.half() if half else theirs)
    noise = {key: value + 1 for key, value in state.items()}
    content = {
        "alone": state,
        "model_state_dict": {"model_state_dict": state},
        "training": {"epoch": 3, "state_dict": with_prefix("model.model.", noise) | with_prefix("ema.model.", state)},
        "training without average": {"state_dict": with_prefix("model.model.", state), "loops": {"fit": [1, 2]}},
    }[place]
    torch.save(content, tmp_path / "x.ckpt")
    found = load_model(tmp_path / "x.ckpt")
    assert found.class_names == ("class0", "class1") and found.auxiliary and found.licence.startswith("MIT ")
    wanted = theirs.float().state_dict()
    assert all(torch.equal(value, wanted[key]) for key, value in found.state_dict().items())


def test_files_without_auxiliary_layers_and_what_nothing_depends_on(theirs, tmp_path):
    def needed(key):
        return int(key.split(".")[0]) <= 22 and "anc2vec" not in key and "num_batches" not in key

    torch.save({key: value for key, value in state_of(theirs).items() if needed(key)}, tmp_path / "x.pt")
    found, images = load_model(tmp_path / "x.pt"), torch.rand(1, 3, 64, 64)
    assert not found.auxiliary and found.description()["auxiliary"] is False
    with torch.no_grad():
        assert torch.equal(found(images).scores, theirs(images).scores)


def test_a_class_branch_of_another_width_is_read(theirs, tmp_path):
    wide = build_model("yolov9n", ["class0"], class_width=40, auxiliary=True)
    torch.save(state_of(wide), tmp_path / "x.pt")
    assert load_model(tmp_path / "x.pt").class_width == 40


def dropped(state):
    del state["12.conv1.conv.weight"]


def wider(state):
    state["12.conv1.conv.weight"] = torch.zeros(99, 40, 1, 1)


def headless(state):
    for key in [key for key in state if key.startswith("22.")]:
        del state[key]


def other_bins(state):
    state["22.heads.1.anc2vec.anc2vec.weight"] += 1


def no_tensor(state):
    state["0.conv.bias"] = 7


def foreign_key(state):
    state[5] = torch.zeros(1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (dropped, r"are those of no yolov9 here; nearest is yolov9n, of which 1 differ, the first model.12.cv1.conv.weight"),
        (wider, r"nearest is yolov9n, of which 1 differ, the first model.12.cv1.conv.weight"),
        (headless, "its layer 22 is no head of a YOLOv9"),
        (other_bins, r"bins of its distances are not 0 to 15 \(22.heads.1"),
        (no_tensor, "a weight that is no tensor, 0.conv.bias"),
        (foreign_key, "not named by short text"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(theirs, tmp_path, change, reason):
    state = state_of(theirs)
    change(state)
    torch.save(state, tmp_path / "x.pt")
    with pytest.raises(WeightsError, match=reason):
        load_model(tmp_path / "x.pt")
