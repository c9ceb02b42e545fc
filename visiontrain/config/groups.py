"""Groups of settings that verbs share: how weights move, what the loss counts, how pictures vary, what is left behind."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from visiontrain.config.loggers import loggers_problem
from visiontrain.config.pipeline import Pipeline
from visiontrain.config.values import leaves_of, like, problem, setting, written
from visiontrain.errors import ConfigError


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


def _name_problem(value: str) -> str:
    return "names a folder inside project: leave out / and \\" if re.search(r"[/\\]|^\.\.?$", value) else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
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
class OptimConfig(Checked):
    """How weights move."""

    optimizer: str = setting(
        "auto", "auto chooses by the number of planned updates and says what", choices=("auto", "SGD", "AdamW", "Muon")
    )
    lr0: float = setting(0.01, "learning rate after warm-up; with optimizer=auto it is chosen unless given", above=0)
    lrf: float = setting(0.01, "last learning rate as a fraction of lr0", low=0, high=1)
    momentum: float = setting(0.937, "SGD momentum, beta1 of AdamW", low=0, below=1)
    weight_decay: float = setting(5e-4, "decay of weights at nbs images per update; norms and biases have none", low=0)
    warmup_epochs: float = setting(3.0, "epochs over which windows and learning rate grow", low=0, high=1000)
    warmup_momentum: float = setting(0.8, "momentum at the start of warm-up", low=0, below=1)
    warmup_bias_lr: float = setting(0.1, "learning rate of biases at the start of warm-up", low=0)
    cos_lr: bool = setting(False, "learning rate falls as a cosine, not a line")
    layer_decay: float = setting(
        1.0, "each layer learns at this share of the next one's rate, the head at lr0; 1: all alike", above=0, high=1
    )
    lr_scale: str = setting(
        "none",
        "lr0 grows with E/64 (linear) or its root (sqrt), E the images of an update; none: nbs holds E at the recipe's 64",
        choices=("none", "linear", "sqrt"),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class LossConfig(Checked):
    """Gains of the parts of the loss."""

    box: float = setting(7.5, "gain of the box loss (CIoU; in yolox IoU, and 5)", low=0)
    cls: float = setting(0.5, "gain of the class loss (in yolox 1)", low=0)
    dfl: float = setting(
        1.5, "gain of the distribution focal loss; of the distance loss where there are no bins (yolo26)", low=0
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class AugmentConfig(Checked):
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
class SamplingConfig(Checked):
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
        Checked.__post_init__(self)
        if self.balance == "none" and self.balance_threshold is not None:
            raise ConfigError(f"balance_threshold={self.balance_threshold:g}: changes nothing with balance=none")
        for name in ("balance", "class_weights"):
            if self.single_cls and getattr(self, name) != "none":
                raise ConfigError(f"{name}={getattr(self, name)}: with single_cls=true no class is rarer than another")


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputConfig(Checked):
    """What a run leaves behind, and where."""

    project: str = setting("runs/train", "folder of the runs")
    name: str = setting("", "folder of this run inside project; empty: run, run2, ...", check=_name_problem)
    exist_ok: bool = setting(False, "write into a folder that exists; else the name gets a number")
    plots: bool = setting(True, "draw batches, curves and the confusion matrix")
    loggers: str = setting(
        "",
        "where else the run is logged, beside csv and jsonl: tensorboard, wandb, mlflow, or several; none",
        words={"none": "", "no": "", "false": ""},
        check=loggers_problem,
        listed=True,
    )
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
class JudgingConfig(Checked):
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
class ScoringConfig(Checked):
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
class SavingConfig(Checked):
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
    project: str = like(OutputConfig, "project", default="runs/predict", help="folder of the predictions")
    name: str = like(OutputConfig, "name", help="folder of this one inside project; empty: predict, predict2, ...")
    exist_ok: bool = like(OutputConfig, "exist_ok")

    @property
    def writes(self) -> bool:
        """Whether there is anything to write."""
        return self.save or self.save_txt or self.save_crop or self.save_json

    def idle(self) -> dict[str, str]:
        """Settings that change nothing beside the others, each with what they need."""
        lacking = {} if self.save else dict.fromkeys(("line_width", "show_labels", "show_conf"), "save=true")
        lacking |= {} if self.save_txt else {"save_conf": "save_txt=true"}
        return lacking | ({} if self.writes else dict.fromkeys(("project", "name", "exist_ok"), "save=true"))
