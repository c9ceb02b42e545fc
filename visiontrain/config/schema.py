"""The settings: default, help and range of each in one place. The command line, the help, YAML and the record follow."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from visiontrain.config.image_size import STRIDE, ImageSize
from visiontrain.config.pipeline import Pipeline
from visiontrain.config.sizes import EXPORTED
from visiontrain.config.values import Leaf, More, group, leaves_of, problem, read, setting, written
from visiontrain.errors import ConfigError
from visiontrain.place import devices_of

AUTO = -1  # what batch=auto is until the device is known
AS_TRAINED = ImageSize(0, 0)  # what imgsz is in val until the checkpoint is read


def _device_problem(value: str) -> str:
    words = devices_of(value.lower())
    if "mps" in [word.split(":")[0] for word in words]:
        return "visiontrain was never run on mps; use device=cpu"
    if len(words) == 1:
        return "" if re.fullmatch(r"auto|cpu|cuda|(cuda:)?\d+", words[0]) else "must be auto, cpu, cuda, cuda:N or N"
    numbers = [word.removeprefix("cuda:") for word in words]
    if set(words) == {"cpu"} or (all(number.isdecimal() for number in numbers) and len(set(numbers)) == len(numbers)):
        return ""
    return "as a list takes different CUDA devices, for example 0,1, or cpu,cpu"


def _one_device_problem(value: str) -> str:
    return "works on one device; choose one, for example device=0" if "," in value else _device_problem(value)


def _imgsz_problem(value: ImageSize) -> str:
    if min(value) < STRIDE:
        return f"must be at least {STRIDE}"
    wrong = [side for side in value if side % STRIDE]
    if not wrong:
        return ""
    lower = wrong[0] // STRIDE * STRIDE
    return (
        f"must be a multiple of {STRIDE}, the largest stride of the model; the nearest are {lower} and {lower + STRIDE}"
    )


def _weights_problem(value: str) -> str:
    """Words, or ``cat:2,dog:0.5``; whether there are such classes is known with the data."""
    if value in ("none", "images", "boxes"):
        return ""
    parts = [part.rpartition(":") for part in value.split(",")]
    if all(
        name.strip() and re.fullmatch(r"\s*\d*\.?\d+\s*", weight) and float(weight) > 0 for name, _, weight in parts
    ):
        return ""
    return "must be none, images, boxes, or classes with weights above 0 such as cat:2,dog:0.5"


def _save_period_problem(value: int) -> str:
    return "" if value >= 1 or value == -1 else "must be at least 1, or -1 to keep last.pt and best.pt alone"


def _formats_problem(value: str) -> str:
    wrong = [word for word in value.split(",") if value and word.strip() not in EXPORTED]
    return f"has no format {wrong[0].strip()!r}; there are {', '.join(EXPORTED)}" if wrong else ""


def _name_problem(value: str) -> str:
    return "names a folder inside project: leave out / and \\" if re.search(r"[/\\]|^\.\.?$", value) else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Checked:
    """Checks its own settings, whoever builds it, and reports all that is wrong at once."""

    def __post_init__(self) -> None:
        found = []
        for leaf in leaves_of(type(self)).values():
            if not leaf.path and (wrong := problem(leaf, getattr(self, leaf.name))):
                found.append(f"{leaf.name}={getattr(self, leaf.name)}: {wrong} ({leaf.help})")
        if found:
            raise ConfigError("\n".join(found))

    def leaves(self) -> dict[str, Any]:
        """The settings flat by the names the user knows, as plain values: for args.yaml, run.json and the checkpoint."""
        return {name: written(value) for name, value in self.values().items()}

    def values(self) -> dict[str, Any]:
        """The same as they are."""
        holders = {
            leaf.name: getattr(self, leaf.path) if leaf.path else self for leaf in leaves_of(type(self)).values()
        }
        return {name: getattr(holder, name) for name, holder in holders.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimConfig(_Checked):
    """How weights move."""

    optimizer: str = setting(
        "auto", "auto chooses by the number of planned updates and says what", choices=("auto", "SGD", "AdamW")
    )
    lr0: float = setting(0.01, "learning rate after warm-up; with optimizer=auto it is chosen unless given", above=0)
    lrf: float = setting(0.01, "last learning rate as a fraction of lr0", low=0, high=1)
    momentum: float = setting(0.937, "SGD momentum, beta1 of AdamW", low=0, below=1)
    weight_decay: float = setting(5e-4, "decay of weights at nbs images per update; norms and biases have none", low=0)
    warmup_epochs: float = setting(3.0, "epochs over which windows and learning rate grow", low=0, high=1000)
    warmup_momentum: float = setting(0.8, "momentum at the start of warm-up", low=0, below=1)
    warmup_bias_lr: float = setting(0.1, "learning rate of biases at the start of warm-up", low=0)
    cos_lr: bool = setting(False, "learning rate falls as a cosine, not a line")
    lr_scale: str = setting(
        "none",
        "lr0 grows with E/64 (linear) or its root (sqrt), E the images of an update; none: nbs holds E at the recipe's 64",
        choices=("none", "linear", "sqrt"),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class LossConfig(_Checked):
    """Gains of the parts of the loss."""

    box: float = setting(7.5, "gain of the box loss (CIoU)", low=0)
    cls: float = setting(0.5, "gain of the class loss", low=0)
    dfl: float = setting(
        1.5, "gain of the distribution focal loss; of the distance loss where there are no bins (yolo26)", low=0
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class AugmentConfig(_Checked):
    """How a training picture is varied."""

    hsv_h: float = setting(0.015, "largest change of hue, fraction of the circle", low=0, high=1)
    hsv_s: float = setting(0.7, "largest change of saturation, fraction", low=0, high=1)
    hsv_v: float = setting(0.4, "largest change of brightness, fraction", low=0, high=1)
    degrees: float = setting(0.0, "largest rotation, degrees either way", low=0, high=180)
    translate: float = setting(0.1, "largest shift, fraction of the picture", low=0, high=1)
    scale: float = setting(0.5, "largest change of size: a factor from 1 - scale to 1 + scale", low=0, below=1)
    shear: float = setting(0.0, "largest shear, degrees either way", low=0, below=90)
    perspective: float = setting(0.0, "largest perspective, per pixel", low=0, high=0.001)
    flipud: float = setting(0.0, "probability of a flip upside down", low=0, high=1)
    fliplr: float = setting(0.5, "probability of a flip left to right", low=0, high=1)
    mosaic: float = setting(1.0, "probability of a mosaic of four pictures", low=0, high=1)
    mixup: float = setting(0.0, "probability of blending with another sample", low=0, high=1)
    close_mosaic: int = setting(10, "last epochs without mosaic", low=0)
    partners: str = setting(
        "near",
        "the other pictures of a mosaic: near, of those dealt a little earlier, which are in memory still; any, of all",
        choices=("near", "any"),
    )
    augment_device: str = setting(
        "cpu",
        "who paints the samples: cpu, the loader processes; gpu, the device that trains, which must be a GPU",
        choices=("cpu", "gpu"),
    )
    albumentations: Pipeline = setting(
        Pipeline(),
        "a .yaml file of albumentations transforms, in Python a Compose; default: blur, median blur, grey and CLAHE of 1 % "
        "of the pictures each; or none",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingConfig(_Checked):
    """Which pictures and boxes are trained on, how often, and at which size."""

    fraction: float = setting(
        1.0,
        "share of the training pictures that is used: the same ones in every run, of each class alike",
        above=0,
        high=1,
    )
    classes: str = setting(
        "",
        "classes to learn, by number or name, for example 0,2 or cat,dog; boxes of others are left out, their pictures stay",
        listed=True,
    )
    single_cls: bool = setting(False, "all boxes are of one class")
    balance: str = setting(
        "none",
        "draw pictures with rare classes more often, by the share of images that have a class or of boxes that are of it",
        choices=("none", "images", "boxes"),
    )
    balance_threshold: float | None = setting(
        None, "classes with a smaller share are rare; auto: the mean share", above=0, high=1, words={"auto": None}
    )
    class_weights: str = setting(
        "none",
        "what boxes weigh in the loss: images or boxes: 1 / sqrt of the class's share of them; or cat:2,dog:0.5",
        check=_weights_problem,
        listed=True,
    )

    rect: bool = setting(
        False,
        "windows of pictures of like shape, and no larger than these need; shuffled anew in every epoch, mosaics included",
    )
    multi_scale: float = setting(
        0.0,
        "size of each window: imgsz times a factor from 1 - multi_scale to 1 + multi_scale, in strides; true: 0.5",
        low=0,
        below=1,
        words={"true": 0.5, "yes": 0.5, "on": 0.5, "false": 0.0, "no": 0.0, "off": 0.0},
    )

    def __post_init__(self) -> None:
        _Checked.__post_init__(self)
        if self.balance == "none" and self.balance_threshold is not None:
            raise ConfigError(f"balance_threshold={self.balance_threshold:g}: changes nothing with balance=none")
        for name in ("balance", "class_weights"):
            if self.single_cls and getattr(self, name) != "none":
                raise ConfigError(f"{name}={getattr(self, name)}: with single_cls=true no class is rarer than another")


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputConfig(_Checked):
    """What a run leaves behind, and where."""

    project: str = setting("runs/train", "folder of the runs")
    name: str = setting("", "folder of this run inside project; empty: run, run2, ...", check=_name_problem)
    exist_ok: bool = setting(False, "write into a folder that exists; else the name gets a number")
    plots: bool = setting(True, "draw batches, curves and the confusion matrix")
    save_period: int = setting(
        -1, "keep a checkpoint every so many epochs; -1: last and best alone", check=_save_period_problem
    )
    save_minutes: float = setting(15.0, "write last.pt at least this often, minutes", above=0)
    save_updates: int = setting(
        0, "write last.pt at least every so many updates; 0: by epochs and minutes alone", low=0
    )


def _average_problem(value: int) -> str:
    return "must be 0, or at least 2: one checkpoint has no average" if value == 1 else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgingConfig(_Checked):
    """When a run is validated, and what of it becomes best.pt."""

    val_period: int = setting(1, "validate after every so many epochs; the last is always validated", low=1)
    val_updates: int = setting(0, "validate inside epochs too, every so many updates; 0: no", low=0)
    val_minutes: float = setting(0.0, "likewise by the clock, minutes since the last validation; 0: no", low=0)
    fitness: str = setting(
        "ap", "what best.pt has most of, and patience waits for", choices=("ap", "ap50", "ap75", "precision", "recall")
    )
    best_after: int = setting(
        0, "so many epochs at the start are not waited for by patience, and best.pt is chosen anew after them", low=0
    )
    average_best: int = setting(
        0,
        "at the end average the weights of so many best epochs, and make that best.pt if it scores higher; 0: no",
        low=0,
        check=_average_problem,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoringConfig(_Checked):
    """How detections are selected and counted in validation."""

    iou: float = setting(0.7, "overlap above which the weaker of two boxes of a class is dropped", low=0, high=1)
    max_det: int = setting(300, "detections kept per image; the headline AP counts COCO's 100 of them", low=1)
    conf: float = setting(0.001, "detections below this score are dropped", low=0, below=1)
    nms: bool | None = setting(
        None,
        "drop overlapping boxes; auto: unless the model has a head that needs none (yolo26), whose other head true takes",
        words={"auto": None},
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig(_Checked):
    """Settings of one training run. ``given`` are the names that the user gave: no setting, and no part of equality."""

    model: str = setting("yolov8n", "a family and size, trained from scratch, or a checkpoint to start from")
    data: str = setting("", "dataset description: a path, or a name in datasets/ (shapes needs no download)")
    download: bool = setting(
        False, "fetch data that are not there from where their description says, into the user's cache"
    )
    epochs: int = setting(
        100, "passes over the training images; with resume also another total, or +20 on top of it", low=1, more=True
    )
    batch: int = setting(
        16,
        "images per micro-batch, what one forward pass sees; auto: the largest divisor of nbs that fits on CUDA, 16 on the CPU",
        low=1,
        words={"auto": AUTO},
    )
    nbs: int = setting(64, "nominal batch size: images that one update should see", low=1)
    last_window: str = setting(
        "use", "the short window at the end of an epoch: train on it or leave it out", choices=("use", "drop")
    )
    norm: str = setting(
        "auto",
        "normalisation; auto: as the weights were trained, BatchNorm from scratch; sync: BatchNorm over all ranks; "
        "frozen keeps a checkpoint's statistics",
        choices=("auto", "batch", "sync", "group", "frozen"),
    )
    freeze: str = setting(
        "",
        "what does not learn: a number of layers from the first, layer numbers such as 0,1,2, backbone, or names such as model.22.cv3",
        listed=True,
    )
    reduce: str = setting(
        "auto",
        "how ranks sum gradients: at the end of a window, or while its last backward pass runs (ddp); auto: ddp where a window is one micro-batch",
        choices=("auto", "window", "ddp"),
    )
    checkpoint_blocks: bool = setting(
        False, "keep fewer activations and compute them again in the backward pass: less memory, more time"
    )
    imgsz: ImageSize = setting(
        ImageSize(640, 640),
        "side of the square training picture, pixels; two numbers are height,width",
        low=STRIDE,
        check=_imgsz_problem,
    )
    device: str = setting(
        "auto",
        "auto, cpu, cuda, cuda:N or N; several, as 0,1 or cpu,cpu, are a rank each",
        check=_device_problem,
        listed=True,
    )
    workers: int = setting(
        -1, "loader processes of each rank; auto: its share of the cores, at most 8; 0: none", low=0, words={"auto": -1}
    )
    cache: str = setting(
        "",
        "keep training pictures decoded, at training size: ram, for this run; disk, in the user's cache for later ones too",
        choices=("", "ram", "disk"),
        words={"true": "ram", "yes": "ram", "on": "ram", "false": "", "no": "", "off": "", "none": ""},
    )
    timeout: float = setting(600.0, "seconds that a rank waits for the others before it gives the run up", above=0)
    max_restarts: int = setting(
        0, "with several devices: how often all ranks start again, from the last checkpoint, after one was lost", low=0
    )
    seed: int = setting(0, "seed of weights, order and augmentation", low=0, high=2**32 - 1)
    deterministic: bool | None = setting(
        None, "bit-equal runs; auto: on the CPU; on CUDA it costs speed", words={"auto": None}
    )
    amp: bool = setting(True, "mixed precision on CUDA; the CPU trains in float32")
    resume: str = setting(
        "",
        "true: go on with the newest run in project; or the path of a last.pt",
        words={"true": "true", "yes": "true", "on": "true", "1": "true", "false": "", "no": "", "off": "", "0": ""},
    )
    patience: int = setting(100, "epochs since the best one until training stops; 0: never", low=0)
    val: bool = setting(True, "validate while training; the last epoch is always validated")
    optim: OptimConfig = group(OptimConfig, "Optimizer")
    loss: LossConfig = group(LossConfig, "Loss")
    augment: AugmentConfig = group(AugmentConfig, "Augmentation")
    sampling: SamplingConfig = group(SamplingConfig, "Sampling")
    output: OutputConfig = group(OutputConfig, "Output")
    scoring: ScoringConfig = group(ScoringConfig, "Validation")
    judging: JudgingConfig = group(JudgingConfig, "Best")
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def __post_init__(self) -> None:
        _Checked.__post_init__(self)
        judging = self.judging
        asked = {name: getattr(judging, name) for name in leaves_of(JudgingConfig)}
        idle = {} if self.val else {n: v for n, v in asked.items() if v != leaves_of(JudgingConfig)[n].default}
        found = [f"{n}={v}: val=false validates the last epoch alone; leave out one of them" for n, v in idle.items()]
        if isinstance(self.epochs, More) and not self.resume:
            found.append(
                f"epochs={self.epochs}: adds epochs to a run that is there; give it too, resume=RUN/weights/last.pt, or "
                f"write epochs={int(self.epochs)}"
            )
        if not self.resume and judging.best_after >= self.epochs:
            found.append(
                f"best_after={judging.best_after}: must be below epochs={self.epochs}, or nothing would be best"
            )
        if found:
            raise ConfigError("\n".join(found))


def _total_problem(value: int) -> str:
    return "is a total here, without a plus" if isinstance(value, More) else ""


def _like(owner: type, name: str, **changes: Any) -> Any:
    """The same setting as in another class, so that it is described once; ``changes`` say what differs."""
    leaf = leaves_of(owner)[name]
    return setting(changes.pop("default", leaf.default), **{**leaf.meta, **changes})


@dataclass(frozen=True, kw_only=True, slots=True)
class ValConfig(_Checked):
    """Settings of one validation."""

    model: str = setting("", "the checkpoint to validate, for example runs/train/run/weights/best.pt")
    data: str = _like(TrainConfig, "data", help="dataset description; empty: the one stored in the checkpoint")
    download: bool = _like(TrainConfig, "download")
    split: str = setting("val", "which pictures", choices=("train", "val", "test"))
    predictions: str = setting("", "a COCO result JSON to score, in place of what a model finds")
    batch: int = _like(TrainConfig, "batch", words={}, help="images per forward pass")
    imgsz: ImageSize = setting(
        AS_TRAINED,
        "long side of a picture, pixels, or the height,width it must fit into; 0: as trained",
        words={"0": AS_TRAINED},
        check=_imgsz_problem,
    )
    device: str = _like(TrainConfig, "device", help="auto, cpu, cuda, cuda:N or N", check=_one_device_problem)
    workers: int = _like(TrainConfig, "workers")
    timeout: float = _like(TrainConfig, "timeout")
    classes: str = _like(
        SamplingConfig, "classes", help="classes to score, by number or name, or all of them; empty: as trained"
    )
    single_cls: bool | None = _like(
        SamplingConfig,
        "single_cls",
        default=None,
        help="all boxes are of one class; auto: as trained",
        words={"auto": None},
    )
    scoring: ScoringConfig = group(ScoringConfig, "Scoring")
    project: str = _like(OutputConfig, "project", default="runs/val", help="folder of the validations")
    name: str = _like(OutputConfig, "name", help="folder of this one inside project; empty: val, val2, ...")
    exist_ok: bool = _like(OutputConfig, "exist_ok")
    plots: bool = _like(
        OutputConfig, "plots", help="draw curves, the confusion matrix, the first pictures and the worst"
    )
    save_json: bool = setting(False, "write what is found as COCO result JSON, predictions.json")
    format: str = setting("text", "json: end with one line of JSON for scripts", choices=("text", "json"))
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanConfig(_Checked):
    """Settings of a plan: those of training that the window arithmetic depends on."""

    data: str = _like(TrainConfig, "data", help="dataset description whose training images are counted")
    images: int = setting(0, "training images, where data is not given or not here; 0: count data", low=0)
    fraction: float = _like(SamplingConfig, "fraction")
    model: str = _like(TrainConfig, "model", help="a family and size, or a checkpoint; gradients are as large as it is")
    epochs: int = _like(TrainConfig, "epochs", help="passes over the training images", check=_total_problem)
    batch: int = _like(TrainConfig, "batch", words={}, help="images per micro-batch, over all ranks")
    nbs: int = _like(TrainConfig, "nbs")
    ranks: int = setting(1, "data-parallel processes to plan for", low=1)
    last_window: str = _like(TrainConfig, "last_window")
    norm: str = _like(TrainConfig, "norm")
    reduce: str = _like(TrainConfig, "reduce")
    weight_decay: float = _like(OptimConfig, "weight_decay")
    warmup_epochs: float = _like(OptimConfig, "warmup_epochs")
    format: str = _like(ValConfig, "format")
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckConfig(_Checked):
    """Settings of a check: those of training that its data and its windows depend on."""

    data: str = _like(TrainConfig, "data")
    download: bool = _like(TrainConfig, "download")
    preflight: bool = setting(True, "try some windows of the training; false: look at the data alone")
    export: str = setting(
        "", "formats to try an export of the model to, for example onnx,openvino", check=_formats_problem, listed=True
    )
    model: str = _like(TrainConfig, "model")
    epochs: int = _like(TrainConfig, "epochs", help="passes over the training images", check=_total_problem)
    batch: int = _like(TrainConfig, "batch")
    nbs: int = _like(TrainConfig, "nbs")
    last_window: str = _like(TrainConfig, "last_window")
    norm: str = _like(TrainConfig, "norm")
    reduce: str = _like(TrainConfig, "reduce")
    checkpoint_blocks: bool = _like(TrainConfig, "checkpoint_blocks")
    imgsz: ImageSize = _like(TrainConfig, "imgsz")
    device: str = _like(TrainConfig, "device", help="auto, cpu, cuda, cuda:N or N", check=_one_device_problem)
    workers: int = _like(TrainConfig, "workers")
    timeout: float = _like(TrainConfig, "timeout")
    seed: int = _like(TrainConfig, "seed")
    deterministic: bool | None = _like(TrainConfig, "deterministic")
    amp: bool = _like(TrainConfig, "amp")
    val: bool = _like(TrainConfig, "val")
    format: str = _like(ValConfig, "format")
    optim: OptimConfig = group(OptimConfig, "Optimizer")
    loss: LossConfig = group(LossConfig, "Loss")
    augment: AugmentConfig = group(AugmentConfig, "Augmentation")
    sampling: SamplingConfig = group(SamplingConfig, "Sampling")
    scoring: ScoringConfig = group(ScoringConfig, "Validation")
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)


def _out_problem(value: str) -> str:
    return "" if value == "" or value.lower().endswith(".png") else "must end in .png, for example out=curves.png"


@dataclass(frozen=True, kw_only=True, slots=True)
class CompareConfig(_Checked):
    """Settings of a comparison of two runs; on the command line the two folders stand without their names."""

    a: str = setting("", "folder of the first run, for example runs/train/run")
    b: str = setting("", "folder of the second run")
    out: str = setting("", "draw the curves of both over images seen into this new PNG file", check=_out_problem)
    format: str = _like(ValConfig, "format")
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvertConfig(_Checked):
    """Settings of a conversion: of a data set into another label format, or of a checkpoint into one of ours."""

    weights: str = setting("", "a checkpoint to write as one of ours: Ultralytics' .pt, or ours as .pt or .safetensors")
    data: str = _like(TrainConfig, "data")
    format: str = setting("yolo", "labels of the new data set", choices=("yolo", "coco", "voc"))
    out: str = setting("", "folder of the new data set, or file of the new checkpoint; it must not be there yet")
    pictures: str = setting(
        "link", "link: symbolic links to the pictures; copy: a folder that can be moved away", choices=("link", "copy")
    )
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportConfig(_Checked):
    """Settings of an export."""

    model: str = setting("", "the checkpoint to export, for example runs/train/run/weights/best.pt")
    format: str = setting("onnx", "what to write", choices=tuple(EXPORTED))
    out: str = setting("", "the new file, or OpenVINO's folder; empty: beside the checkpoint, under its name")
    exist_ok: bool = setting(False, "replace a file that is there; else that is an error")
    imgsz: ImageSize = _like(
        ValConfig,
        "imgsz",
        help="size that val and predict take by default, or with dynamic=false the only one; 0: as trained",
    )
    dynamic: bool = setting(True, "takes any size and number of pictures; false: imgsz and batch alone")
    batch: int = setting(1, "with dynamic=false, pictures that the file takes at once", low=1)
    nms: bool = setting(False, "put NMS into the file: it gives detections (yolo26 does without it)")
    conf: float = _like(
        ScoringConfig, "conf", default=0.25, help="with nms=true, detections below this score are dropped"
    )
    iou: float = _like(
        ScoringConfig, "iou", help="with nms=true, overlap above which the weaker box of a class is dropped"
    )
    max_det: int = _like(ScoringConfig, "max_det", help="detections of a picture, where the file gives detections")
    pictures: int = setting(8, "pictures on which the file is compared with the checkpoint", low=1)
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def __post_init__(self) -> None:
        _Checked.__post_init__(self)
        changed = [n for n in ("conf", "iou", "batch") if getattr(self, n) != leaves_of(type(self))[n].default]
        wrong = [f"{n}={getattr(self, n)}: changes nothing without nms=true" for n in changed if n != "batch"]
        wrong = [] if self.nms else wrong
        if self.dynamic and "batch" in changed:
            wrong.append(
                f"batch={self.batch}: the file takes any number of pictures; leave it out, or give dynamic=false"
            )
        if self.format == "torchscript" and not self.dynamic:
            wrong.append("dynamic=false: TorchScript takes any size and number of pictures; leave it out")
        if self.format == "torchscript" and self.nms:
            wrong.append("nms=true: plain TorchScript has no NMS; leave it out, or use format=onnx")
        ending = EXPORTED[self.format]
        if self.out and not self.out.endswith(ending):
            wrong.append(f"out={self.out}: must end in {ending} for format={self.format}")
        if wrong:
            raise ConfigError("\n".join(wrong))


@dataclass(frozen=True, kw_only=True, slots=True)
class SavingConfig(_Checked):
    """What a prediction leaves behind, and where."""

    save: bool = setting(True, "write the pictures and videos with their boxes; in Python only where it is given")
    save_txt: bool = setting(False, "write a .txt for each picture: class, then centre, width and height in 0..1")
    save_conf: bool = setting(False, "add the confidence to each row of these")
    save_crop: bool = setting(False, "write what is in each box as a picture of its own, a folder for each class")
    save_json: bool = setting(False, "write predictions.json, with the boxes of all pictures")
    line_width: int | None = setting(
        None, "width of the drawn lines, pixels; auto: by the picture's size", low=1, words={"auto": None}
    )
    show_labels: bool = setting(True, "write the class beside each drawn box")
    show_conf: bool = setting(True, "write the confidence beside it")
    project: str = _like(OutputConfig, "project", default="runs/predict", help="folder of the predictions")
    name: str = _like(OutputConfig, "name", help="folder of this one inside project; empty: predict, predict2, ...")
    exist_ok: bool = _like(OutputConfig, "exist_ok")

    @property
    def writes(self) -> bool:
        """Whether there is anything to write."""
        return self.save or self.save_txt or self.save_crop or self.save_json

    def idle(self) -> dict[str, str]:
        """Settings that change nothing beside the others, each with what they need."""
        lacking = {} if self.save else dict.fromkeys(("line_width", "show_labels", "show_conf"), "save=true")
        lacking |= {} if self.save_txt else {"save_conf": "save_txt=true"}
        return lacking | ({} if self.writes else dict.fromkeys(("project", "name", "exist_ok"), "save=true"))


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictConfig(_Checked):
    """Settings of one prediction."""

    model: str = setting("", "the checkpoint to detect with, for example runs/train/run/weights/best.pt")
    source: str = setting(
        "",
        "a picture, a video, a folder, a pattern such as 'pics/*.jpg', a .txt of paths, an address, or the number of a camera",
    )
    conf: float = _like(ScoringConfig, "conf", default=0.25)
    iou: float = _like(ScoringConfig, "iou")
    max_det: int = _like(ScoringConfig, "max_det", help="detections kept per picture, the surest")
    nms: bool | None = _like(ScoringConfig, "nms")
    agnostic: bool = setting(False, "of two boxes that overlap, drop the weaker even if it is of another class")
    classes: str = _like(
        SamplingConfig, "classes", help="find these alone, by number or name, for example 0,2 or cat,dog; empty: all"
    )
    imgsz: ImageSize = _like(ValConfig, "imgsz")
    batch: int = _like(TrainConfig, "batch", default=1, words={}, help="pictures per forward pass, at the most")
    device: str = _like(ValConfig, "device")
    half: bool = setting(False, "compute in float16; CUDA only")
    augment: bool = setting(False, "look at each picture in three sizes, one of them mirrored, and merge what is found")
    tile: int = setting(
        0, "side in pixels of overlapping tiles that are looked at beside the whole picture; 0: none", low=0
    )
    tile_overlap: float = setting(0.2, "share of a tile that its neighbour has too, at least", low=0, high=0.9)
    vid_stride: int = setting(1, "look at every so many frames of a video", low=1)
    format: str = setting("text", "json: a line of JSON for each picture, for scripts", choices=("text", "json"))
    saving: SavingConfig = group(SavingConfig, "Saving")
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def __post_init__(self) -> None:
        _Checked.__post_init__(self)
        lacking = self.saving.idle() | ({} if self.tile else {"tile_overlap": "a tile, for example tile=640"})
        values, leaves = self.values(), leaves_of(type(self))
        idle = [name for name in lacking if values[name] != leaves[name].default]
        if idle:
            raise ConfigError("\n".join(f"{name} changes nothing without {lacking[name]}" for name in idle))


Settings = TypeVar(
    "Settings",
    TrainConfig,
    ValConfig,
    PlanConfig,
    CheckConfig,
    CompareConfig,
    ConvertConfig,
    ExportConfig,
    PredictConfig,
)

# Names that people bring along. Where this version cannot do the thing, it says so; it never takes a word without effect.
NOT_YET = {
    "cutmix": "mosaic and mixup are there",
    "copy_paste": "mosaic and mixup are there",
    "compile": "models run uncompiled",
    "dropout": "the models have none",
    "int8": "files compute in float32",
    "label_smoothing": "the assigned scores are the targets",
    "save": "last.pt and best.pt are always written",
}
INSTEAD = {
    "accumulate": "it follows from nbs and batch: round(nbs / batch) micro-batches, at least 1; set nbs",
    "pretrained": "give the checkpoint as model=path/best.pt; a name such as model=yolov8n starts from scratch",
    "weights": "give the checkpoint as model=path/best.pt",
    "batch_size": "write batch=8",
    "batch-size": "write batch=8",
    "img": "write imgsz=640",
    "imgs": "write imgsz=640",
    "img_size": "write imgsz=640",
    "img-size": "write imgsz=640",
    "lr": "write lr0=0.01",
    "learning_rate": "write lr0=0.01",
    "agnostic_nms": "write agnostic=true",
    "augmentations": "write albumentations=mine.yaml, or give a Compose in Python",
    "cls_pw": "write class_weights=boxes",
    "gpu": "write device=0",
    "gpus": "write device=0",
    "hyp": "write cfg=file.yaml",
    "hsv": "write hsv_h=0.015 hsv_s=0.7 hsv_v=0.4",
    "opset": "ONNX files have opset 18; leave it out",
    "simplify": "ONNX files are simplified as they are written; leave it out",
    "verb": "the verb comes first: visiontrain train data=coco128.yaml",
    "mode": "the verb comes first: visiontrain train data=coco128.yaml",
    "task": "the task is detection; leave it out",
    "verbose": "leave it out; without a terminal the output is plain",
}


def unknown(settings: type, name: str) -> str:
    """The sentence for a name that the class has no setting for."""
    if name in INSTEAD:
        return f"{name} is no setting here: {INSTEAD[name]}"
    if name in NOT_YET:
        return f"{name}: this version cannot do that ({NOT_YET[name]}); leave it out"
    owners = [c for c in Settings.__constraints__ if name in leaves_of(c)]
    if owners:
        verb = settings.__name__.removesuffix("Config").lower()
        return f"{name} changes nothing in {verb} (it is a setting of {owners[0].__name__.removesuffix('Config').lower()}); leave it out"
    near = difflib.get_close_matches(name.lower(), leaves_of(settings), n=1)
    return f"no setting {name!r}" + (f"; did you mean {near[0]}?" if near else "; see visiontrain help")


def check(settings: type, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Read values into those of the class's settings.

    Returns:
        the values that are right, and for each name that is wrong the sentence about it.
    """
    good: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    leaves = leaves_of(settings)
    for name, value in values.items():
        if name not in leaves:
            wrong[name] = unknown(settings, name)
            continue
        try:
            read_value = read(leaves[name], value)
        except ConfigError as error:
            wrong[name] = str(error)
            continue
        except ValueError as error:
            wrong[name] = f"takes {error} ({leaves[name].help})"
            continue
        if sentence := problem(leaves[name], read_value):
            wrong[name] = f"{sentence} ({leaves[name].help})"
        else:
            good[name] = read_value
    return good, wrong


def build(settings: type[Settings], values: Mapping[str, Any], given: frozenset[str] | None = None) -> Settings:
    """Build a settings object from flat values; the inverse of ``leaves``.

    Args:
        settings: the class of a verb.
        values: by the names the user knows; names left out get their default.
        given: the names that the user gave; None: all of ``values``.

    Raises:
        ConfigError: names all that is unknown, of the wrong kind or out of range.
    """
    good, wrong = check(settings, values)
    if wrong:
        raise ConfigError("\n".join(f"{name}={values[name]}: {sentence}" for name, sentence in wrong.items()))
    return assemble(settings, good, frozenset(values) if given is None else given)


def assemble(settings: type[Settings], good: Mapping[str, Any], given: frozenset[str]) -> Settings:
    """Put checked values into the object and its groups."""
    by_group: dict[str, dict[str, Any]] = {}
    leaves: Mapping[str, Leaf] = leaves_of(settings)
    for name, value in good.items():
        by_group.setdefault(leaves[name].path, {})[name] = value
    groups = {
        f.name: f.metadata["group"](**by_group.get(f.name, {}))
        for f in dataclasses.fields(settings)
        if "group" in f.metadata
    }
    return settings(**by_group.get("", {}), **groups, given=given)
