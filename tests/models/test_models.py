from __future__ import annotations

import pytest
import torch

from visiontrain.batch import empty_batch
from visiontrain.config.groups import LossConfig
from visiontrain.errors import ConfigError
from visiontrain.losses import LOSSES
from visiontrain.models import MODELS, build_model, model_names
from visiontrain.models.detector import scaled_depth, scaled_width
from visiontrain.nn.conv import Conv
from visiontrain.nn.elan import RepConv
from visiontrain.nn.head import DualOutput
from visiontrain.nn.norm import batch_norms, running_statistics, swap_norms

torch.set_num_threads(1)

PARAMETERS = {  # of the published models, 80 classes
    # Built here, torchvision's backbones in them.
    "resnet18": 13_496_640,
    "resnet34": 23_604_800,
    "resnet50": 34_120_704,
    "convnext_tiny": 35_112_224,
    "convnext_small": 56_746_784,
    "yolov8n": 3_157_200,
    "yolov8s": 11_166_560,
    "yolov8m": 25_902_640,
    "yolov8l": 43_691_520,
    "yolov8x": 68_229_648,
    "yolo11n": 2_624_080,
    "yolo11s": 9_458_752,
    "yolo11m": 20_114_688,
    "yolo11l": 25_372_160,
    "yolo11x": 56_966_176,
    "yolo26n": 2_572_280,
    "yolo26s": 10_009_784,
    "yolo26m": 21_896_248,
    "yolo26l": 26_299_704,
    "yolo26x": 58_993_368,
    "yolox_nano": 912_159,
    "yolox_tiny": 5_055_855,
    "yolox_s": 8_968_255,
    "yolox_m": 25_326_495,
    "yolox_l": 54_208_895,
    "yolox_x": 99_071_455,
    "yolov9t": 2_442_640,  # these four by the built network; see test_counts_of_yolov9
    "yolov9s": 7_226_208,
    "yolov9m": 20_124_000,
    "yolov9c": 25_498_752,
}
EIGHTY = [f"class {i}" for i in range(80)]


def test_every_model_has_a_count():
    assert sorted(model_names()) == sorted(PARAMETERS)


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_parameter_count(name):
    with torch.device("meta"):
        model = build_model(name, EIGHTY)
    assert model.parameter_count() == PARAMETERS[name]


@pytest.mark.parametrize(
    ("name", "published", "class_width"),
    [("yolov9t", 2.0, 80), ("yolov9s", 7.1, None), ("yolov9m", 20.0, None), ("yolov9c", 25.3, None)],
)
def test_counts_of_yolov9(name, published, class_width):
    """Millions, as published of networks without auxiliary layers, with each RepConv and BatchNorm folded into one convolution.

    The published t has a class branch of 80 channels; with 128 it is as the MIT project builds it (test_techlab.py).
    """
    with torch.device("meta"):
        model = build_model(name, EIGHTY, class_width)
    in_pairs = [m for m in model.modules() if isinstance(m, RepConv)]
    folded = sum(len(m.bn.bias) for m in model.modules() if isinstance(m, Conv))  # scale and shift become a bias
    folded += sum(m.cv2.conv.weight.numel() + len(m.cv2.bn.bias) for m in in_pairs)  # the 1x1 one goes into the 3x3 one
    assert round((model.parameter_count() - folded) / 1e6, 1) == published


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("yolov9t", 3_717_680), ("yolov9s", 9_804_512), ("yolov9m", 32_878_432), ("yolov9c", 51_182_080)],
)
def test_counts_with_auxiliary_layers(name, parameters):
    with torch.device("meta"):
        model = build_model(name, EIGHTY, auxiliary=True)
        plain = build_model(name, EIGHTY)
    assert model.parameter_count() == parameters
    assert plain.state_dict().keys() == {key for key in model.state_dict() if not key.startswith("auxiliary.")}


@pytest.mark.parametrize("name", ["yolov8n", "yolo11n", "yolo26n"])
def test_auxiliary_layers_are_not_made_up(name):
    with pytest.raises(ConfigError, match=f"auxiliary=true: {name} has no auxiliary head; leave it out.*yolov9t"):
        build_model(name, ["a"], auxiliary=True)


