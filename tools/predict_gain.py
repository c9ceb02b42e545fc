"""What test-time augmentation and tiles are worth: AP on the val split as ``predict`` finds objects, for several settings.

    python tools/predict_gain.py model=best.pt data=my.yaml augment=true -- tile=320 -- tile=320 imgsz=640

Settings are those of ``predict``; ``--`` divides rows of the table, and the first row is without any.
"""

from __future__ import annotations

import sys
from itertools import groupby
from time import process_time

import numpy as np

from visiontrain.config.parse import parse_keywords
from visiontrain.config.schema import PredictConfig
from visiontrain.data.description import load_description
from visiontrain.data.index import Index, open_index
from visiontrain.evaluation.objects import Objects
from visiontrain.evaluation.scoring import score
from visiontrain.prediction.run import predict


def found_by(settings: dict[str, str], paths: list[str]) -> tuple[Objects, float]:
    """All boxes above 0.001, and milliseconds of the processor for a picture."""
    config = parse_keywords(PredictConfig, {"conf": 0.001, "save": False, "source": "val", **settings})
    parts, began = [], process_time()
    for number, result in enumerate(predict(config, paths)):
        boxes = result.boxes.numpy()
        rows = boxes.xyxy.astype(float), boxes.cls.astype(int), boxes.conf.astype(float)
        parts.append(Objects(np.full(len(boxes), number), *rows))
    return Objects.join(parts), 1000 * (process_time() - began) / len(paths)


def truth_of(index: Index) -> Objects:
    """The labels in original pixels."""
    parts = []
    for number in range(len(index)):
        boxes, classes = np.asarray(index.pixel_boxes(number), float), np.asarray(index.classes(number))
        parts.append(Objects(np.full(len(boxes), number), boxes, classes, np.ones(len(boxes))))
    return Objects.join(parts)


def main(words: list[str]) -> None:
    """Print the table."""
    pairs = [tuple(word.split("=", 1)) if word != "--" else () for word in words]
    known = dict(pair for pair in pairs if pair)
    fixed = {"model": known.pop("model"), "device": known.pop("device", "cpu")}
    index = open_index(load_description(known.pop("data")), "val")
    paths, truth = [index.path(number) for number in range(len(index))], truth_of(index)
    rows = [{k: v for k, v in group if k in known} for is_row, group in groupby(pairs, bool) if is_row]
    print("settings                    AP   AP50   small  boxes/picture at 0.25   CPU ms")
    for settings in [{}, *rows]:
        found, spent = found_by({**fixed, **settings}, paths)
        precision = score(truth, found, len(index.names), 300)
        figures = [precision.mean() or 0, precision.mean(iou=0) or 0, precision.mean(area="small") or 0]
        name = " ".join(f"{k}={v}" for k, v in settings.items()) or "none"
        sure = (found.scores >= 0.25).sum() / len(paths)
        print(f"{name:<24}{''.join(f'{f:7.4f}' for f in figures)} {sure:8.2f} {spent:19.1f}")


if __name__ == "__main__":
    main(sys.argv[1:])
