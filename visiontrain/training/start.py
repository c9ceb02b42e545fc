"""The model that a run begins or goes on with: fresh, a checkpoint's, or its own; with the normalisation that was decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from visiontrain.config.recipes import with_recipe
from visiontrain.config.schema import TrainConfig
from visiontrain.config.sizes import is_checkpoint
from visiontrain.config.values import leaves_of
from visiontrain.errors import ConfigError
from visiontrain.losses import LOSSES
from visiontrain.models import MODELS, build_model, family_of, model_names
from visiontrain.models.backbones import BackboneDetector
from visiontrain.models.detector import Detector
from visiontrain.models.freezing import freeze
from visiontrain.models.transfer import for_classes
from visiontrain.models.weights import about_checkpoint, load_model, model_of
from visiontrain.nn.norm import alone, swap_norms
from visiontrain.training.normalisation import Normalisation, choose_norm
from visiontrain.training.plan import Plan
from visiontrain.training.resume import Resumed
from visiontrain.training.statistics import BatchNormPolicy, scale_momentum


def normalisation_of(config: TrainConfig, resumed: Resumed | None = None, ranks: int = 1) -> Normalisation:
    """As decided when the run began; else from the settings and, where it starts from a checkpoint, the checkpoint's own.

    Raises:
        ConfigError: the normalisation that is asked for cannot be had.
        WeightsError: the checkpoint cannot be read.
    """
    if resumed:
        stored = {"norm": resumed.content["model"]["norm"], "reason": "as the run began"}
        return Normalisation(**resumed.content["plan"].get("normalisation", stored))
    start = "" if from_scratch(config) else about_checkpoint(config.model)["norm"]
    return choose_norm(config.norm, start, ranks)


def model_to_train(
    config: TrainConfig, class_names: Sequence[str], plan: Plan, resumed: Resumed | None, statistics: BatchNormPolicy
) -> Detector:
    """In training mode, with the normalisation of the plan; a resumed run's comes from its checkpoint alone.

    Raises:
        ConfigError: BatchNorm would meet a single value to take a variance of; nms=false with a model that needs it.
        WeightsError: as ``starting_model``.
    """
    if resumed:
        model = model_of(resumed.content, resumed.path).train()
        freeze(model, config.freeze)
    else:
        model = starting_model(config, class_names)
    swap_norms(model, plan.normalisation.norm)
    _require_two_values(config, plan, model.stride)
    model.checkpoint_blocks = config.checkpoint_blocks
    model.use_nms(config.scoring.nms)
    if statistics.nominal_images:
        images = plan.normalisation.seen(plan.batch // plan.ranks, plan.ranks)
        scale_momentum(model, images, statistics.nominal_images)
    return model


def _require_two_values(config: TrainConfig, plan: Plan, stride: int) -> None:
    """The coarsest map of the smallest picture has one cell: with one image BatchNorm has nothing to take a variance of."""
    tail = plan.images % plan.batch if plan.last_window == "use" else 0
    norm = plan.normalisation.norm
    smallest = config.imgsz.scaled(1 - config.sampling.multi_scale)
    parts = plan.ranks if norm == "batch" else 1  # that a micro-batch has, each with statistics of its own
    seen = (plan.batch // parts, tail // parts, -(-tail // parts))
    if norm in ("batch", "sync") and max(smallest) == stride and 1 in seen:
        raise ConfigError(
            f"imgsz={smallest}: BatchNorm cannot train on one image of this size, and there are micro-batches of one "
            f"(batch={plan.batch}, {plan.images} images). Use imgsz={2 * stride}, norm=group, or another batch."
        )


def model_with(config: TrainConfig, class_names: Sequence[str], norm: str) -> Detector:
    """The model that training starts from, to be tried on one rank; ``norm`` is the normalisation, sync as BatchNorm.

    Raises:
        WeightsError: as ``starting_model``.
    """
    model = starting_model(config, class_names)
    swap_norms(model, alone(norm))
    model.checkpoint_blocks = config.checkpoint_blocks
    return model


def from_scratch(config: TrainConfig) -> bool:
    """Whether ``model`` names a family and size; else it is the path of a checkpoint."""
    return config.model in model_names() or not is_checkpoint(config.model)


def of_its_family(config: TrainConfig) -> TrainConfig:
    """The settings with the recipe of the model's family where nothing was given.

    Raises:
        ConfigError: no such model, or a setting that changes nothing for the family.
        WeightsError: the checkpoint cannot be read.
    """
    family = family_of(config.model) if from_scratch(config) else about_checkpoint(config.model)["family"]
    loss = LOSSES[MODELS[family].loss] if family in MODELS else None
    idle: Mapping[str, str] = getattr(loss, "idle", {})  # of a loss that a setting changes nothing in
    values, leaves = config.values(), leaves_of(TrainConfig)
    wrong = [
        f"{n}={values[n]}: changes nothing for {family}: {why}"
        for n, why in idle.items()
        if values[n] != leaves[n].default
    ]
    if wrong:
        raise ConfigError("\n".join(wrong))
    return with_recipe(config, family)


def require_what_is_asked(config: TrainConfig, class_names: Sequence[str]) -> None:
    """Before anything is written: what is asked for is there, to be frozen, to do without NMS, to help. No weights are needed to know.

    Raises:
        ConfigError: freeze names nothing of the model; nms=false with a model that needs it; auxiliary=true without such a head;
            as ``require_backbone``.
        WeightsError: the checkpoint cannot be read.
    """
    require_backbone(config)
    if config.freeze or config.auxiliary or config.scoring.nms is False:
        name = config.model if from_scratch(config) else about_checkpoint(config.model)["name"]
        with torch.device("meta"):
            model = build_model(name, class_names, auxiliary=config.auxiliary)
        freeze(model, config.freeze)
        model.use_nms(config.scoring.nms)


def require_backbone(config: TrainConfig) -> None:
    """Weights for a backbone need a model from scratch that has one of torchvision's.

    Raises:
        ConfigError: it has none.
    """
    if config.backbone_weights == "none":
        return
    names = model_names(*(family for family, kind in MODELS.items() if issubclass(kind, BackboneDetector)))
    if config.model not in names:
        raise ConfigError(
            f"backbone_weights={config.backbone_weights}: model={config.model} has no backbone that takes them; leave it out, "
            f"or give model= one of {', '.join(names)}"
        )


def starting_model(config: TrainConfig, class_names: Sequence[str]) -> Detector:
    """Fresh weights for a model's name, the checkpoint's for a path, with the classes of the data; what is frozen is.

    Raises:
        WeightsError: the checkpoint cannot be read.
        ConfigError: freeze names nothing of the model.
    """
    if from_scratch(config):
        model = build_model(config.model, class_names, auxiliary=config.auxiliary)
        if isinstance(model, BackboneDetector) and config.backbone_weights == "imagenet":
            model.origin = (model.load_imagenet(),)
    else:
        model, transfer = for_classes(load_model(config.model).train(), class_names, config.auxiliary)
        model.origin, model.transferred = (transfer.sentence(),), transfer.facts()
    if frozen := freeze(model, config.freeze):
        model.origin = (*model.origin, frozen)
    return model
