"""Weights for other classes: everything but the class rows, and those by name."""

from __future__ import annotations

import pytest
import torch

from visiontrain.models import MODELS, build_model, weights
from visiontrain.models.transfer import for_classes
from visiontrain.models.weights import about_checkpoint, model_of
from visiontrain.nn.norm import norm_of, swap_norms
from visiontrain.training.checkpoint import About, save_model

pytestmark = pytest.mark.usefixtures("narrow")


def trained(family, names, norm="batch"):
    """A model none of whose numbers is one that it is built with."""
    torch.manual_seed(3)
    model = build_model(f"{family}n", names)
    swap_norms(model, norm)
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and "dfl" not in name:
            tensor.add_(0.05 * torch.rand_like(tensor))
    return model.eval()


@pytest.mark.parametrize("norm", ["batch", "group", "frozen"])
@pytest.mark.parametrize("family", sorted(MODELS))
def test_the_same_classes_give_the_same_model_in_any_order(family, norm):
    old = trained(family, ["cat", "dog", "red fox"], norm)
    new, transfer = for_classes(old, ["Red_Fox", "cat", "DOG"])
    tensors = len(old.state_dict())
    assert (transfer.taken, transfer.tensors, transfer.fresh, transfer.left) == (tensors, tensors, (), ())
    assert transfer.sentence() == f"Transferred {tensors} of {tensors} tensors, all 3 classes by name."
    assert norm_of(new) == norm
    images = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        before, after = old(images), new.eval()(images)
    assert torch.equal(after.boxes, before.boxes)
    assert torch.allclose(after.scores, before.scores[..., [2, 0, 1]], rtol=1e-5, atol=0)  # a row's place may round it


@pytest.mark.parametrize("family", sorted(MODELS))
def test_other_classes_keep_the_network_and_the_rows_of_those_they_share(family):
    old = trained(family, ["cat", "dog"])
    new, transfer = for_classes(old, ["bird", "dog", "cow", "eel"])
    rows = new.class_tensors()
    heads = 2 if family == "yolo26" else 1
    assert len(rows) == 6 * heads == transfer.tensors - transfer.taken == len(transfer.left)
    assert transfer.matched == ("dog",) and transfer.fresh == ("bird", "cow", "eel")
    rest = f"1 of 4 rows in the {6 * heads} tensors of classes, {transfer.left[0]} first."
    assert transfer.sentence().endswith(f"tensors, 1 of 4 classes by name (dog); fresh: bird, cow, eel; {rest}")
    assert set(transfer.left) == rows
    given = old.state_dict()
    for name, tensor in new.state_dict().items():
        if name in rows:
            assert torch.equal(tensor[1], given[name][1])
            assert not torch.isin(tensor[[0, 2, 3]], given[name]).any()
        else:
            assert torch.equal(tensor, given[name]), name


def test_the_class_branch_keeps_its_width_also_through_a_file(monkeypatch):
    """Eighty classes have a wider branch than three: without it nothing of it could be used."""
    monkeypatch.undo()
    old = build_model("yolov8n", [f"class {number}" for number in range(80)])
    new, transfer = for_classes(old, ["class 7", "mine"])
    assert new.class_width == old.class_width == 80 > build_model("yolov8n", ["a", "b"]).class_width
    assert transfer.tensors - transfer.taken == 6
    content = {"model": new.description(), "kind": "model", "weights": new.state_dict()}
    assert model_of(content, "a.pt").class_width == 80


def test_a_name_that_comes_twice_is_the_first():
    old = trained("yolov8", ["cat", "Cat"])
    new, transfer = for_classes(old, ["CAT"])
    name = min(old.class_tensors())
    assert transfer.matched == ("CAT",) and torch.equal(new.state_dict()[name][0], old.state_dict()[name][0])


def test_what_a_checkpoint_says_is_read_again_when_it_is_another(tmp_path, narrow, monkeypatch):
    """And only then: it is asked for several times before a run."""
    path = tmp_path / "best.pt"
    for names in (["sun"], ["sun", "sea"]):
        save_model(path, build_model("yolov8n", names), About({"imgsz": 64}, [], {}, ""), {}, 1)
        assert about_checkpoint(path)["names"] == names
    monkeypatch.setattr(weights, "read_checkpoint", None)
    assert about_checkpoint(str(path))["nc"] == 2
