"""``val``: a checkpoint, a split, its scores, and a folder with what they rest on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from visiontrain.config.files import write_settings
from visiontrain.config.image_size import image_size
from visiontrain.config.schema import AS_TRAINED, ValConfig
from visiontrain.data.dataset import EvalSet
from visiontrain.data.description import Description, load_description
from visiontrain.data.index import Index, open_index
from visiontrain.data.kept import why_not_kept
from visiontrain.data.loader import evaluation_loader, fitting_workers, worker_count
from visiontrain.data.select import select
from visiontrain.data.shared import read_for_all
from visiontrain.distributed import Ranks, choose_device, joined
from visiontrain.errors import ConfigError, DataError
from visiontrain.evaluation.coco_json import ids_of, read_detections, write_detections
from visiontrain.evaluation.evaluator import evaluate, score_detections
from visiontrain.evaluation.pictures import labels_and_predictions
from visiontrain.evaluation.scores import Evaluation
from visiontrain.models.exported import device_for
from visiontrain.models.weights import licence_sentence, load_network
from visiontrain.record.events import EvaluationProgress, EvaluationStarted, Notice
from visiontrain.record.files import run_folder, write_json
from visiontrain.record.run import Recorder, Sink
from visiontrain.record.sinks.drawings import PicturesSink, PlotsSink
from visiontrain.record.sinks.notebook import console


def validate(config: ValConfig) -> Evaluation:
    """Score a checkpoint on a split and write args.yaml, scores.json, the curves and a few pictures.

    Raises:
        ConfigError: the device is not there, or the checkpoint says no data and none was given.
        DataError: the pictures or labels are wrong, or their classes are not those of the checkpoint.
        WeightsError: the checkpoint cannot be used.
        OutOfMemory: a single image does not fit.
    """
    with joined(config.timeout) as ranks:
        if config.predictions:
            return ranks.first(lambda: _score_file(config))
        return _validate(config, ranks.on(choose_device(device_for(config.model, config.device), ranks.place)))


def _validate(config: ValConfig, ranks: Ranks) -> Evaluation:
    """Rank 0 reads, writes and tells; the pictures are shared."""
    device = ranks.device
    model, trained = ranks.first(lambda: load_network(config.model))
    model = model.to(device, memory_format=torch.channels_last)
    model.use_nms(config.scoring.nms)
    model.require({name: value for name, value in config.values().items() if name in config.given})
    data = ranks.first(lambda: _data(config, trained))
    (index,) = read_for_all(ranks, lambda: [_read(config, data, trained, model.class_names)])
    imgsz = image_size(trained["imgsz"]) if config.imgsz == AS_TRAINED else config.imgsz
    folder = ranks.first(lambda: _folder(config, {"data": data, "imgsz": imgsz.written}))
    wanted = worker_count(config.workers, ranks.place.local_size)
    workers = fitting_workers(wanted, config.batch, imgsz, ranks.place.local_size)
    samples = EvalSet(index, imgsz, model.stride, model.input_size)
    loader = evaluation_loader(samples, config.batch, workers, device.type == "cuda", ranks.rank, ranks.size)
    with closing(loader), _recorder(config, folder, ranks.main) as record:
        _tell(record, index, (licence_sentence(model), model.about_nms))
        record(EvaluationStarted(len(index)))
        evaluation = evaluate(
            model,
            loader,
            device=device,
            scoring=config.scoring,
            class_names=model.class_names,
            index=index,
            on_progress=lambda images: record(EvaluationProgress(images)),
            on_shrink=lambda before, after, said: record(
                Notice(f"Out of memory ({said}): {after} images at a time instead of {before} from here on.", "warning")
            ),
            ranks=ranks,
        )
        if ranks.main:
            _keep(config, data, folder, index, evaluation, record)
    return replace(evaluation, folder=folder)


def _score_file(config: ValConfig) -> Evaluation:
    """Score the detections of a file."""
    description = load_description(config.data, config.download)
    index = _index(config, description, {})
    found = read_detections(Path(config.predictions), ids_of(description, index))
    folder = _folder(config, {})
    with _recorder(config, folder, main=True) as record:
        _tell(record, index, ())
        evaluation = score_detections(found, index, config.scoring)
        _keep(config, config.data, folder, index, evaluation, record)
    return replace(evaluation, folder=folder)


def _folder(config: ValConfig, found: dict[str, Any]) -> Path:
    folder = run_folder(config.project, config.name or "val", config.exist_ok)
    write_settings(folder / "args.yaml", {**config.leaves(), **found})
    return folder


def _recorder(config: ValConfig, folder: Path, main: bool) -> Recorder:
    drawings: list[Sink] = [PlotsSink(folder), PicturesSink(folder)] if config.plots else []
    return Recorder([console(), *drawings] if main else [])


def _tell(record: Recorder, index: Index, sentences: Sequence[str]) -> None:
    for text in (*filter(None, sentences), *index.told):
        record(Notice(text))
    for finding in index.findings[:SHOWN]:
        record(Notice(str(finding), "warning"))
    if len(index.findings) > SHOWN:
        record(Notice(f"{len(index.findings) - SHOWN} more findings in these labels", "warning"))
    if index.not_kept:
        record(Notice(why_not_kept(index.not_kept), "warning"))


def _keep(config: ValConfig, data: str, folder: Path, index: Index, evaluation: Evaluation, record: Recorder) -> None:
    """Curves, pictures, scores.json, and predictions.json where it is asked for."""
    record(evaluation.curves)
    if config.plots:
        for pictures in labels_and_predictions(index, evaluation.found, evaluation.worst):
            record(pictures)
    for notice in evaluation.notices:
        record(Notice(notice, "warning"))
    worst = [{"path": index.path(e.image), "missed": e.missed, "wrong": e.wrong} for e in evaluation.worst[:LISTED]]
    write_json(folder / "scores.json", {**evaluation.to_json(), "worst": worst})
    if config.save_json:
        ids = ids_of(load_description(data), index)
        write_detections(folder / "predictions.json", evaluation.found, ids, index)


LISTED = 100  # of the pictures with errors in scores.json
SHOWN = 10  # findings told on the console; scores depend on all


def _data(config: ValConfig, settings: dict[str, Any]) -> str:
    data = config.data or str(settings.get("data", ""))
    if not data:
        raise ConfigError(f"data is missing: {config.model} does not say what it was trained on; give data=my.yaml")
    return data


def _read(config: ValConfig, data: str, settings: dict[str, Any], known: Sequence[str]) -> Index:
    description = load_description(data, config.download)
    index = _index(config, description, settings)
    _check_names(description.file, index.names, known)
    return index


def _index(config: ValConfig, description: Description, settings: dict[str, Any]) -> Index:
    classes = config.classes or settings.get("classes", "")
    single = settings.get("single_cls", False) if config.single_cls is None else config.single_cls
    return select(open_index(description, config.split), description.root, classes=classes, single_cls=single)


def _check_names(file: Path, names: Sequence[str], known: Sequence[str]) -> None:
    """Equal names in equal order, for a class is scored by its number."""
    if tuple(names) == tuple(known):
        return
    if len(names) != len(known):
        raise DataError(
            f"{file}: has {len(names)} classes and the checkpoint {len(known)}; give the data it was trained on"
        )
    first = next(i for i, pair in enumerate(zip(names, known, strict=True)) if pair[0] != pair[1])
    raise DataError(
        f"{file}: class {first} is {names[first]!r} and the checkpoint's is {known[first]!r}; "
        "give a description with the classes in the checkpoint's order"
    )
