"""Two runs side by side: what was set otherwise, what followed from it, what was measured. Reads run folders, writes nothing."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visiontrain.errors import ConfigError
from visiontrain.record.files import SCHEMAS, read_epochs

SCHEMA_VERSION = 1
MOST_POINTS = 10
LEFT_OUT = {"last_window.images_left_out", "optimizer.reason"}  # long, and they follow from what is shown

# One of these may differ between two runs before their AP cannot be blamed on it (rule 42): settings, computed values.
RECIPE = {
    "learning rate": ({"lr0", "lr_scale"}, {"optimizer.lr0"}),
    "schedule": ({"cos_lr", "lrf", "warmup_epochs", "warmup_momentum", "warmup_bias_lr"}, set[str]()),
    "duration": ({"epochs"}, {"images_planned"}),
}
SCORING = ("conf", "iou", "max_det", "imgsz")  # settings that change what an AP is of


@dataclass(frozen=True, slots=True)
class Pair:
    """One value of both runs; None where a run does not have it."""

    a: Any
    b: Any

    @property
    def difference(self) -> float | None:
        """b - a of numbers."""
        numbers = [v for v in (self.a, self.b) if isinstance(v, int | float) and not isinstance(v, bool)]
        return numbers[1] - numbers[0] if len(numbers) == 2 else None


@dataclass(frozen=True, slots=True)
class Point:
    """An evaluated epoch on the curve of a run."""

    epoch: int
    images_seen: int
    ap: float
    ap50: float


@dataclass(frozen=True, slots=True)
class RunFolder:
    """What a run left behind: its ``record`` (run.json) and its ``curve``."""

    folder: Path
    record: dict[str, Any]
    curve: tuple[Point, ...]

    @property
    def measured(self) -> dict[str, Any]:
        """The measured section of the record."""
        section: dict[str, Any] = self.record["measured"]
        return section


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs: values that differ by name, in the sections of run.json, and what a person should mind."""

    a: RunFolder
    b: RunFolder
    warnings: tuple[str, ...]
    given: dict[str, Pair]
    computed: dict[str, Pair]
    measured: dict[str, Pair]  # all of it, equal values too

    def points(self, most: int = MOST_POINTS) -> list[tuple[int, Pair]]:
        """AP of both at the same images seen: that of the last evaluation at or before them."""
        curves = self.a.curve, self.b.curve
        if not all(curves):
            return []
        first, last = max(c[0].images_seen for c in curves), min(c[-1].images_seen for c in curves)
        fewer = min(curves, key=len)
        grid = sorted({point.images_seen for point in fewer if first <= point.images_seen <= last} | {last})
        return [(x, Pair(*(_at(curve, x) for curve in curves))) for x in _thinned(grid, most) if x >= first]

    def to_json(self) -> dict[str, Any]:
        """Plain values for one line of JSON (docs/contracts.md)."""
        return {
            "schema_version": SCHEMA_VERSION,
            "axis": self.a.record["axis"],
            "metric": self.a.record["metric"],
            "a": _summary(self.a),
            "b": _summary(self.b),
            "warnings": list(self.warnings),
            "given": {name: {"a": pair.a, "b": pair.b} for name, pair in self.given.items()},
            "computed": {name: {"a": pair.a, "b": pair.b} for name, pair in self.computed.items()},
            "measured": {name: _with_difference(pair) for name, pair in self.measured.items()},
            "points": [{"images_seen": x, **_with_difference(pair)} for x, pair in self.points()],
        }


def compare(a: str | Path, b: str | Path) -> Comparison:
    """Put two run folders side by side.

    Raises:
        ConfigError: one is no run folder or was written by another version, or their axes or metrics differ.
    """
    one, two = read_run(a), read_run(b)
    _same_yardstick(one, two)
    given = _differing(one.record["given"]["settings"], two.record["given"]["settings"])
    computed = _differing(*(dict(_flat(run.record["computed"])) for run in (one, two)))
    warnings = (*_unfinished(one), *_unfinished(two), *_recipe(given, computed), *_other_things(one, two, given))
    return Comparison(one, two, tuple(warnings), given, computed, _measured(one, two))


def read_run(folder: str | Path) -> RunFolder:
    """Read what ``compare`` needs of a run folder.

    Raises:
        ConfigError: it is none, or it was written by another version of the contracts.
    """
    path = Path(folder).expanduser()
    file = path / "run.json"
    if not file.is_file():
        raise ConfigError(_no_run(path))
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(
            f"{file}: is not readable as JSON ({error}); a run writes it whole, so it was changed"
        ) from error
    _check_versions(record, file)
    rows = [row for row in read_epochs(path) if "metrics/ap" in row]
    curve = tuple(Point(r["epoch"], int(r["images_seen"]), r["metrics/ap"], r["metrics/ap50"]) for r in rows)
    return RunFolder(path, record, curve)


def _no_run(path: Path) -> str:
    inside = sorted(file.parent.name for file in path.glob("*/run.json"))
    if inside:
        more = ", ..." if len(inside) > 8 else ""
        return f"{path}: holds several runs; name one of them: {', '.join(inside[:8])}{more}"
    what = "there is no run.json in it" if path.is_dir() else "there is no such folder"
    return f"{path}: no run folder ({what}); give what a training left, for example runs/train/run"


def _check_versions(record: Any, file: Path) -> None:
    written = record.get("schemas") if isinstance(record, dict) else None
    if not isinstance(written, dict):
        raise ConfigError(f"{file}: is no record of a run (it has no schemas); give the folder that a training left")
    for name in ("run.json", "metrics.csv"):
        if written.get(name) != SCHEMAS[name]:
            raise ConfigError(
                f"{file}: its {name} has version {written.get(name)}, and this visiontrain reads version {SCHEMAS[name]}; "
                "compare the runs with the newer of the two versions of visiontrain"
            )


