"""A run in words: what it is, how it stands, what stands out, what was planned and what happened."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from visiontrain.config.schema import TrainConfig
from visiontrain.config.sizes import is_checkpoint
from visiontrain.config.values import leaves_of, show, written
from visiontrain.record.amounts import clock, gigabytes
from visiontrain.record.report.matrix import mix_ups
from visiontrain.record.report.source import Source

RISING = 0.01  # AP that a last quarter brings to a run which could go on

Said = tuple[str, str]  # mood (good, warn, bad or none), sentence


def title(source: Source) -> str:
    """``yolov8n on shapes``."""
    data = Path(str(source.settings["data"]))
    name = data.parent.name if data.stem == "data" and data.parent.name else data.stem
    return f"{source.computed['model']['name']} on {name}"


def lead(source: Source) -> str:
    """Two or three sentences: what was trained, on what, and how it ended or stands."""
    data, computed = source.measured["data"], source.computed
    classes = counted(len(computed["model"]["names"]), "class", "classes")
    origin = str(source.settings["model"])
    begun = f"from {origin}" if is_checkpoint(origin) else "from scratch"
    trained = f"{'Training' if source.running else 'Trained'} {begun} on {counted(data['images'], 'image')} with "
    trained += f"{counted(data['targets'], 'object')} of {classes}"
    return f"{trained}, scored on {counted(data['val_images'], 'image')} of validation. {ended(source)}"


def ended(source: Source) -> str:
    """How it ended, or where it stands."""
    epochs, done = source.settings["epochs"], source.measured["epochs"]
    outcome, reason = source.record["outcome"], source.record["reason"].rstrip(".")
    if outcome == "finished":
        return f"Finished {counted(done, 'epoch')} in {clock(source.measured['seconds'])}."
    if outcome == "stopped early":
        return f"Stopped early after epoch {done} of {epochs}: {reason}."
    if outcome == "running":
        return (
            f"Epoch {done + 1} of {epochs} is open."
            if done < epochs
            else "All epochs are done; best.pt is scored once more."
        )
    return f"{outcome.capitalize()} with {done} of {epochs} epochs done: {reason}."


def time_left(source: Source) -> float | None:
    """Seconds, by the pace so far; None before there is one."""
    planned, seen = source.computed["images_planned"], source.images_seen
    if source.epochs:  # validation included
        row = source.epochs[-1]
        return float(row["time"] / row["images_seen"] * (planned - seen))
    if source.updates and (images := sum(row["window_images"] for row in source.updates)):
        return float(sum(row["seconds"] for row in source.updates) / images * (planned - seen))
    return None


def stands_out(source: Source) -> list[Said]:
    """What a person should see first; facts with numbers, trouble before all."""
    return [*_trouble(source), *_trend(source), *_classes(source), *_sizes(source), *_errors(source)]


def _trend(source: Source) -> Iterator[Said]:
    best, last, epochs = source.best, source.measured["metrics"]["last"], source.measured["epochs"]
    scored = [row for row in source.validated if row["epoch"] <= 0.75 * epochs]
    if not best or not scored or source.running:
        return
    if best["epoch"] < epochs:
        yield (
            "",
            f"The best epoch is {best['epoch']} of {epochs}; the last one scored {best['ap'] - last['ap']:.3f} AP less.",
        )
        return
    gain = best["ap"] - max(row["metrics/ap"] for row in scored)
    more = f"visiontrain train resume={source.folder / 'weights' / 'last.pt'} epochs=+{max(epochs // 2, 1)}"
    told = f"The last epoch is the best one; the last quarter of the run brought {gain:+.3f} AP"
    yield ("warn", f"{told}, so more epochs may help: {more}") if gain >= RISING else ("good", f"{told}.")


def _classes(source: Source) -> Iterator[Said]:
    scores = {name: row["ap"] for name, row in source.measured["per_class"].items() if row["ap"] is not None}
    if len(scores) > 1:
        high, low = max(scores, key=scores.__getitem__), min(scores, key=scores.__getitem__)
        yield "", f"Best class: {high} (AP {scores[high]:.3f}). Weakest: {low} (AP {scores[low]:.3f})."


def _sizes(source: Source) -> Iterator[Said]:
    sizes = {
        size: source.best[f"ap_{size}"]
        for size in ("small", "medium", "large")
        if source.best.get(f"ap_{size}") is not None
    }
    if len(sizes) > 1:
        yield "", "AP by size of the object: " + ", ".join(f"{size} {ap:.3f}" for size, ap in sizes.items()) + "."


def _errors(source: Source) -> Iterator[Said]:
    """From the confusion matrix."""
    if source.curves is None:
        return
    names, cells = source.curves["names"], source.curves["confusion"]
    ground = len(names)
    objects = sum(count for _, true, count in cells if true != ground)
    missed = sum(count for predicted, true, count in cells if predicted == ground and true != ground)
    extra = sum(count for predicted, true, count in cells if true == ground and predicted != ground)
    if objects:
        yield (
            "",
            f"At confidence 0.25, {missed:,} of {counted(objects, 'object')} were missed ({missed / objects:.0%}) and "
            f"{counted(extra, 'detection')} lay where nothing is.",
        )
    for predicted, true, count, _ in mix_ups(source.curves)[:1]:
        yield "", f"The most frequent mix-up: {true} taken for {predicted}, {count} times."


def _trouble(source: Source) -> Iterator[Said]:
    measured = source.measured
    if measured["skipped"]:
        yield "warn", f"{counted(sum(measured['skipped'].values()), 'update')} changed nothing (not finite)."
    if measured["shrinks"]:
        yield (
            "warn",
            f"Memory ran out {counted(len(measured['shrinks']), 'time')}; the run went on with smaller micro-batches.",
        )
    if measured["data"]["findings"]:
        yield "warn", f"{counted(measured['data']['findings'], 'finding')} in the data; they are listed below."
    if measured["unreadable"]:
        yield "bad", f"{counted(len(measured['unreadable']), 'picture')} could not be read any more during the run."


def happened(source: Source) -> list[Said]:
    """The record in sentences, in the order of the work."""
    return [*_updates(source), *_images(source), *_memory(source), *_processes(source), *_ends(source)]


def _updates(source: Source) -> Iterator[Said]:
    measured = source.measured
    attempted, applied = measured["updates_attempted"], measured["updates_applied"]
    yield (
        "",
        f"{counted(attempted, 'update')} attempted, {applied:,} applied, of {source.computed['updates_planned']:,} planned.",
    )
    for reason, count in measured["skipped"].items():
        yield "warn", f"{counted(count, 'update')} skipped: {reason}."
    if applied:
        yield "", f"The gradient was clipped in {measured['clipped']:,} of them ({measured['clipped'] / applied:.0%})."


def _images(source: Source) -> Iterator[Said]:
    measured = source.measured
    yield (
        "",
        f"{counted(measured['images_seen'], 'image')} seen, with {counted(measured['targets_seen'], 'box', 'boxes')}.",
    )
    left_out = source.computed["last_window"]["images_left_out"]
    if left_out:
        each = ", ".join(sorted({str(len(paths)) for paths in left_out.values()}))
        yield "", f"{each} images were left out in each epoch (last_window=drop)."
    for path, why in (
        map(str, row) if isinstance(row, list) else (str(row), "") for row in measured["unreadable"][:10]
    ):
        yield "bad", f"Could not be read: {path} {why}".rstrip()


def _memory(source: Source) -> Iterator[Said]:
    for shrink in source.measured["shrinks"]:
        same = f", still {shrink['images_per_update']} images per update" if "images_per_update" in shrink else ""
        yield (
            "warn",
            f"Memory ran out in {shrink['where']}, epoch {shrink['epoch']}, after {counted(shrink['updates_attempted'], 'update')}: "
            f"{shrink['before']} images at a time became {shrink['after']}{same}.",
        )
    if auto := source.measured.get("batch_auto"):
        yield "", f"batch=auto found {auto['batch']}."


def _processes(source: Source) -> Iterator[Said]:
    for resume in source.measured["resumes"]:
        changes = f": {'; '.join(resume['changes'])}" if resume["changes"] else ""
        yield (
            "",
            f"Went on at {moment(resume['time'])} after {counted(resume['updates_attempted'], 'update')}{changes}.",
        )
    if mean := source.measured.get("average_best"):
        kept = "kept as best.pt" if mean["kept"] else "not kept, for it is no better"
        yield "", f"The mean of epochs {', '.join(map(str, mean['epochs']))} scored {mean['mean']:.3f} and was {kept}."


def _ends(source: Source) -> Iterator[Said]:
    for warning in source.record["warnings"][:50]:
        yield "warn", warning
    mood = {"finished": "good", "stopped early": "good", "running": "", "interrupted": "warn", "failed": "bad"}
    yield mood[source.record["outcome"]], ended(source)


def counted(number: int, one: str, many: str = "") -> str:
    """``1 image``, ``2,880 images``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def moment(iso: str) -> str:
    """``2026-12-01 03:54``."""
    return iso[:16].replace("T", " ")


def command(source: Source) -> str:
    """What to type for the same run again."""
    settings: dict[str, Any] = source.settings
    names = [name for name in settings if name in given_names(source) - {"resume", "exist_ok"}]
    words = [f"{name}={typed(name, settings[name])}" for name in names]
    return shlex.join(["visiontrain", "train", *words])


def typed(name: str, value: Any) -> str:
    """A setting as one would type it, exactly; of other versions as it is."""
    leaf = leaves_of(TrainConfig).get(name)
    if isinstance(value, bool):
        return str(value).lower()
    if leaf is None or isinstance(value, float):
        return repr(value).removesuffix(".0")
    return ",".join(map(str, value)) if isinstance(value, list) else show(leaf, value)


def given_names(source: Source) -> set[str]:
    """The settings that the user gave; of an older record, those that differ from today's defaults."""
    if "names" in source.record["given"]:
        return set(source.record["given"]["names"])
    defaults = {name: written(leaf.default) for name, leaf in leaves_of(TrainConfig).items()}
    return {name for name, value in source.settings.items() if value != defaults.get(name, value)}


def peak(source: Source) -> str:
    """Of the whole run."""
    return gigabytes(source.measured["memory"]["peak"])
