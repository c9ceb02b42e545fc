"""Backbones of torchvision, resnet and convnext, under the neck and head of YOLOv8."""

from __future__ import annotations

from collections.abc import Sequence
from pickle import UnpicklingError

import torch
from torch import Tensor, nn
from torchvision import models as torchvision_models

from visiontrain.errors import WeightsError
from visiontrain.models.detector import Detector, upsampled
from visiontrain.nn.conv import Conv
from visiontrain.nn.csp import C2f
from visiontrain.nn.head import Detect, DetectorOutput, TrainingOutput
from visiontrain.nn.pooling import SPPF
from visiontrain.paths import cache_dir

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's pictures, RGB in 0..1


class Normalise(nn.Module):
    """(B, 3, H, W) RGB in 0..1 -> what torchvision's networks were trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(STD).view(1, 3, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


class BackboneDetector(Detector):
    """A torchvision network in three parts (layers 0 to 2: strides 8, 16, 32), then SPPF, path-aggregation neck and head.

    Args:
        name: family and size, as torchvision calls the network: resnet18, convnext_tiny.
        class_names: one for each class.
        neck: channels of the three levels of the neck.
        repeats: bottlenecks of each of its blocks.
        class_width: channels inside the class branch; None: as fits the classes.

    Source:
        He et al., Deep Residual Learning, CVPR 2016, arXiv:1512.03385; Liu et al., A ConvNet for the 2020s, CVPR 2022,
        arXiv:2201.03545; the networks themselves are torchvision's.
    """

    backbone = 3

    def __init__(
        self,
        name: str,
        class_names: Sequence[str],
        *,
        neck: Sequence[int],
        repeats: int,
        class_width: int | None = None,
    ) -> None:
        super().__init__(name, class_names)
        parts = self.parts(self.network())
        c3, c4, c5 = neck
        b3, b4, b5 = (_channels(part) for part in parts)
        layers = dict(enumerate(parts)) | {
            3: SPPF(b5, c5),
            # neck, top down
            4: Conv(b4, c4),
            5: C2f(c5 + c4, c4, repeats),
            6: Conv(b3, c3),
            7: C2f(c4 + c3, c3, repeats),
            # neck, bottom up
            8: Conv(c3, c3, 3, 2),
            9: C2f(c3 + c4, c4, repeats),
            10: Conv(c4, c4, 3, 2),
            11: C2f(c4 + c5, c5, repeats),
            12: Detect(len(self.class_names), (c3, c4, c5), class_width=class_width),
        }
        self.model = nn.ModuleDict({str(index): layer for index, layer in layers.items()})

    def network(self) -> nn.Module:
        """torchvision's network with fresh weights."""
        build = getattr(torchvision_models, self.name)
        return build(weights=None)

    def parts(self, network: nn.Module) -> list[nn.Sequential]:
        """The network cut behind strides 8, 16 and 32."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> TrainingOutput | DetectorOutput:
        run = self.run_layers
        b3 = run(images, 0)
        b4 = run(b3, 1)
        b5 = run(b4, 2, 3)
        t4 = run(torch.cat((upsampled(b5), run(b4, 4)), 1), 5)
        n3 = run(torch.cat((upsampled(t4), run(b3, 6)), 1), 7)
        n4 = run(torch.cat((run(n3, 8), t4), 1), 9)
        n5 = run(torch.cat((run(n4, 10), b5), 1), 11)
        return self.model["12"]((n3, n4, n5))

    def load_imagenet(self) -> str:
        """Give the backbone torchvision's ImageNet weights, fetched into the user's cache; the sentence about them.

        Raises:
            WeightsError: they cannot be fetched, or are not what their name says.
        """
        weights = torchvision_models.get_model_weights(self.name).DEFAULT
        folder = cache_dir() / "weights"
        network = self.network()
        try:
            network.load_state_dict(weights.get_state_dict(model_dir=str(folder), check_hash=True, weights_only=True))
        # No network; another hash than its name says, or other weights; no weights alone.
        except (OSError, RuntimeError, UnpicklingError) as error:
            why = str(error).splitlines()[0].rstrip(" .:")  # further ones name every weight
            raise WeightsError(
                f"backbone_weights=imagenet: {weights.url} cannot be had ({why}). Fetch it by other means and put it into "
                f"{folder}, or leave backbone_weights out."
            ) from error
        for index, part in enumerate(self.parts(network)):
            self.model[str(index)].load_state_dict(part.state_dict())
        return f"Backbone: torchvision's {self.name} {weights.name}, trained on ImageNet, from {weights.url}."


class ResNet(BackboneDetector):
    """ResNet below. See BackboneDetector."""

    family = "resnet"

    def parts(self, network: nn.Module) -> list[nn.Sequential]:
        stem = (network.conv1, network.bn1, network.relu, network.maxpool)
        first = nn.Sequential(Normalise(), *stem, network.layer1, network.layer2)
        return [first, nn.Sequential(network.layer3), nn.Sequential(network.layer4)]


class ConvNeXt(BackboneDetector):
    """ConvNeXt below, without its stochastic depth: what is dropped would depend on how a window is split. See BackboneDetector."""

    family = "convnext"

    def network(self) -> nn.Module:
        build = getattr(torchvision_models, self.name)
        return build(weights=None, stochastic_depth_prob=0.0)

    def parts(self, network: nn.Module) -> list[nn.Sequential]:
        features = list(network.features)
        return [nn.Sequential(Normalise(), *features[:4]), nn.Sequential(*features[4:6]), nn.Sequential(*features[6:])]


def _channels(part: nn.Module) -> int:
    """That come out of it."""
    return [layer.out_channels for layer in part.modules() if isinstance(layer, nn.Conv2d)][-1]
