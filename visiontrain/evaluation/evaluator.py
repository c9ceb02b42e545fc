"""Run a detector over a split and say how well it found what is there. Nothing of the model changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from visiontrain.batch import Batch, Sample
from visiontrain.config.groups import ScoringConfig
from visiontrain.data.bad import refuse_many
from visiontrain.data.index import Index
from visiontrain.distributed import ALONE, Ranks
from visiontrain.errors import ConfigError, DataError, OutOfMemory
from visiontrain.evaluation.curves import Confidence, confusion, judged, most_errors, over_confidence
from visiontrain.evaluation.objects import Objects
from visiontrain.evaluation.scores import Evaluation
from visiontrain.evaluation.scoring import AREAS, Precision, score
from visiontrain.memory import NoRoom, attempt, halved, release
from visiontrain.prediction.postprocess import choose, in_original_pixels
from visiontrain.record.events import Curves


class Labels(Protocol):
    """What is needed of an index: the objects of an image."""

    def boxes(self, i: int) -> np.ndarray:
        """Of image ``i``, (N, 4) cx cy w h, normalised to 0..1."""
        ...

    def classes(self, i: int) -> np.ndarray:
        """Of image ``i``, (N,)."""
        ...

    def ignored(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Boxes and classes in image ``i`` that are not scored, as the two above."""
        ...


def evaluate(
    model: nn.Module,
    loader: Iterable[Batch],
    *,
    device: torch.device | str,
    scoring: ScoringConfig,
    class_names: Sequence[str],
    index: Labels,
    on_progress: Callable[[int], None] | None = None,
    autocast: Callable[[], AbstractContextManager[Any]] | None = None,
    at_once: int | None = None,
    on_shrink: Callable[[int, int, str], None] = lambda before, after, said: None,
    ranks: Ranks = ALONE,
) -> Evaluation:
    """Detect, undo the letterbox, score against the labels in original pixels.

    Several ranks detect in their shares of the pictures, and rank 0 scores them all; each has the same evaluation
    afterwards, ``found`` only rank 0.

    A batch that runs out of memory is done again in halves, and so is all that comes after it: each image is scored once.

    Args:
        model: gives ``boxes`` (B, A, 4) xyxy pixels and ``scores`` (B, A, C) in eval mode; weights, buffers and the
            training flag of every module are as before afterwards.
        loader: batches with ``samples``; the images they name are the ones scored, together with those of other ranks.
        device: where the model is.
        scoring: confidence, NMS overlap and max_det.
        class_names: one per class of the data.
        index: the labels by ``Sample.position``.
        on_progress: called with the number of images of each batch.
        autocast: makes the context of the forward pass.
        at_once: images of a forward pass at the most; None: those of a batch.
        on_shrink: called with ``at_once`` before and after a halving, and with what the failing call told; after the
            last picture, with the smallest of all ranks.
        ranks: who shares the split.

    Raises:
        DataError: two ranks were given the same picture.
        RankLost: a rank did not come.
        ConfigError: the model scores another number of classes than the data has.
        OutOfMemory: a single image does not fit.
    """
    run = _Run()
    # no_grad and not inference_mode: what a module caches now, training may use later.
    with _in_eval_mode(model), torch.no_grad():
        for batch in run.timed("preprocess", loader):
            at_once, done = at_once or len(batch), 0
            while done < len(batch):
                piece = batch.slice(done, done + at_once)
                found = attempt(
                    partial(_detect, run, model, piece, torch.device(device), scoring, class_names, autocast)
                )
                if isinstance(found, NoRoom):
                    run.room = None
                    release(torch.device(device))
                    before, at_once = at_once, _smaller(at_once, piece, found)
                    run.shrinks.append((before, at_once, found.said))
                    if ranks.size == 1:
                        on_shrink(*run.shrinks[-1])
                    continue
                run.add(found, piece.samples)
                done += len(piece)
                if on_progress is not None:
                    on_progress(len(piece) * ranks.size)
    run.room = None
    if ranks.size == 1:
        return _judge(run, index, tuple(class_names), scoring)
    for shrink in sorted({each for found in ranks.gather(run.shrinks) for each in found}, reverse=True):
        on_shrink(*shrink)
    runs, whole = ranks.collect(run), []

    def judge() -> Evaluation:
        whole.append(_judge(_joined(runs), index, tuple(class_names), scoring))
        return replace(whole[0], found=Objects.join([]))  # large, and the others do not draw

    told = ranks.first(judge)
    return whole[0] if whole else told


