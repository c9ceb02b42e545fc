"""Going on with a run: which checkpoint, which settings may change, which may not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from visiontrain.config.build import build
from visiontrain.config.schema import AUTO, TrainConfig
from visiontrain.config.values import More
from visiontrain.errors import ConfigError, WeightsError
from visiontrain.models.weights import read_checkpoint
from visiontrain.training.plan import Plan

# These do not touch what a window computes, or say how it is cut and shared; every other setting stays as the run began.
MAY_CHANGE = frozenset(
    {
        "augment_device",
        "average_best",
        "batch",
        "best_after",
        "checkpoint_blocks",
        "data",
        "device",
        "download",
        "epochs",
        "exist_ok",
        "max_restarts",
        "name",
        "nbs",
        "patience",
        "plots",
        "project",
        "reduce",
        "resume",
        "save_minutes",
        "save_period",
        "save_updates",
        "sha256",
        "timeout",
        "val",
        "val_minutes",
        "val_period",
        "val_updates",
        "workers",
    }
)


@dataclass(frozen=True, slots=True)
class Resumed:
    """An interrupted run: its checkpoint and content, its folder, the settings it goes on with, and what was changed."""

    path: Path
    content: dict[str, Any]
    folder: Path
    config: TrainConfig
    changes: tuple[str, ...]

    def same_cut(self, plan: Plan) -> bool:
        """Is a window still cut into the same micro-batches on the same kind of device? Else what was learned of memory is
        not true any more."""
        before = self.content["plan"]
        device = any(change.startswith("device:") for change in self.changes)
        return not device and (before["batch"], before["ranks"]) == (plan.batch, plan.ranks)

    @property
    def planned(self) -> int:
        """Epochs of the run as it was planned so far."""
        return int(self.content["settings"]["epochs"])

    @property
    def extended(self) -> bool:
        """Does the run go on to more epochs than planned so far?"""
        return self.config.epochs > self.planned

    @property
    def updates_at_start(self) -> int:
        """Updates that were planned when the run began, by which its optimizer was chosen."""
        plan = self.content["plan"]
        return int(plan.get("updates_at_start", plan["updates"]))

    def told(self, plan: Plan) -> tuple[str, ...]:
        """What goes on otherwise than before, each in a sentence; whether an update still sees as many images."""
        before = self.content["plan"]
        ranks = [f"ranks: {before['ranks']} before, {plan.ranks} from now on"] if before["ranks"] != plan.ranks else []
        found = [*self.changes, *ranks]
        if not {change.split(":")[0] for change in found} & {"batch", "nbs", "ranks"}:
            return tuple(found)
        was, now = before["images_per_update"], plan.images_per_update
        if was == now:
            stay = (
                "weight decay stays"
                if self.config.epochs != self.planned
                else "learning rate, weight decay and schedule stay"
            )
            return (*found, f"an update still sees {now} images: {stay}")
        return (
            *found,
            f"an update sees {now} images from now on, {was} before; weight decay used "
            f"{before['weight_decay']:g} before, {plan.weight_decay_used:g} from now on",
        )


def resume(config: TrainConfig) -> Resumed:
    """Find and read the checkpoint that ``resume=`` means and merge the settings given now into the run's.

    Raises:
        ConfigError: a setting that cannot change was given another value.
        WeightsError: no checkpoint, or one that cannot be resumed.
    """
    path = newest(config.output.project) if config.resume == "true" else Path(config.resume)
    content = read_checkpoint(path)
    if content["kind"] != "training":
        raise WeightsError(f"{path}: holds finished weights only and cannot be resumed; give the run's last.pt.")
    if path.parent.name != "weights":
        raise WeightsError(
            f"{path}: a run is resumed in its own folder; give RUN/weights/last.pt, not a copy elsewhere."
        )
    stored = TrainConfig().leaves() | content["settings"]  # what is newer than the checkpoint stood at its default
    now = {name: value for name, value in config.leaves().items() if name in config.given}
    if now.get("batch") == AUTO:  # found when the run began
        del now["batch"]
    if isinstance(config.epochs, More):
        now["epochs"] = stored["epochs"] + config.epochs
    changed = {n: v for n, v in now.items() if n != "resume" and stored[n] != v}
    _refuse(changed, stored, path)
    if "epochs" in changed:
        _require_epochs_left(changed["epochs"], content["state"], path)
    merged = {**stored, **{n: v for n, v in changed.items() if n not in ("project", "name", "exist_ok")}}
    if config.augment.albumentations.live is not None:  # the same as it was, or it would have been refused
        merged["albumentations"] = config.augment.albumentations
    # What was typed again without a change counts as it did then: optimizer=auto looks at what was given.
    given = frozenset(content["given"]) | changed.keys()
    resumed = replace(build(TrainConfig, {**merged, "resume": ""}), given=given)
    told = tuple(f"{n}: {stored[n]} before, {v} from now on" for n, v in sorted(changed.items()) if n != "epochs")
    return Resumed(path, content, path.parent.parent, resumed, told)


def _require_epochs_left(total: int, state: dict[str, Any], path: Path) -> None:
    if total <= state["epoch"]:
        raise ConfigError(
            f"epochs={total}: {state['epoch']} epochs of this run ({path}) are done. epochs is the new total, at least "
            f"{state['epoch'] + 1}; or write epochs=+N for N more than planned."
        )


def newest(project: str) -> Path:
    """The last.pt written last among the runs of a project.

    Raises:
        WeightsError: there is none.
    """
    found = sorted(Path(project).glob("*/weights/last.pt"), key=lambda p: p.stat().st_mtime)
    if not found:
        raise WeightsError(
            f"resume=true: no */weights/last.pt under {project}. Give the checkpoint: resume=RUN/weights/last.pt"
        )
    return found[-1]


def _refuse(changed: dict[str, Any], stored: dict[str, Any], path: Path) -> None:
    fixed = sorted(set(changed) - MAY_CHANGE)
    if fixed:
        lines = [f"{n}={changed[n]}: this run was begun with {n}={stored[n]}" for n in fixed]
        raise ConfigError(
            "\n".join(lines)
            + f"\nA resumed run ({path}) goes on as it began, bit for bit; only {', '.join(sorted(MAY_CHANGE - {'resume'}))} may "
            f"change. Leave the setting out, or start a new run with model={path}."
        )
