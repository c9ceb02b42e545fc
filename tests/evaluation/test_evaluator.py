"""The whole way: network pixels to metrics in original pixels, with stub models whose answers are known."""

from __future__ import annotations

import copy
import json
from collections import namedtuple
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from visiontrain.batch import Sample, collate
from visiontrain.config.groups import ScoringConfig
from visiontrain.errors import ConfigError, OutOfMemory
from visiontrain.evaluation.evaluator import evaluate

Output = namedtuple("Output", "boxes scores")
NAMES = ("disc", "square", "star")


class Labels:
    """What the index is to the evaluator: normalised cx cy w h and classes per image."""

    def __init__(self, rows):
        self.rows = [np.array(r, np.float32).reshape(-1, 5) for r in rows]

    def boxes(self, i):
        return self.rows[i][:, 1:]

    def classes(self, i):
        return self.rows[i][:, 0].astype(np.int64)

    def ignored(self, i):
        return np.zeros((0, 4), np.float32), np.zeros(0, np.int64)


class Oracle(nn.Module):
    """Answers with fixed boxes for each picture; a picture carries its number in its first pixel."""

    def __init__(self, answers, classes=3):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([70000.0, 1.0]))
        self.norm = nn.BatchNorm2d(3)
        self.frozen = nn.BatchNorm2d(3).eval()
        self.answers, self.classes, self.cached = answers, classes, None

    def forward(self, images):
        assert not self.training and not torch.is_grad_enabled()
        self.norm(self.frozen(images))
        self.cached = self.weight * 2  # as a head that keeps its anchors
        numbers = (images[:, 0, 0, 0] * 255).round().long().tolist()
        rows = max(len(self.answers[n]) for n in numbers) + 1
        boxes, scores = torch.zeros(len(images), rows, 4), torch.zeros(len(images), rows, self.classes)
        for i, n in enumerate(numbers):
            for j, (klass, score, *box) in enumerate(self.answers[n]):
                boxes[i, j], scores[i, j, klass] = torch.tensor(box), score
        return Output(boxes, scores)