def score_detections(found: Objects, index: Index, scoring: ScoringConfig) -> Evaluation:
    """Score detections that are there already, from a file, say; those below ``conf`` are left out.

    Args:
        found: in original pixels, by the pictures' positions in the split.
        index: the labels.
        scoring: confidence and max_det.
    """
    none = np.empty((0, 0, 3), np.uint8), np.zeros(0, np.int64), np.zeros((0, 4), np.float32)
    run = _Run(samples=[Sample(*none, position=i, original=index.size(i)) for i in range(len(index))])
    run.found.append((0, found.where(found.scores > scoring.conf)))
    return _judge(run, index, index.names, scoring)


def _detect(
    run: _Run,
    model: nn.Module,
    batch: Batch,
    device: torch.device,
    scoring: ScoringConfig,
    class_names: Sequence[str],
    autocast: Callable[[], AbstractContextManager[Any]] | None,
) -> _Found:
    """What is in the images of a batch; nothing is noted yet but the time."""
    with run.stage("preprocess"):
        dtype = next((p.dtype for p in model.parameters()), torch.float32)
        images = run.room = batch.to(device, dtype, run.room).images
    with run.stage("inference"), (autocast or nullcontext)():
        output = model(images)
        _wait_for(images.device)
    if output.scores.shape[-1] != len(class_names):
        raise ConfigError(
            f"the model scores {output.scores.shape[-1]} classes and the data has {len(class_names)}: "
            "give the data set that the model was trained on"
        )
    with run.stage("postprocess"):
        chosen = choose(output, conf=scoring.conf, iou=scoring.iou, max_det=scoring.max_det)
        columns = in_original_pixels(chosen.detections, batch.samples)
        position = np.repeat([sample.position for sample in batch.samples], columns.counts)
        objects = Objects(position, columns.boxes, columns.classes, columns.scores)
        return _Found(objects, chosen.capped, chosen.non_finite)


def _smaller(at_once: int, piece: Batch, failure: NoRoom) -> int:
    if len(piece) > 1:
        return halved(at_once, len(piece))
    height, width = piece.images.shape[-2:]
    raise OutOfMemory(
        f"validation: one image of {width} x {height} pixels does not fit ({failure.said}). Make room on the device, or use "
        "a smaller imgsz or model."
    )


@dataclass(frozen=True, slots=True)
class _Found:
    objects: Objects
    capped: int
    non_finite: int


