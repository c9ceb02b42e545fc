from __future__ import annotations

import math

import pytest
import torch

from visiontrain.nn.conv import Conv
from visiontrain.nn.csp import C2f
from visiontrain.nn.head import Detect, DualDetect, Projection, cell_centres, distances_to_boxes
from visiontrain.nn.norm import batch_norms, freeze_batch_norm, running_statistics
from visiontrain.nn.pooling import SPPF

torch.set_num_threads(1)


def features(batch=2, channels=(8, 16, 32), size=64):
    return [torch.randn(batch, c, size // s, size // s) for c, s in zip(channels, (8, 16, 32), strict=True)]


@pytest.mark.parametrize("width", [64, 96])
def test_training_and_evaluation_say_the_same(width):
    head = Detect(3, (8, 16, 32))
    maps = [torch.randn(1, c, 64 // s, width // s) for c, s in zip((8, 16, 32), (8, 16, 32), strict=True)]
    decoded = head.eval()(maps)
    anchors = sum(x.shape[-1] * x.shape[-2] for x in maps)
    assert decoded.boxes.shape == (1, anchors, 4)
    torch.testing.assert_close(decoded.scores, decoded.raw.scores.sigmoid())
    freeze_batch_norm(head.train())
    raw = head(maps)
    torch.testing.assert_close(raw.distances, decoded.raw.distances)
    again = distances_to_boxes(head.dfl(raw.distances), raw.anchors) * raw.strides
    torch.testing.assert_close(again, decoded.boxes)


def test_first_boxes_and_scores():
    """A fresh head with silent branches: boxes are two cells wide on each side (equal bins: 7.5); scores are the prior."""
    head = Detect(3, (8, 16, 32)).eval()
    for branch in [*head.cv2, *head.cv3]:
        torch.nn.init.zeros_(branch[-1].weight)
    out = head(features(1))
    widths = out.boxes[0, :, 2] - out.boxes[0, :, 0]
    torch.testing.assert_close(widths, 4 * out.raw.strides[:, 0], rtol=0.02, atol=0)
    for level, stride in enumerate((8, 16, 32)):
        prior = 5 / 3 / (640 / stride) ** 2
        assert head.cv3[level][-1].bias[0].item() == pytest.approx(math.log(prior))


def test_centres_run_along_rows_first():
    centres, strides = cell_centres([(2, 3)], (8,), torch.zeros(1))
    assert centres.tolist() == [[0.5, 0.5], [1.5, 0.5], [2.5, 0.5], [0.5, 1.5], [1.5, 1.5], [2.5, 1.5]]
    assert strides.unique().tolist() == [8.0]


@pytest.mark.parametrize(
    ("like", "expected"),
    [(torch.float16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_centres_are_never_narrow(like, expected):
    """Half precision cannot tell neighbouring pixels apart in a large picture."""
    assert cell_centres([(2, 2)], (8,), torch.zeros(1, dtype=like))[0].dtype == expected


def test_projection_is_the_expected_bin():
    logits = torch.full((1, 64), -1e9)
    for side, bin_ in enumerate((0, 3, 7, 15)):
        logits[0, 16 * side + bin_] = 0
    assert Projection(16)(logits).tolist() == [[0, 3, 7, 15]]
    assert not any(p.requires_grad for p in Projection(16).parameters())


def test_distances_to_boxes():
    box = distances_to_boxes(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.tensor([[10.0, 20.0]]))
    assert box.tolist() == [[9, 18, 13, 24]]


def test_level_order_is_that_of_the_features():
    head = Detect(2, (8, 16, 32)).eval()
    for level, branch in enumerate(head.cv3):
        torch.nn.init.zeros_(branch[-1].weight)
        torch.nn.init.constant_(branch[-1].bias, float(level))
    scores = head(features(1)).raw.scores[0, :, 0]
    assert scores.tolist() == [0.0] * 64 + [1.0] * 16 + [2.0] * 4


@pytest.mark.parametrize(
    ("block", "shape"),
    [
        (Conv(4, 8, 3, 2), (2, 8, 8, 8)),
        (Conv(4, 8), (2, 8, 16, 16)),
        (C2f(4, 12, 2, shortcut=True), (2, 12, 16, 16)),
        (SPPF(4, 6), (2, 6, 16, 16)),
    ],
)
def test_shapes(block, shape):
    assert block(torch.randn(2, 4, 16, 16)).shape == shape


def test_frozen_norms_are_those_of_evaluation_and_keep_their_statistics():
    torch.manual_seed(0)
    block = Conv(4, 8).train()
    for _ in range(3):
        block(torch.randn(2, 4, 8, 8) + 5)
    assert len(batch_norms(block)) == 1 and len(running_statistics(block)) == 3
    x, before = torch.randn(2, 4, 8, 8) + 5, {k: v.clone() for k, v in block.state_dict().items()}
    expected = block.eval()(x)
    freeze_batch_norm(block).train()
    torch.testing.assert_close(block(x), expected)
    assert batch_norms(block) == []
    assert block.state_dict().keys() == before.keys()
    assert all(torch.equal(v, before[k]) for k, v in block.state_dict().items())


@pytest.mark.parametrize("parameter", ["bias of the norm", "bias of the predictor"])
def test_a_gradient_summed_over_many_cells_is_right_in_float32(parameter):
    """A hundred thousand nearly equal numbers: a running sum in float32 is off by 1e-4, a pairwise one by 1e-7."""
    torch.manual_seed(0)
    if parameter == "bias of the norm":
        block = freeze_batch_norm(Conv(8, 8))
        block.act = torch.nn.Identity()
        bias = block.bn.bias
    else:
        block = Detect(3, (8, 16, 32)).cv3[0][-1]
        bias = block.bias
    x = torch.randn(32, 8, 64, 64).contiguous(memory_format=torch.channels_last)
    upstream = 1 / 3 + 1e-3 * torch.rand(32, len(bias), 64, 64)
    block(x).backward(upstream.contiguous(memory_format=torch.channels_last))
    exact = upstream.double().sum((0, 2, 3))
    assert ((bias.grad - exact).abs() / exact).max() < 1e-6


def test_of_two_heads_the_one_without_nms_is_decoded_unless_asked():
    torch.manual_seed(0)
    head = DualDetect(3, (8, 16, 32))
    maps = features(1)
    for branch in head.one2one_cv3:  # it begins as a copy
        torch.nn.init.normal_(branch[-1].weight)
    freeze_batch_norm(head.train())
    both = head(maps)
    head.eval()
    for nms, said in ((False, both.one_to_one), (True, both.one_to_many)):
        head.nms = nms
        decoded = head(maps)
        assert decoded.end_to_end is not nms
        torch.testing.assert_close(decoded.raw.scores, said.scores)
        torch.testing.assert_close(decoded.boxes, distances_to_boxes(said.distances, said.anchors) * said.strides)
    assert both.one_to_many.anchors is both.one_to_one.anchors and both.one_to_many.size == (64, 64)
    assert not torch.equal(both.one_to_many.scores, both.one_to_one.scores)