def _same_yardstick(a: RunFolder, b: RunFolder) -> None:
    """Rule 41: what is compared, and over what, was declared beforehand and is the same."""
    for key in ("axis", "metric"):
        for run in (a, b):
            if not run.record.get(key):
                raise ConfigError(
                    f"{run.folder / 'run.json'}: declares no {key}, so nothing says that its numbers can be held against "
                    "another run's; only records that declare the same axis and metric are compared"
                )
        if a.record[key] != b.record[key]:
            raise ConfigError(
                f"{a.folder} and {b.folder} have different {key}: {a.record[key]!r} and {b.record[key]!r}; "
                "their numbers do not belong side by side"
            )


def _unfinished(run: RunFolder) -> Iterator[str]:
    outcome, updated = run.record["outcome"], run.record["updated"]
    if outcome == "running":
        yield f"{run.folder} is still running, or was killed: its numbers are those of {updated}"
    elif outcome not in ("finished", "stopped early"):
        yield f"{run.folder} {outcome} ({run.record['reason']}): its numbers are those of an unfinished run"


def _recipe(given: Mapping[str, Pair], computed: Mapping[str, Pair]) -> Iterator[str]:
    """Rule 42: at most one of learning rate, schedule and duration may differ."""
    known = {name for name, pair in given.items() if None not in (pair.a, pair.b)}
    changed = {}
    for what, (settings, derived) in RECIPE.items():
        if names := sorted(settings & known) or sorted(derived & computed.keys()):
            changed[what] = f"{what} ({', '.join(names)})"
    if len(changed) > 1:
        yield (
            f"{' and '.join(changed.values())} differ at once: which of them the difference of AP is owed to cannot be told; "
            "change one at a time"
        )


def _other_things(a: RunFolder, b: RunFolder, given: Mapping[str, Pair]) -> Iterator[str]:
    """What makes the two AP numbers of different things."""
    data = {name: Pair(a.measured["data"][name], b.measured["data"][name]) for name in a.measured["data"]}
    names = Pair(*(run.record["computed"]["model"]["names"] for run in (a, b)))
    if names.a != names.b:
        yield f"class names differ ({_few(names.a)} and {_few(names.b)}): the two AP are means over different classes"
    if data["val_fingerprint"].a != data["val_fingerprint"].b:
        yield (
            f"the validation data differ ({data['val_images'].a} and {data['val_images'].b} images): the two AP are not of "
            "the same pictures; score both best.pt on one split with visiontrain val"
        )
    if data["fingerprint"].a != data["fingerprint"].b:
        yield f"the training data differ ({data['images'].a} and {data['images'].b} images)"
    for name in SCORING:
        if name in given:
            yield f"{name} differs ({given[name].a} and {given[name].b}), and an AP depends on it"
    device = Pair(*(run.measured["device"]["name"] for run in (a, b)))
    if device.a != device.b:
        yield f"the devices differ ({device.a} and {device.b}): images per second and memory are not of the same machine"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Pair]:
    pairs = {name: Pair(a.get(name), b.get(name)) for name in {**a, **b}}
    return {name: pair for name, pair in pairs.items() if pair.a != pair.b}


def _flat(section: Mapping[str, Any], parent: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        name = f"{parent}{key}"
        if isinstance(value, dict) and name not in LEFT_OUT:
            yield from _flat(value, f"{name}.")
        elif name not in LEFT_OUT:
            yield name, value


def _measured(a: RunFolder, b: RunFolder) -> dict[str, Pair]:
    one, two = (dict(_figures(run)) for run in (a, b))
    return {name: Pair(one.get(name), two.get(name)) for name in {**one, **two}}


def _figures(run: RunFolder) -> Iterator[tuple[str, Any]]:
    """What is compared of the measured section, flat."""
    measured = run.measured
    for which in ("best", "last"):
        yield from _flat(measured["metrics"][which], f"{which}.")
    for name in ("epochs", "images_seen", "targets_seen", "micro_batches", "updates_attempted", "updates_applied"):
        yield name, measured[name]
    yield "updates_skipped", measured["updates_attempted"] - measured["updates_applied"]
    yield from _flat(measured["skipped"], "skipped.")
    yield "shrinks", len(measured["shrinks"])
    yield "clipped_share", measured["clipped"] / max(measured["updates_applied"], 1)
    yield "images_per_second", measured["images_per_second"]
    yield "seconds", measured["seconds"]
    yield "memory_peak", measured["memory"]["peak"]
    yield "memory_of", measured["memory"].get("of")
    yield "device", measured["device"]["name"]
    yield from _flat(measured["versions"], "versions.")


def _summary(run: RunFolder) -> dict[str, Any]:
    return {
        "folder": str(run.folder),
        "outcome": run.record["outcome"],
        "images_planned": run.record["computed"]["images_planned"],
        "curve": [{"epoch": p.epoch, "images_seen": p.images_seen, "ap": p.ap} for p in run.curve],
    }


def _with_difference(pair: Pair) -> dict[str, Any]:
    return {"a": pair.a, "b": pair.b, "difference": pair.difference}


def _at(curve: Sequence[Point], images_seen: int) -> float:
    return curve[bisect_right([p.images_seen for p in curve], images_seen) - 1].ap


def _thinned(grid: Sequence[int], most: int) -> list[int]:
    """At most ``most`` of them, evenly, the last one among them."""
    if len(grid) <= most:
        return list(grid)
    return [grid[round((i + 1) * len(grid) / most) - 1] for i in range(most)]