KEYS = {
    "yolov8n": (355, "model.2.m.0.cv1.bn.num_batches_tracked model.22.cv2.0.2.bias model.22.dfl.conv.weight"),
    "yolo11n": (499, "model.8.m.0.m.1.cv2.conv.weight model.10.m.0.attn.pe.bn.bias model.23.cv3.0.1.0.conv.weight"),
    "yolo11m": (649, "model.2.m.0.cv3.conv.weight"),
    "yolo26n": (708, "model.22.m.0.0.cv1.conv.weight model.22.m.0.1.ffn.1.bn.bias model.23.one2one_cv3.2.2.bias"),
    "yolo26m": (768, "model.22.m.0.1.attn.qkv.conv.weight"),
}


@pytest.mark.parametrize("name", sorted(KEYS))
def test_keys_are_those_of_published_checkpoints(name):
    with torch.device("meta"):
        keys = set(build_model(name, EIGHTY).state_dict())
    count, some = KEYS[name]
    assert len(keys) == count
    assert {"model.0.conv.weight", "model.9.cv2.conv.weight", *some.split()} <= keys


@pytest.mark.parametrize("family", sorted(MODELS))
def test_a_fresh_model_has_fresh_statistics(family):
    """BN-05: building a model must not run pictures through it."""
    model = build_model(next(n for n in model_names() if n.startswith(family)), ["a"])
    assert batch_norms(model)
    for norm in batch_norms(model):
        assert not norm.running_mean.any()
        assert (norm.running_var == 1).all()
        assert norm.num_batches_tracked == 0
        assert (norm.eps, norm.momentum) in ((1e-3, 0.03), (1e-5, 0.1))  # torchvision's ResNet has the others


@pytest.mark.parametrize("family", sorted(MODELS))
def test_a_model_in_training_and_evaluation(family):
    model = build_model(next(n for n in model_names() if n.startswith(family)), ["a", "b"])
    images = torch.rand(1, 3, 64, 96)
    raw = model.train()(images)
    raw = raw.one_to_one if isinstance(raw, DualOutput) else raw
    decoded = model.eval()(images)
    anchors = 64 * 96 * 21 // 1024
    assert raw.scores.shape == decoded.scores.shape == (1, anchors, 2)
    assert decoded.boxes.shape == (1, anchors, 4)
    assert sum(map(len, model.term_parameters().values())) == sum(p.requires_grad for p in model.parameters())
    assert model.description()["names"] == ["a", "b"]


def test_the_seed_decides_the_weights():
    def weights(seed):
        torch.manual_seed(seed)
        return build_model("yolov8n", ["a"]).state_dict()["model.0.conv.weight"]

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("yolov8nn", "yolov8n"),
        ("yolo8s", "yolov8s"),
        ("YOLOv8m", "yolov8m"),
        ("yoloxs", "yolox_s"),
        ("yolox-tiny", "yolox_tiny"),
    ],
)
def test_a_wrong_name_gets_the_near_one(wrong, near):
    with pytest.raises(ConfigError, match=f"did you mean '{near}'"):
        build_model(wrong, ["a"])


@pytest.mark.parametrize("wrong", ["", "yolov8", "resnet19"])
def test_a_wrong_name_gets_the_list(wrong):
    with pytest.raises(ConfigError, match=r"Known are .*yolo11n, yolo11s.*yolov8x"):
        build_model(wrong, ["a"])


def test_sizes():
    assert [scaled_width(1024, w, m) for w, m in ((0.25, 1024), (0.75, 768), (1.25, 512))] == [256, 576, 640]
    assert [scaled_depth(n, d) for n, d in ((3, 0.33), (6, 0.33), (6, 0.67), (1, 0.33), (3, 0.1))] == [1, 2, 4, 1, 1]


@pytest.mark.parametrize("checkpoint_blocks", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_micro_batch_without_images_gives_zeros_that_have_a_graph(dtype, checkpoint_blocks):
    """A rank without an image runs one where statistics are those of all ranks."""
    model = build_model("yolov8n", ["a", "b"]).to(dtype).train()
    swap_norms(model, "sync")
    model.checkpoint_blocks = checkpoint_blocks
    batch = empty_batch(64, 96).to("cpu", dtype)
    loss = LOSSES[model.loss](LossConfig())(model(batch.images), batch.targets)
    for term in loss.terms.values():
        assert term.total == 0 and term.weight == 0
        term.total.backward()
    assert all(part == 0 for parts in loss.parts.values() for part in parts.values())
    assert all((p.grad == 0).all() for p in model.parameters() if p.requires_grad)
    assert all(t.isfinite().all() for t in running_statistics(model))
