"""Is the embedded data set hard enough that a fault shows? Train on it as it is and with planted faults, and compare.

    python tools/planted_faults.py [faults=mosaic,dfl,letterbox,classes] [any training setting]

The faults: boxes 8 px off in the mosaic; the distribution focal loss off; the letterbox undone at a wrong offset (8 px, in
validation); a fifth of the training objects with another class. The settings are those of the README's first command
unless others are given. A fault that costs less than 0.05 mAP50-95 exits with code 1.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from visiontrain.batch import Sample
from visiontrain.config.parse import parse_words
from visiontrain.config.schema import TrainConfig, ValConfig
from visiontrain.data.augment import AUGMENTATIONS
from visiontrain.data.augment.draft import Context, Draft
from visiontrain.data.dataset import EvalSet, TrainSet
from visiontrain.evaluation.validation import validate
from visiontrain.training.run import RunResult, train

README = "data=shapes imgsz=160 batch=8 nbs=8 epochs=12 close_mosaic=2".split()  # noqa: SIM905 - as it is typed
LEAST_COST = 0.05
OFFSET = 8.0  # pixels


@contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = owner[name] if isinstance(owner, dict) else getattr(owner, name)
    put: Callable[[Any], None] = lambda v: (
        owner.update({name: v}) if isinstance(owner, dict) else setattr(owner, name, v)
    )
    put(value)
    try:
        yield
    finally:
        put(before)


@contextmanager
def mosaic_off_by_8(words: list[str]) -> Iterator[None]:
    place = AUGMENTATIONS["affine"]

    def shifted(draft: Draft, context: Context) -> Draft:
        done = place(draft, context)
        return replace(done, boxes=done.boxes + OFFSET) if len(draft.tiles) == 4 else done

    with patched(AUGMENTATIONS, "affine", shifted):
        yield


@contextmanager
def no_dfl(words: list[str]) -> Iterator[None]:
    words.append("dfl=0")
    yield


@contextmanager
def wrong_letterbox(words: list[str]) -> Iterator[None]:
    make = EvalSet.__getitem__

    def moved(dataset: EvalSet, i: int) -> Sample:
        sample = make(dataset, i)
        return replace(sample, pad=(sample.pad[0] + OFFSET, sample.pad[1] + OFFSET))

    with patched(EvalSet, "__getitem__", moved):
        yield


@contextmanager
def swapped_classes(words: list[str]) -> Iterator[None]:
    make = TrainSet.__init__

    def mislabelled(dataset: TrainSet, index: Any, *arguments: Any, **named: Any) -> None:
        wrong = np.random.default_rng(0).random(len(index.all_classes)) < 0.2
        classes = np.where(wrong, (index.all_classes + 1) % len(index.names), index.all_classes)
        make(dataset, replace(index, all_classes=classes), *arguments, **named)

    with patched(TrainSet, "__init__", mislabelled):
        yield


FAULTS = {"mosaic": mosaic_off_by_8, "dfl": no_dfl, "letterbox": wrong_letterbox, "classes": swapped_classes}
VALIDATION = {"letterbox"}  # faults that training does not see: the sound run's best.pt is scored with them


@contextmanager
def nothing(words: list[str]) -> Iterator[None]:
    yield


def trained(fault: Callable[[list[str]], Any], words: Sequence[str], project: str) -> RunResult:
    told = [*words, f"project={project}", "plots=false"]
    with fault(told):
        return train(parse_words(TrainConfig, told))


def scored(fault: Callable[[list[str]], Any], run: RunResult, project: str) -> dict[str, float]:
    told = [f"model={run.folder / 'weights' / 'best.pt'}", "workers=0", f"project={project}/val", "plots=false"]
    with fault(told):
        return validate(parse_words(ValConfig, told)).metrics


def main(words: Sequence[str]) -> int:
    own = dict(word.split("=", 1) for word in words if word.startswith("faults="))
    chosen = own.get("faults", ",".join(FAULTS)).split(",")
    given = {word.split("=", 1)[0] for word in words}
    settings = [word for word in README if word.split("=", 1)[0] not in given]
    settings += [word for word in words if not word.startswith("faults=")]
    cheap = 0
    with tempfile.TemporaryDirectory() as folder:
        sound = trained(nothing, settings, folder)
        whole = sound.metrics
        print(f"{'as it is':>12}  mAP50 {whole['ap50']:.3f}  mAP50-95 {whole['ap']:.3f}", flush=True)
        for name in chosen:
            fault = FAULTS[name]
            found = scored(fault, sound, folder) if name in VALIDATION else trained(fault, settings, folder).metrics
            cost = whole["ap"] - found["ap"]
            cheap += cost < LEAST_COST
            print(f"{name:>12}  mAP50 {found['ap50']:.3f}  mAP50-95 {found['ap']:.3f}  costs {cost:.3f}", flush=True)
    return 1 if cheap else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