@dataclass
class _Run:
    """What gathers over the batches."""

    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("preprocess", "inference", "postprocess", "scoring"), 0.0)
    )
    found: list[tuple[int, Objects]] = field(default_factory=list)  # with the position of the first picture
    samples: list[Sample] = field(default_factory=list)
    capped: int = 0
    non_finite: int = 0
    shrinks: list[tuple[int, int, str]] = field(default_factory=list)
    room: Tensor | None = None  # the pictures of the last batch

    def add(self, found: _Found, samples: Sequence[Sample]) -> None:
        self.found.append((samples[0].position, found.objects))
        self.samples.extend(samples)
        self.capped += found.capped
        self.non_finite += found.non_finite

    @property
    def bad(self) -> tuple[str, ...]:
        """What is wrong with pictures that could not be read."""
        return tuple(each for sample in self.samples for each in sample.bad)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began = perf_counter()
        yield
        self.seconds[name] += perf_counter() - began

    def timed(self, name: str, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The same batches; the time spent waiting for them belongs to a stage."""
        began = perf_counter()
        for batch in batches:
            self.seconds[name] += perf_counter() - began
            yield batch
            began = perf_counter()


def _joined(runs: Sequence[_Run]) -> _Run:
    """What the ranks found, in the order in which one would have; each stage took as long as on the slowest."""
    samples = [sample for run in runs for sample in run.samples]
    if len({sample.position for sample in samples}) < len(samples):
        raise DataError("a picture was given to two ranks; every picture must be scored once")
    return _Run(
        seconds={stage: max(run.seconds[stage] for run in runs) for stage in runs[0].seconds},
        found=sorted((part for run in runs for part in run.found), key=lambda part: part[0]),
        samples=samples,
        capped=sum(run.capped for run in runs),
        non_finite=sum(run.non_finite for run in runs),
    )


@contextmanager
def _in_eval_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode inside; afterwards each module trains or not as it was found (a frozen BatchNorm stays frozen)."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


def _wait_for(device: torch.device) -> None:
    """Let the accelerator finish, so that its time is charged to the right stage; the next stage would wait anyway."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _truth(index: Labels, samples: Sequence[Sample]) -> tuple[Objects, Objects]:
    """The labels of the evaluated images, in original pixels: those to find, and those that are ignored."""
    wanted, ignored = [], []
    for sample in samples:
        i = sample.position
        wanted.append(_objects(sample, index.boxes(i), index.classes(i)))
        ignored.append(_objects(sample, *index.ignored(i)))
    return Objects.join(wanted), Objects.join(ignored)


def _objects(sample: Sample, boxes: np.ndarray, classes: np.ndarray) -> Objects:
    rows = np.asarray(boxes, np.float64).reshape(-1, 4)
    size = np.array(sample.original[::-1] * 2, np.float64)
    corners = np.concatenate((rows[:, :2] - rows[:, 2:] / 2, rows[:, :2] + rows[:, 2:] / 2), 1) * size
    return Objects(np.full(len(rows), sample.position), corners, np.asarray(classes, np.int64), np.ones(len(rows)))


def _readable(run: _Run) -> list[Sample]:
    """The samples to score, in order: a picture that could not be read counts neither for nor against the model.

    Raises:
        DataError: too many could not.
    """
    refuse_many(run.bad, len(run.samples))
    return sorted((sample for sample in run.samples if not sample.bad), key=lambda s: s.position)


def _judge(run: _Run, index: Labels, names: tuple[str, ...], scoring: ScoringConfig) -> Evaluation:
    with run.stage("scoring"):
        samples = _readable(run)
        (truth, ignored), found = _truth(index, samples), Objects.join([objects for _, objects in run.found])
        found = found.where(np.isin(found.image, [s.position for s in samples])) if run.bad else found
        precision = score(truth, found, len(names), scoring.max_det, ignored)
        counted = judged(truth, found, ignored)
        sweep = over_confidence(truth, counted, len(names))
        matrix = confusion(truth, counted, len(names))
        worst = most_errors(truth, counted)
    per_class = {name: _of_class(i, truth, precision, sweep) for i, name in enumerate(names)}
    return Evaluation(
        metrics=_metrics(precision, sweep),
        per_class=per_class,
        curves=_curves(names, precision, sweep, matrix),
        found=found,
        images=len(samples),
        targets=len(truth),
        confidence=sweep.threshold,
        capped_candidates=run.capped,
        non_finite=run.non_finite,
        seconds=run.seconds,
        worst=worst,
        notices=tuple(_notices(run, truth, scoring)),
    )


def _metrics(precision: Precision, sweep: Confidence) -> dict[str, float]:
    labelled = ~np.isnan(sweep.recall[:, 0])
    means = {
        "ap": precision.mean(),
        "ap50": precision.mean(iou=0),
        "ap75": precision.mean(iou=5),
        "ap_max_det": precision.mean(limit=1),
        "precision": float(sweep.precision[labelled, sweep.best].mean()) if labelled.any() else None,
        "recall": float(sweep.recall[labelled, sweep.best].mean()) if labelled.any() else None,
    }
    sizes = {f"ap_{area}": precision.mean(area=area) for area in list(AREAS)[1:]}
    return {k: v or 0.0 for k, v in means.items()} | {k: v for k, v in sizes.items() if v is not None}


def _of_class(i: int, truth: Objects, precision: Precision, sweep: Confidence) -> dict[str, float | int | None]:
    mine = truth.classes == i
    p, r = (float(table[i, sweep.best]) if mine.any() else None for table in (sweep.precision, sweep.recall))
    return {
        "precision": p,
        "recall": r,
        "ap": precision.mean(klass=i),
        "ap50": precision.mean(iou=0, klass=i),
        "instances": int(mine.sum()),
        "images": len(np.unique(truth.image[mine])),
    }


def _curves(names: tuple[str, ...], precision: Precision, sweep: Confidence, matrix: np.ndarray) -> Curves:
    at_half = precision.at[0, :, :, 0, 0].T
    return Curves(
        class_names=names,
        precision=np.where(at_half > -1, at_half, np.nan),
        confidence_precision=sweep.precision[:, ::10],
        confidence_recall=sweep.recall[:, ::10],
        confidence_f1=sweep.f1[:, ::10],
        confusion=matrix,
    )


def _notices(run: _Run, truth: Objects, scoring: ScoringConfig) -> Iterator[str]:
    if not len(truth):
        yield "no image of this split has a label: there is nothing to measure, and every metric stands at 0"
    crowds = np.unique(truth.image, return_counts=True)[1]
    if (crowds > scoring.max_det).any():
        yield (
            f"{(crowds > scoring.max_det).sum()} images have more than max_det={scoring.max_det} objects, "
            f"up to {crowds.max()}: those beyond cannot be found; max_det={crowds.max()} lets them count"
        )
    if run.bad:
        yield f"{len(run.bad)} pictures cannot be read any more and are in no score, for example {run.bad[0]}"
    if run.capped:
        yield f"{run.capped} weakest candidates were left out before NMS (30000 per image stay); a higher conf avoids it"
    if run.non_finite:
        yield f"{run.non_finite} predictions were not finite and were dropped: the weights or the precision are at fault"
