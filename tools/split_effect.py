"""How much a result moves with the split: the same images per update as one batch and as single images, with the window's
denominator and with each micro-batch's own.

    python tools/split_effect.py data=PATH keep=Platelets batch=16|1 denominator=window|micro_batch norm=batch|group seed=0
                                 [any training setting]
    python tools/split_effect.py table=FOLDER

``keep`` names the one class whose objects stay labelled; the others' labels are left out in a copy under project (pictures
are linked, and the data are not touched), so that many pictures become background. ``denominator=window`` is the product's
own path. With ``micro_batch`` each micro-batch divides by its own weight, at least 1, as other trainers do, and a window is
the mean over its images; with one micro-batch in a window both are the same. A run ends with one line of JSON, which also stands
in its folder; ``table`` reads those of a project. The settings are ``nbs=16 imgsz=192 epochs=30`` unless others are given.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tools.results import answer, exit_with, rows_of, store
from visiontrain.batch import Targets
from visiontrain.config.files import to_yaml
from visiontrain.config.parse import parse_words
from visiontrain.config.schema import TrainConfig
from visiontrain.data.description import load_description
from visiontrain.data.index import Index, read_split
from visiontrain.errors import ConfigError
from visiontrain.losses import LOSSES, DetectionLoss, LossSum, Term
from visiontrain.nn.head import HeadOutput
from visiontrain.training.run import train

SETTINGS = {"nbs": "16", "imgsz": "192", "epochs": "30", "norm": "batch", "plots": "false"}
DENOMINATORS = ("window", "micro_batch")
USAGE = "python tools/split_effect.py data=PATH keep=CLASS denominator=window|micro_batch [setting=value ...], or table=FOLDER"
RESULT = "split_effect.json"


class OwnDenominator(DetectionLoss):
    """The product's loss, each micro-batch divided by its own weight: summed and divided as usual, the mean of quotients."""

    def __call__(self, output: HeadOutput, targets: Targets) -> LossSum:
        return divided_by_itself(super().__call__(output, targets), len(output.scores))


def divided_by_itself(loss: LossSum, images: int) -> LossSum:
    """Each total becomes images * total / max(weight, 1), its weight the images.

    A window then has the gradient images * sum(images_k * total_k / weight_k) / sum(images_k): that of the mean over images
    of the quotients, with the factor that a window has anyway.
    """
    factors = {name: images / term.weight.clamp(min=1) for name, term in loss.terms.items()}
    return LossSum(
        {
            name: Term(term.total * factors[name].to(term.total.dtype), term.weight.new_tensor(float(images)))
            for name, term in loss.terms.items()
        },
        {name: {part: value * factors[name] for part, value in parts.items()} for name, parts in loss.parts.items()},
    )


def with_one_class(data: str, keep: str, project: Path) -> Path:
    """The description of a copy in which objects of ``keep`` alone are labelled; made once, whoever asks first."""
    target = project / f"data-{keep}"
    if (target / "data.yaml").is_file():
        return target / "data.yaml"
    description = load_description(data)
    if keep not in description.names:
        raise ConfigError(f"keep={keep}: {description.file} has the classes {', '.join(description.names)}")
    number = description.names.index(keep)
    project.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(dir=project, prefix=".making-"))
    for split in ("train", "val"):
        _copy(read_split(description, split), making, split, number)
    content = {"train": "images/train", "val": "images/val", "names": [keep]}
    (making / "data.yaml").write_text(to_yaml(content), encoding="utf-8")
    try:
        making.rename(target)
    except OSError:  # another process was first, with the same content
        shutil.rmtree(making)
    return target / "data.yaml"


def _copy(index: Index, folder: Path, split: str, number: int) -> None:
    """Links to the pictures of a split, in its order, and label files with the objects of one class, now class 0."""
    images, labels = (folder / kind / split for kind in ("images", "labels"))
    images.mkdir(parents=True)
    labels.mkdir(parents=True)
    for i in range(len(index)):
        picture = Path(index.path(i)).resolve()
        link = images / f"{i:06d}-{picture.name}"
        link.symlink_to(picture)
        boxes = index.boxes(i)[index.classes(i) == number]
        rows = [" ".join(["0", *map(repr, box)]) + "\n" for box in boxes.tolist()]
        (labels / link.name).with_suffix(".txt").write_text("".join(rows), encoding="utf-8")


def read_words(words: Sequence[str]) -> tuple[TrainConfig, str, str]:
    """Settings with ``data`` as given, the class to keep, the denominator."""
    given = dict(word.split("=", 1) for word in words if "=" in word)
    keep, denominator = given.pop("keep", ""), given.pop("denominator", "")
    if not keep or denominator not in DENOMINATORS or len(given) + 2 != len(words):
        raise ConfigError(f"{' '.join(words)}: not understood\nusage: {USAGE}")
    config = parse_words(TrainConfig, [f"{name}={value}" for name, value in {**SETTINGS, **given}.items()])
    return config, keep, denominator


def run(config: TrainConfig, keep: str, denominator: str) -> dict[str, Any]:
    """Train; the result as it is printed and stored."""
    data = with_one_class(config.data, keep, Path(config.output.project))
    criterion = {"window": DetectionLoss, "micro_batch": OwnDenominator}[denominator]
    with patch.dict(LOSSES, {"detection": criterion}):
        result = train(replace(config, data=str(data)))
    settings = ("data", "norm", "batch", "nbs", "imgsz", "epochs", "seed")
    return store(result, RESULT, config, settings, {"keep": keep, "denominator": denominator})


def table(folder: Path) -> str:
    """A markdown table of a project's runs: a row for each norm, denominator and seed, a column of AP for each batch."""
    rows = rows_of(folder, RESULT)
    batches = sorted({row["batch"] for row in rows}, reverse=True)
    found: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = defaultdict(dict)
    for row in rows:
        found[row["norm"], row["denominator"], row["seed"]][row["batch"]] = row
    heads = [f"AP (AP50) batch={batch}" for batch in batches]
    lines = [f"| norm | denominator | seed | {' | '.join(heads)} |", "|" + "---|" * (3 + len(batches))]
    for key in sorted(found):
        cells = [_score(found[key].get(batch)) for batch in batches]
        lines.append(f"| {' | '.join(map(str, key))} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _score(row: dict[str, Any] | None) -> str:
    return f"{row['ap']:.3f} ({row['ap50']:.3f})" if row else ""


def main(words: Sequence[str]) -> None:
    answer(words, lambda given: run(*read_words(given)), table)


if __name__ == "__main__":
    exit_with(main)
