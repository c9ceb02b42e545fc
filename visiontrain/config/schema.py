"""The settings: default, help and range of each in one place. The command line, the help, YAML and the record follow."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from visiontrain.config.groups import (
    AugmentConfig,
    Checked,
    JudgingConfig,
    LossConfig,
    OptimConfig,
    OutputConfig,
    SamplingConfig,
    SavingConfig,
    ScoringConfig,
)
from visiontrain.config.image_size import STRIDE, ImageSize
from visiontrain.config.sizes import EXPORTED
from visiontrain.config.values import Folders, More, group, leaves_of, like, setting
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


def _sha256_problem(value: str) -> str:
    return "" if re.fullmatch(r"([0-9a-f]{64})?", value) else "has 64 digits, 0 to 9 and a to f"


def _formats_problem(value: str) -> str:
    wrong = [word for word in value.split(",") if value and word.strip() not in EXPORTED]
    return f"has no format {wrong[0].strip()!r}; there are {', '.join(EXPORTED)}" if wrong else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig(Checked):
    """Settings of one training run. ``given`` are the names that the user gave: no setting, and no part of equality."""

    model: str = setting("yolov8n", "a family and size, trained from scratch, or a checkpoint to start from")
    backbone_weights: str = setting(
        "none",
        "imagenet: the backbone of a resnet or convnext begins with torchvision's weights, fetched into the user's cache",
        choices=("none", "imagenet"),
    )
    data: str = setting("", "dataset description: a path, or a name in datasets/ (shapes needs no download)")
    download: bool = setting(
        False, "fetch data and published weights that are not there, into the user's cache; where from is said"
    )
    sha256: str = setting(
        "", "confirms once what published weights must be, where their sum was never verified", check=_sha256_problem
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
    auxiliary: bool = setting(
        False,
        "train with the auxiliary head too, which the family must have (yolov9); each window then runs twice, to be exact",
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
        Checked.__post_init__(self)
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


@dataclass(frozen=True, kw_only=True, slots=True)
class ValConfig(Checked):
    """Settings of one validation."""

    model: str = setting("", "the checkpoint to validate, for example runs/train/run/weights/best.pt")
    data: str = like(TrainConfig, "data", help="dataset description; empty: the one stored in the checkpoint")
    download: bool = like(TrainConfig, "download")
    sha256: str = like(TrainConfig, "sha256")
    split: str = setting("val", "which pictures", choices=("train", "val", "test"))
    predictions: str = setting("", "a COCO result JSON to score, in place of what a model finds")
    batch: int = like(TrainConfig, "batch", words={}, help="images per forward pass")
    imgsz: ImageSize = setting(
        AS_TRAINED,
        "long side of a picture, pixels, or the height,width it must fit into; 0: as trained",
        words={"0": AS_TRAINED},
        check=_imgsz_problem,
    )
    device: str = like(TrainConfig, "device", help="auto, cpu, cuda, cuda:N or N", check=_one_device_problem)
    workers: int = like(TrainConfig, "workers")
    timeout: float = like(TrainConfig, "timeout")
    classes: str = like(
        SamplingConfig, "classes", help="classes to score, by number or name, or all of them; empty: as trained"
    )
    single_cls: bool | None = like(
        SamplingConfig,
        "single_cls",
        default=None,
        help="all boxes are of one class; auto: as trained",
        words={"auto": None},
    )
    scoring: ScoringConfig = group(ScoringConfig, "Scoring")
    project: str = like(OutputConfig, "project", default="runs/val", help="folder of the validations")
    name: str = like(OutputConfig, "name", help="folder of this one inside project; empty: val, val2, ...")
    exist_ok: bool = like(OutputConfig, "exist_ok")
    plots: bool = like(
        OutputConfig, "plots", help="draw curves, the confusion matrix, the first pictures and the worst"
    )
    save_json: bool = setting(False, "write what is found as COCO result JSON, predictions.json")
    format: str = setting("text", "json: end with one line of JSON for scripts", choices=("text", "json"))
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanConfig(Checked):
    """Settings of a plan: those of training that the window arithmetic depends on."""

    data: str = like(TrainConfig, "data", help="dataset description whose training images are counted")
    images: int = setting(0, "training images, where data is not given or not here; 0: count data", low=0)
    fraction: float = like(SamplingConfig, "fraction")
    model: str = like(TrainConfig, "model", help="a family and size, or a checkpoint; gradients are as large as it is")
    epochs: int = like(TrainConfig, "epochs", help="passes over the training images", check=_total_problem)
    batch: int = like(TrainConfig, "batch", words={}, help="images per micro-batch, over all ranks")
    nbs: int = like(TrainConfig, "nbs")
    ranks: int = setting(1, "data-parallel processes to plan for", low=1)
    last_window: str = like(TrainConfig, "last_window")
    norm: str = like(TrainConfig, "norm")
    auxiliary: bool = like(TrainConfig, "auxiliary")
    reduce: str = like(TrainConfig, "reduce")
    weight_decay: float = like(OptimConfig, "weight_decay")
    warmup_epochs: float = like(OptimConfig, "warmup_epochs")
    format: str = like(ValConfig, "format")
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckConfig(Checked):
    """Settings of a check: those of training that its data and its windows depend on."""

    data: str = like(TrainConfig, "data")
    download: bool = like(TrainConfig, "download")
    sha256: str = like(TrainConfig, "sha256")
    preflight: bool = setting(True, "try some windows of the training; false: look at the data alone")
    export: str = setting(
        "", "formats to try an export of the model to, for example onnx,openvino", check=_formats_problem, listed=True
    )
    model: str = like(TrainConfig, "model")
    epochs: int = like(TrainConfig, "epochs", help="passes over the training images", check=_total_problem)
    batch: int = like(TrainConfig, "batch")
    nbs: int = like(TrainConfig, "nbs")
    last_window: str = like(TrainConfig, "last_window")
    norm: str = like(TrainConfig, "norm")
    auxiliary: bool = like(TrainConfig, "auxiliary")
    reduce: str = like(TrainConfig, "reduce")
    checkpoint_blocks: bool = like(TrainConfig, "checkpoint_blocks")
    imgsz: ImageSize = like(TrainConfig, "imgsz")
    device: str = like(TrainConfig, "device", help="auto, cpu, cuda, cuda:N or N", check=_one_device_problem)
    workers: int = like(TrainConfig, "workers")
    timeout: float = like(TrainConfig, "timeout")
    seed: int = like(TrainConfig, "seed")
    deterministic: bool | None = like(TrainConfig, "deterministic")
    amp: bool = like(TrainConfig, "amp")
    val: bool = like(TrainConfig, "val")
    format: str = like(ValConfig, "format")
    optim: OptimConfig = group(OptimConfig, "Optimizer")
    loss: LossConfig = group(LossConfig, "Loss")
    augment: AugmentConfig = group(AugmentConfig, "Augmentation")
    sampling: SamplingConfig = group(SamplingConfig, "Sampling")
    scoring: ScoringConfig = group(ScoringConfig, "Validation")
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)


def _out_problem(value: str) -> str:
    if value == "" or value.lower().endswith((".png", ".html")):
        return ""
    return "must end in .html for a page or in .png for a picture, for example out=comparison.html or out=curves.png"


def _runs_problem(value: Folders) -> str:
    return "one run is nothing to compare; give two or more" if len(value) == 1 else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompareConfig(Checked):
    """Settings of a comparison of runs; on the command line their folders stand one after the other, without the name."""

    runs: Folders = setting(
        Folders(), "folders of two or more runs, for example runs/train/run runs/train/run2", check=_runs_problem
    )
    out: str = setting(
        "",
        "write a new file: a page (.html) with curves, differences and pictures, or the curves over images seen (.png)",
        check=_out_problem,
    )
    format: str = like(ValConfig, "format")
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvertConfig(Checked):
    """Settings of a conversion: of a data set into another label format, or of a checkpoint into one of ours."""

    weights: str = setting("", "a checkpoint to write as one of ours: Ultralytics' .pt, or ours as .pt or .safetensors")
    data: str = like(TrainConfig, "data")
    format: str = setting("yolo", "labels of the new data set", choices=("yolo", "coco", "voc"))
    out: str = setting("", "folder of the new data set, or file of the new checkpoint; it must not be there yet")
    pictures: str = setting(
        "link", "link: symbolic links to the pictures; copy: a folder that can be moved away", choices=("link", "copy")
    )
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportConfig(Checked):
    """Settings of an export."""

    model: str = setting("", "the checkpoint to export, for example runs/train/run/weights/best.pt")
    download: bool = like(
        TrainConfig, "download", help="fetch published weights that are not there, into the user's cache"
    )
    sha256: str = like(TrainConfig, "sha256")
    format: str = setting("onnx", "what to write", choices=tuple(EXPORTED))
    out: str = setting("", "the new file, or OpenVINO's folder; empty: beside the checkpoint, under its name")
    exist_ok: bool = setting(False, "replace a file that is there; else that is an error")
    imgsz: ImageSize = like(
        ValConfig,
        "imgsz",
        help="size that val and predict take by default, or with dynamic=false the only one; 0: as trained",
    )
    dynamic: bool = setting(True, "takes any size and number of pictures; false: imgsz and batch alone")
    batch: int = setting(1, "with dynamic=false, pictures that the file takes at once", low=1)
    nms: bool = setting(False, "put NMS into the file: it gives detections (yolo26 does without it)")
    conf: float = like(
        ScoringConfig, "conf", default=0.25, help="with nms=true, detections below this score are dropped"
    )
    iou: float = like(
        ScoringConfig, "iou", help="with nms=true, overlap above which the weaker box of a class is dropped"
    )
    max_det: int = like(ScoringConfig, "max_det", help="detections of a picture, where the file gives detections")
    pictures: int = setting(8, "pictures on which the file is compared with the checkpoint", low=1)
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
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
class PredictConfig(Checked):
    """Settings of one prediction."""

    model: str = setting("", "the checkpoint to detect with, for example runs/train/run/weights/best.pt")
    download: bool = like(ExportConfig, "download")
    sha256: str = like(TrainConfig, "sha256")
    source: str = setting(
        "",
        "a picture, a video, a folder, a pattern such as 'pics/*.jpg', a .txt of paths, an address, or the number of a camera",
    )
    conf: float = like(ScoringConfig, "conf", default=0.25)
    iou: float = like(ScoringConfig, "iou")
    max_det: int = like(ScoringConfig, "max_det", help="detections kept per picture, the surest")
    nms: bool | None = like(ScoringConfig, "nms")
    agnostic: bool = setting(False, "of two boxes that overlap, drop the weaker even if it is of another class")
    classes: str = like(
        SamplingConfig, "classes", help="find these alone, by number or name, for example 0,2 or cat,dog; empty: all"
    )
    imgsz: ImageSize = like(ValConfig, "imgsz")
    batch: int = like(TrainConfig, "batch", default=1, words={}, help="pictures per forward pass, at the most")
    device: str = like(ValConfig, "device")
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
        Checked.__post_init__(self)
        lacking = self.saving.idle() | ({} if self.tile else {"tile_overlap": "a tile, for example tile=640"})
        values, leaves = self.values(), leaves_of(type(self))
        idle = [name for name in lacking if values[name] != leaves[name].default]
        if idle:
            raise ConfigError("\n".join(f"{name} changes nothing without {lacking[name]}" for name in idle))
