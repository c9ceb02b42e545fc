"""What is said of a model by its name is what the built model has."""

from __future__ import annotations

import pytest
import torch

from visiontrain.config.sizes import CLASSES, counts_of, read_sizes
from visiontrain.errors import ConfigError
from visiontrain.models import MODELS, build_model, model_names
from visiontrain.nn.norm import batch_norms


@pytest.mark.parametrize("classes", [1, 4, CLASSES, 200])
@pytest.mark.parametrize("name", model_names())
def test_counts_are_those_of_the_built_model(name, classes):
    with torch.device("meta"):
        model = build_model(name, [str(number) for number in range(classes)])
    counts = counts_of(name, classes)
    assert counts.parameters == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert counts.channels == sum(norm.num_features for norm in batch_norms(model))
    assert (counts.name, counts.classes) == (name, classes)


@pytest.mark.parametrize("classes", [1, CLASSES, 200])
@pytest.mark.parametrize("name", model_names("yolov9"))
def test_counts_with_auxiliary_layers(name, classes):
    with torch.device("meta"):
        model = build_model(name, [str(number) for number in range(classes)], auxiliary=True)
    counts = counts_of(name, classes, auxiliary=True)
    assert counts.parameters == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert counts.channels == sum(norm.num_features for norm in batch_norms(model))


@pytest.mark.parametrize("family", sorted(MODELS))
def test_every_size_is_counted(family):
    assert all("counted" in size for size in read_sizes(family).values())


def test_auxiliary_layers_of_a_model_that_has_none_are_answered_as_by_the_model_itself():
    with pytest.raises(ConfigError) as one:
        build_model("yolov8n", ["a"], auxiliary=True)
    with pytest.raises(ConfigError) as other:
        counts_of("yolov8n", auxiliary=True)
    assert str(one.value) == str(other.value)


def test_a_wrong_name_is_answered_as_by_the_model_itself():
    with pytest.raises(ConfigError) as one, torch.device("meta"):
        build_model("yolov8nn", ["a"])
    with pytest.raises(ConfigError) as other:
        counts_of("yolov8nn")
    assert str(one.value) == str(other.value)
