"""Pictures per second of an evaluation whose model costs nothing: a stub that knows what it has to say of each picture.

    GOMP_SPINCOUNT=1000 python tools/bench_val.py [pictures=2000] [classes=80] [batch=16] [workers=2] [folder=DIR] [oracle=true] [format=json]

The pictures are flat squares of 640 px whose grey level names one of 16 fixed sets of predictions, 8,400 boxes with a score
for each class, of which some 1,500 scores are above the confidence of 0.001, as a trained detector has them. ``folder``
keeps pictures, labels, data.yaml and predictions.npz (boxes xyxy in pixels of the picture), so that another validator can be
given the same; compare by running both in turn. The variable is what the command line sets. ``oracle`` scores the same detections with pycocotools, which takes minutes.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor, nn

from visiontrain.config.groups import ScoringConfig
from visiontrain.data.dataset import EvalSet
from visiontrain.data.description import load_description
from visiontrain.data.index import Index, read_split
from visiontrain.data.loader import evaluation_loader
from visiontrain.evaluation.evaluator import Evaluation, evaluate
from visiontrain.nn.head import DetectorOutput

OWN = {
    "pictures": "2000",
    "classes": "80",
    "batch": "16",
    "workers": "2",
    "folder": "",
    "oracle": "false",
    "format": "text",
}
KINDS, SIDE, ANCHORS, OBJECTS = 16, 640, 8400, 8
GREY = 10  # of the first kind; the others follow at equal steps


def predictions(classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Truth and predictions of each kind.

    Returns:
        boxes (KINDS, OBJECTS, 4) xyxy pixels and classes (KINDS, OBJECTS) of what is there; boxes (KINDS, ANCHORS, 4) and
        scores (KINDS, ANCHORS, classes) of what a detector says: a dozen boxes about each object, the rest anywhere.
    """
    rng = np.random.default_rng(seed)
    corner, sides = rng.uniform(0, SIDE - 260, (KINDS, OBJECTS, 2)), rng.uniform(12, 250, (KINDS, OBJECTS, 2))
    truth, labels = np.concatenate((corner, corner + sides), -1), rng.integers(0, classes, (KINDS, OBJECTS))
    near = OBJECTS * 12
    middle, half = rng.uniform(0, SIDE, (KINDS, ANCHORS, 2)), rng.uniform(4, 120, (KINDS, ANCHORS, 2))
    boxes = np.concatenate((middle - half, middle + half), -1)
    boxes[:, :near] = np.repeat(truth, 12, 1) + rng.normal(0, 0.06, (KINDS, near, 4)) * np.tile(
        np.repeat(sides, 12, 1), 2
    )
    scores = rng.uniform(0, 5e-4, (KINDS, ANCHORS, classes))
    for kind in range(KINDS):
        weak = rng.integers(0, ANCHORS * classes, 1400)
        scores[kind].reshape(-1)[weak] = np.exp(rng.uniform(np.log(1e-3), np.log(0.08), len(weak)))
        scores[kind, np.arange(near), np.repeat(labels[kind], 12)] = rng.beta(2, 2, near)
    return truth, labels, boxes.astype(np.float32), scores.astype(np.float32)


