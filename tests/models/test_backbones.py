"""torchvision's backbones: their weights, and that nothing in them depends on chance."""

from __future__ import annotations

import urllib.error

import pytest
import torch
from torchvision import models as torchvision_models

from visiontrain.config.schema import TrainConfig
from visiontrain.errors import ConfigError, WeightsError
from visiontrain.models import build_model
from visiontrain.models.backbones import MEAN, STD
from visiontrain.training.start import require_what_is_asked as require
from visiontrain.training.start import starting_model

torch.set_num_threads(1)


@pytest.fixture
def file(user_cache):
    """Random weights under the name that torchvision's have; what is there is not fetched."""
    torch.manual_seed(3)
    network = torchvision_models.resnet18(weights=None)
    path = user_cache / "weights" / torchvision_models.ResNet18_Weights.DEFAULT.url.rpartition("/")[2]
    path.parent.mkdir(parents=True)
    torch.save(network.state_dict(), path)
    return network.eval()


def test_the_backbone_is_torchvisions(file):
    config = TrainConfig(model="resnet18", backbone_weights="imagenet", data="shapes")
    model = starting_model(config, ["a", "b"]).eval()
    images = torch.rand(1, 3, 64, 96)
    x = file.maxpool(
        file.relu(file.bn1(file.conv1((images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1))))
    )
    with torch.no_grad():
        for part, layers in enumerate(((file.layer1, file.layer2), (file.layer3,), (file.layer4,))):
            for layer in layers:
                x = layer(x)
            y = model.run_layers(images, *range(part + 1))
            assert torch.equal(x, y) and y.shape[-1] == 96 // (8 << part)
    assert "ImageNet" in model.origin[0] and "resnet18-f37072fd.pth" in model.origin[0]


def test_a_file_that_is_no_plain_weights_runs_nothing(file, user_cache):
    path = next((user_cache / "weights").iterdir())
    torch.save({"conv1.weight": print}, path)
    with pytest.raises(WeightsError, match=r"f37072fd\.pth cannot be had .*[Ww]eights.only"):
        build_model("resnet18", ["a"]).load_imagenet()


def test_a_file_of_another_network_is_refused(file, user_cache):
    path = next((user_cache / "weights").iterdir())
    torch.save({"conv1.weight": torch.zeros(1)}, path)
    with pytest.raises(WeightsError, match=r"f37072fd\.pth cannot be had \(.{,60}loading state_dict for ResNet\)"):
        build_model("resnet18", ["a"]).load_imagenet()


def test_without_a_network_it_says_what_to_fetch(user_cache, monkeypatch):
    def refuse(url, path, hash_prefix, **kwargs):
        assert hash_prefix == "f37072fd"  # what comes is held to it, by torch
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(torch.hub, "download_url_to_file", refuse)
    with pytest.raises(WeightsError, match=rf"f37072fd\.pth cannot be had .*no network.*put it into {user_cache}"):
        build_model("resnet18", ["a"]).load_imagenet()


@pytest.mark.parametrize("model", ["yolov8n", "resnet18.pt"])
def test_other_models_take_no_backbone_weights(model):
    with pytest.raises(ConfigError, match=r"no backbone that takes them.*convnext_tiny.*resnet18"):
        require(TrainConfig(model=model, backbone_weights="imagenet", data="shapes"), ["a"])


@pytest.mark.parametrize("family", ["resnet", "convnext"])
def test_two_passes_in_training_are_equal(family, narrow):
    """No stochastic depth: what is dropped would depend on how a window is split."""
    model = build_model(f"{family}n", ["a"]).train()
    images = torch.rand(2, 3, 64, 64)
    assert torch.equal(model(images).scores, model(images).scores)