def letterboxed(position, width, height, size=64):
    """A sample whose picture of (width, height) was fitted into size x size, padded on both sides."""
    factor = size / max(width, height)
    inner = round(width * factor), round(height * factor)
    image = np.zeros((size, size, 3), np.uint8)
    image[0, 0, 0] = position
    return Sample(
        image=image,
        classes=np.zeros(0, np.int64),
        boxes=np.zeros((0, 4), np.float32),
        position=position,
        original=(height, width),
        scale=(inner[0] / width, inner[1] / height),
        pad=((size - inner[0]) // 2, (size - inner[1]) // 2),
    )


def seen(sample, row, jitter=0.0):
    """A label as the network would see it: xyxy pixels of the letterboxed picture."""
    _, cx, cy, w, h = row
    wide, high = sample.original[1] * sample.scale[0], sample.original[0] * sample.scale[1]
    x, y = cx * wide + sample.pad[0] + jitter, cy * high + sample.pad[1]
    return x - w * wide / 2, y - h * high / 2, x + w * wide / 2, y + h * high / 2


LABELS = [
    [(0, 0.5, 0.5, 0.4, 0.6), (1, 0.2, 0.3, 0.2, 0.2)],
    [(1, 0.6, 0.4, 0.5, 0.5)],
    [],
    [(0, 0.3, 0.6, 0.3, 0.3), (0, 0.7, 0.6, 0.2, 0.4), (1, 0.5, 0.2, 0.3, 0.2)],
]
SIZES = [(200, 100), (90, 150), (64, 64), (333, 217)]


def perfect():
    samples = [letterboxed(i, *size) for i, size in enumerate(SIZES)]
    answers = [[(row[0], 0.9, *seen(s, row)) for row in rows] for s, rows in zip(samples, LABELS, strict=True)]
    return samples, answers


def run(samples, answers, batch=2, labels=LABELS, model=None, **settings):
    loader = [collate(samples[i : i + batch], keep_samples=True) for i in range(0, len(samples), batch)]
    options = {k: settings.pop(k) for k in ("on_progress", "autocast", "at_once", "on_shrink") if k in settings}
    return evaluate(
        model or Oracle(answers),
        loader,
        device="cpu",
        scoring=ScoringConfig(**settings),
        class_names=NAMES,
        index=Labels(labels),
        **options,
    )


def test_what_is_there_is_found_through_the_letterbox():
    evaluation = run(*perfect())
    for name in ("ap", "ap50", "ap75", "ap_max_det", "precision", "recall"):
        assert evaluation.metrics[name] == pytest.approx(1.0), name
    assert (evaluation.images, evaluation.targets, evaluation.notices) == (4, 6, ())
    assert evaluation.curves.confusion.tolist() == np.diag([3, 3, 0, 0]).tolist()


def test_a_picture_that_could_not_be_read_counts_neither_for_nor_against():
    samples, answers = perfect()
    answers[3] = [(0, 0.99, 1.0, 1.0, 60.0, 60.0)]  # what a model may see in grey
    samples[3] = replace(samples[3], bad=("c.png: gone",))
    evaluation = run(samples, answers)
    assert all(evaluation.metrics[name] == pytest.approx(1.0) for name in ("ap", "ap50", "precision", "recall"))
    assert (evaluation.images, evaluation.targets) == (3, 3) and 3 not in evaluation.found.image
    assert evaluation.curves.confusion.sum() == 3
    assert evaluation.notices == ("1 pictures cannot be read any more and are in no score, for example c.png: gone",)


def test_boxes_come_back_in_original_pixels_and_inside_the_picture():
    samples, answers = perfect()
    answers[1].append((0, 0.5, -20.0, -20.0, 90.0, 90.0))
    found = run(samples, answers).found.of(1)
    np.testing.assert_allclose(found.boxes, [[31.5, 22.5, 76.5, 97.5], [0, 0, 90, 150]], atol=1e-3)
    assert found.scores.tolist() == pytest.approx([0.9, 0.5])


def test_a_wrong_pad_costs():
    samples, answers = perfect()
    answers[0] = [(k, s, x1, y1 + 8, x2, y2 + 8) for k, s, x1, y1, x2, y2 in answers[0]]
    assert run(samples, answers).metrics["ap"] < 0.8


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_the_batch_does_not_matter(batch):
    """VAL-07, VAL-09: pictures of several sizes, answers that are not perfect, one figure."""
    samples = [letterboxed(i, *size) for i, size in enumerate(SIZES)]
    answers = [
        [(row[0], 0.9 - 0.1 * j, *seen(s, row, jitter=1.5 * j)) for j, row in enumerate(rows)] + [(0, 0.4, 1, 1, 9, 9)]
        for s, rows in zip(samples, LABELS, strict=True)
    ]
    evaluation = run(samples[::-1], answers, batch)
    reference = run(samples, answers, 3)
    assert 0.1 < reference.metrics["ap"] < 1
    assert evaluation.metrics == reference.metrics
    assert evaluation.per_class == reference.per_class


def test_a_class_without_labels_is_reported_as_such():
    """VAL-06."""
    samples, answers = perfect()
    answers[2].append((2, 0.8, 5, 5, 20, 20))
    evaluation = run(samples, answers)
    assert evaluation.metrics["ap"] == pytest.approx(1.0)
    assert evaluation.per_class["star"] == {
        "precision": None,
        "recall": None,
        "ap": None,
        "ap50": None,
        "instances": 0,
        "images": 0,
    }
    assert evaluation.per_class["disc"]["instances"] == 3
    assert evaluation.per_class["disc"]["images"] == 2
    assert np.isnan(evaluation.curves.precision[2]).all() and not np.isnan(evaluation.curves.precision[:2]).any()
    assert evaluation.curves.confusion[2, 3] == 1


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("images", [1, 4])
def test_empty_sides_give_zero_and_valid_json(images, answered, labelled):
    samples, answers = perfect()
    if not answered:
        answers = [[] for _ in answers]
    evaluation = run(samples[:images], answers, labels=LABELS if labelled else [[]] * 4)
    assert evaluation.metrics["ap"] == pytest.approx(float(labelled and answered))
    assert evaluation.curves.precision.shape == (3, 101) == evaluation.curves.confidence_f1.shape
    assert any("label" in n for n in evaluation.notices) == (not labelled)
    text = json.dumps(evaluation.to_json(), allow_nan=False)
    assert {"ap", "ap50", "ap75", "ap_max_det", "ap_small", "per_class"} <= set(json.loads(text))


def test_predictions_that_are_not_finite_are_counted_not_fatal():
    samples, answers = perfect()
    answers[0].append((0, float("nan"), 1, 1, 5, 5))
    answers[1].append((0, 0.9, 1, float("inf"), 5, 5))
    evaluation = run(samples, answers)
    assert evaluation.non_finite == 2
    assert evaluation.metrics["ap"] == pytest.approx(1.0)
    assert "not finite" in " ".join(evaluation.notices)


@pytest.mark.parametrize("end_to_end", [False, True])
def test_a_head_that_needs_no_suppression_gets_none(end_to_end):
    """Two equal boxes of one class: the weaker one stays, unless max_det leaves it out; nothing counts as capped."""

    class Twice(Oracle):
        def forward(self, images):
            return SimpleNamespace(**super().forward(images)._asdict(), end_to_end=end_to_end)

    sample = letterboxed(0, 64, 64)
    box = seen(sample, LABELS[0][0])
    answers = [[(0, 0.9, *box), (0, 0.8, *box)]]
    found = run([sample], answers, model=Twice(answers)).found
    assert found.scores.tolist() == pytest.approx([0.9, 0.8] if end_to_end else [0.9])
    few = run([sample], answers, model=Twice(answers), max_det=1)
    assert few.found.scores.tolist() == pytest.approx([0.9]) and few.capped_candidates == 0


def test_more_objects_than_max_det_is_said():
    """VAL-05."""
    samples, answers = perfect()
    evaluation = run(samples, answers, max_det=2)
    assert [len(evaluation.found.of(i)) for i in range(4)] == [2, 1, 0, 2]
    assert "max_det=3" in evaluation.notices[0]
    assert not run(samples, answers, max_det=3).notices


def test_the_model_is_left_as_it_was():
    """AMP-02, AMP-06: dtype, bits, training flags; and what it kept can be trained on."""
    samples, answers = perfect()
    model = Oracle(answers).train()
    model.frozen.eval()
    before = copy.deepcopy(model.state_dict())

    half = lambda: torch.autocast("cpu", torch.bfloat16)
    run(samples, answers, model=model, autocast=half)

    after = model.state_dict()
    assert after["weight"].tolist() == [70000.0, 1.0]
    assert all(torch.equal(before[k], after[k]) and before[k].dtype == after[k].dtype for k in before)
    assert model.training and model.norm.training and not model.frozen.training
    assert not model.cached.is_inference()
    (model.weight * model.cached).sum().backward()
    with torch.no_grad():
        model.weight.lerp_(model.cached, 0.5)


def test_training_flags_come_back_after_an_error_too():
    samples, answers = perfect()
    model = Oracle(answers, classes=4).train()
    with pytest.raises(ConfigError, match=r"scores 4 classes and the data has 3"):
        run(samples, answers, model=model)
    assert model.training


def test_progress_counts_images():
    samples, answers = perfect()
    counts = []
    evaluation = run(samples, answers, batch=3, on_progress=counts.append)
    assert counts == [3, 1]
    assert set(evaluation.seconds) == {"preprocess", "inference", "postprocess", "scoring"}


class Cramped(Oracle):
    """Runs out of memory with more than so many pictures at a time."""

    def __init__(self, answers, room):
        super().__init__(answers)
        self.room, self.seen, self.asked = room, [], []

    def forward(self, images):
        self.asked.append(len(images))
        if len(images) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.seen += (images[:, 0, 0, 0] * 255).round().long().tolist()
        return super().forward(images)


@pytest.mark.parametrize(("room", "asked"), [(2, [4, 2, 2]), (1, [4, 2, 1, 1, 1, 1]), (4, [4])])
def test_out_of_memory_halves_the_batch_and_scores_every_image_once(room, asked):
    samples, answers = perfect()
    model, shrinks, shown = Cramped(answers, room), [], []
    options = {"model": model, "batch": 4, "on_progress": shown.append, "on_shrink": lambda *a: shrinks.append(a)}
    result = run(samples, answers, **options)
    assert model.asked == asked and model.seen == [0, 1, 2, 3] and sum(shown) == 4
    assert [(before, after) for before, after, _ in shrinks] == [(4, 2), (2, 1)][: len(set(asked)) - 1]
    assert result.metrics == run(samples, answers, batch=4).metrics
    assert result.images == 4


def test_what_comes_after_a_halving_stays_small():
    samples, answers = perfect()
    model = Cramped(answers, 1)
    run(samples, answers, model=model, batch=2)
    assert model.asked == [2, 1, 1, 1, 1]
    model = Cramped(answers, 1)
    run(samples, answers, model=model, batch=4, at_once=1)
    assert model.asked == [1, 1, 1, 1]


def test_one_picture_that_does_not_fit_is_an_error_with_its_size():
    samples, answers = perfect()
    with pytest.raises(OutOfMemory, match="64 x 64"):
        run(samples, answers, model=Cramped(answers, 0))