class Stub(nn.Module):
    """(B, 3, H, W) -> what is stored for the grey level in the middle of each picture."""

    def __init__(self, boxes: np.ndarray, scores: np.ndarray) -> None:
        super().__init__()
        self.boxes, self.scores = torch.from_numpy(boxes), torch.from_numpy(scores)

    def forward(self, images: Tensor) -> DetectorOutput:
        height, width = images.shape[-2:]
        kind = kind_of(images[:, 0, height // 2, width // 2])
        pad = torch.tensor([(width - SIDE) / 2, (height - SIDE) / 2]).repeat(2)
        return DetectorOutput(self.boxes[kind] + pad, self.scores[kind], None)


def kind_of(level: Tensor) -> Tensor:
    """The kind whose grey is nearest, of a level in 0..1."""
    return ((level * 255 - GREY) / STEP).round().long()


STEP = (255 - 2 * GREY) // KINDS


def write(folder: Path, pictures: int, classes: int) -> None:
    """Pictures, labels, data.yaml and predictions.npz."""
    truth, labels, boxes, scores = predictions(classes)
    for name in ("images/val", "labels/val"):
        (folder / name).mkdir(parents=True)
    middle, sides = (truth[..., :2] + truth[..., 2:]) / 2 / SIDE, (truth[..., 2:] - truth[..., :2]) / SIDE
    rows = np.concatenate((labels[..., None], middle, sides), -1)
    for kind in range(KINDS):
        flat = np.full((SIDE, SIDE, 3), GREY + kind * STEP, np.uint8)
        jpeg = cv2.imencode(".jpg", flat, [cv2.IMWRITE_JPEG_QUALITY, 100])[1].tobytes()
        text = "\n".join(f"{int(k)} {x:.6f} {y:.6f} {w:.6f} {h:.6f}" for k, x, y, w, h in rows[kind])
        for number in range(kind, pictures, KINDS):
            (folder / f"images/val/{number:06}.jpg").write_bytes(jpeg)
            (folder / f"labels/val/{number:06}.txt").write_text(text)
    names = "\n".join(f"  {k}: class{k}" for k in range(classes))
    (folder / "data.yaml").write_text(
        f"path: {folder.absolute()}\ntrain: images/val\nval: images/val\nnames:\n{names}\n"
    )
    np.savez(folder / "predictions.npz", boxes=boxes, scores=scores)


def measure(folder: Path, batch: int, workers: int) -> tuple[Index, Evaluation, float]:
    """Evaluate once with the clock running: from the first picture to the scores; the labels are read before."""
    index = read_split(load_description(str(folder / "data.yaml")), "val")
    with np.load(folder / "predictions.npz") as known:
        model = Stub(known["boxes"], known["scores"])
    with closing(evaluation_loader(EvalSet(index, SIDE), batch, workers)) as loader:
        began = time.perf_counter()
        evaluation = evaluate(
            model, loader, device="cpu", scoring=ScoringConfig(), class_names=index.names, index=index
        )
        return index, evaluation, time.perf_counter() - began


def oracle(index: Index, evaluation: Evaluation) -> tuple[float, float]:
    """AP and AP50 by pycocotools of the detections of an evaluation."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def annotation(i: int, image: int, klass: int, box: np.ndarray, score: float = 1.0) -> dict[str, Any]:
        x1, y1, x2, y2 = box.tolist()
        shape = {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1)}
        return {"id": i, "image_id": image, "category_id": klass, "iscrowd": 0, "score": score, **shape}

    labels = [
        (image, int(k), box)
        for image in range(len(index))
        for k, box in zip(index.classes(image), index.pixel_boxes(image), strict=True)
    ]
    found = evaluation.found
    shared = {
        "images": [{"id": i} for i in range(len(index))],
        "categories": [{"id": k} for k in range(len(index.names))],
    }
    tables = (
        [annotation(i, *label) for i, label in enumerate(labels, 1)],
        [
            annotation(i, int(image), int(k), box, float(score))
            for i, (image, k, box, score) in enumerate(
                zip(found.image, found.classes, found.boxes, found.scores, strict=True), 1
            )
        ],
    )
    with contextlib.redirect_stdout(io.StringIO()):
        sides = []
        for annotations in tables:
            side = COCO()
            side.dataset = {**shared, "annotations": annotations}
            side.createIndex()
            sides.append(side)
        scorer = COCOeval(*sides, "bbox")
        scorer.evaluate()
        scorer.accumulate()
        scorer.summarize()
    return float(scorer.stats[0]), float(scorer.stats[1])


def main(words: Sequence[str]) -> int:
    given = dict(word.split("=", 1) for word in words)
    if unknown := given.keys() - OWN.keys():
        print(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(OWN)}", file=sys.stderr)
        return 2
    own = {**OWN, **given}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(own["folder"] or temporary)
        if not (folder / "data.yaml").exists():
            write(folder, int(own["pictures"]), int(own["classes"]))
        index, evaluation, seconds = measure(folder, int(own["batch"]), int(own["workers"]))
        facts = {
            "pictures": len(index),
            "seconds": seconds,
            "pictures_per_second": len(index) / seconds,
            "detections": len(evaluation.found),
            "stages": evaluation.seconds,
            "ap": evaluation.metrics["ap"],
            "ap50": evaluation.metrics["ap50"],
            "cores": os.cpu_count(),
        }
        if own["oracle"] == "true":
            facts["oracle_ap"], facts["oracle_ap50"] = oracle(index, evaluation)
    if own["format"] == "json":
        print(json.dumps(facts))
        return 0
    print(f"{facts['pictures']} pictures in {seconds:.1f} s: {facts['pictures_per_second']:.0f} a second")
    for stage, took in evaluation.seconds.items():
        print(f"  {stage:<12} {took:6.1f} s  {took / len(index) * 1e3:6.2f} ms a picture")
    print(f"AP {facts['ap']:.6f}, AP50 {facts['ap50']:.6f} of {facts['detections']} detections")
    if "oracle_ap" in facts:
        print(f"pycocotools on the same detections: AP {facts['oracle_ap']:.6f}, AP50 {facts['oracle_ap50']:.6f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
