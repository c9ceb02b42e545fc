"""What makes runs hard to hold against each other: refused, or said once, naming the runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from string import ascii_uppercase
from typing import Any

from visiontrain.errors import ConfigError
from visiontrain.record.run_folder import RunFolder

# One of these may differ between two runs before their AP cannot be blamed on it (rule 42): settings, computed values.
RECIPE = {
    "learning rate": ({"lr0", "lr_scale"}, {"optimizer.lr0"}),
    "schedule": ({"cos_lr", "lrf", "warmup_epochs", "warmup_momentum", "warmup_bias_lr"}, set[str]()),
    "duration": ({"epochs"}, {"images_planned"}),
}
SCORING = ("conf", "iou", "max_det", "imgsz")  # settings that change what an AP is of
OF_A_REPEAT = {"seed", "name", "project", "exist_ok", "plots", "workers"}  # may differ where a run is repeated
MOST_PAIRS = 6
Sections = Sequence[Mapping[str, Any]]


def letter(number: int) -> str:
    """What the run with this number, from 0, is called: A to Z, AA, AB and so on."""
    return (letter(number // 26 - 1) if number >= 26 else "") + ascii_uppercase[number % 26]


def same_yardstick(runs: Sequence[RunFolder]) -> None:
    """Rule 41: what is compared, and over what, was declared beforehand and is the same.

    Raises:
        ConfigError: one declares none, or two declare different ones.
    """
    for key in ("axis", "metric"):
        for run in runs:
            if not run.record.get(key):
                raise ConfigError(
                    f"{run.folder / 'run.json'}: declares no {key}, so nothing says that its numbers can be held against "
                    "another run's; only records that declare the same axis and metric are compared"
                )
            if run.record[key] != runs[0].record[key]:
                raise ConfigError(
                    f"{runs[0].folder} and {run.folder} have different {key}: {runs[0].record[key]!r} and "
                    f"{run.record[key]!r}; their numbers do not belong side by side"
                )


def warnings_of(runs: Sequence[RunFolder], given: Sections, computed: Sections) -> Iterator[str]:
    """Everything a person should mind, each thing once.

    Args:
        given, computed: these sections of each run, flat.
    """
    yield from _twice(runs)
    for number, run in enumerate(runs):
        yield from _unfinished(letter(number), run)
    yield from _recipe(given, computed)
    yield from _other_pictures(runs)
    yield from _other_things(runs, given)
    yield from _repeats(runs, given)


def _twice(runs: Sequence[RunFolder]) -> Iterator[str]:
    for group in _groups([run.folder.resolve() for run in runs]):
        if len(group) > 1:
            yield f"{_letters(group)} are one and the same run ({runs[group[0]].folder}), given more than once"


def _unfinished(name: str, run: RunFolder) -> Iterator[str]:
    outcome, updated = run.record["outcome"], run.record["updated"]
    if outcome == "running":
        yield f"{name} ({run.folder}) is still running, or was killed: its numbers are those of {updated}"
    elif outcome not in ("finished", "stopped early"):
        yield f"{name} ({run.folder}) {outcome} ({run.record['reason']}): its numbers are those of an unfinished run"
    if not run.curve:
        yield f"{name} ({run.folder}) was never evaluated: it has no AP to compare"


def _recipe(given: Sections, computed: Sections) -> Iterator[str]:
    """Rule 42: at most one of learning rate, schedule and duration may differ between any two."""
    found = {}
    for a, b in combinations(range(len(given)), 2):
        changed = _changed(given[a], given[b], computed[a], computed[b])
        if len(changed) > 1:
            found[a, b] = changed
    if found:
        names = {what: sorted(set().union(*(c.get(what, ()) for c in found.values()))) for what in RECIPE}
        which = " and ".join(f"{what} ({', '.join(of)})" for what, of in names.items() if of)
        between = f" between {_pairs(list(found))}" if len(given) > 2 else ""
        yield (
            f"{which} differ at once{between}: which of them the difference of AP is owed to cannot be told; "
            "change one at a time"
        )


def _changed(a: Mapping[str, Any], b: Mapping[str, Any], *computed: Mapping[str, Any]) -> dict[str, set[str]]:
    """Parts of the recipe that differ between two runs, each with what shows it."""
    one, two = computed
    changed = {}
    for what, (settings, derived) in RECIPE.items():
        known = {name for name in settings if None not in (a.get(name), b.get(name)) and a[name] != b[name]}
        if names := known or {name for name in derived if one.get(name) != two.get(name)}:
            changed[what] = names
    return changed


def _other_pictures(runs: Sequence[RunFolder]) -> Iterator[str]:
    """Classes, validation data and training data that are not the same."""
    data = [run.measured["data"] for run in runs]
    names = [run.record["computed"]["model"]["names"] for run in runs]
    if told := _told(names, lambda n: _few(names[n])):
        yield f"class names differ ({told}): the AP are means over different classes"
    if told := _told([d["val_fingerprint"] for d in data], lambda n: f"{data[n]['val_images']} images"):
        yield (
            f"the validation data differ ({told}): the AP are not of the same pictures; score each best.pt on one split "
            "with visiontrain val"
        )
    if told := _told([d["fingerprint"] for d in data], lambda n: f"{data[n]['images']} images"):
        yield f"the training data differ ({told})"


def _other_things(runs: Sequence[RunFolder], given: Sections) -> Iterator[str]:
    for name in SCORING:
        if told := _told([settings.get(name) for settings in given]):
            yield f"{name} differs ({told}), and an AP depends on it"
    if told := _told([run.measured["device"]["name"] for run in runs]):
        yield f"the devices differ ({told}): images per second and memory are not of the same machine"


def _repeats(runs: Sequence[RunFolder], given: Sections) -> Iterator[str]:
    """What the same settings with another seed make of AP: a difference that small means nothing."""
    for a, b in combinations(range(len(runs)), 2):
        changed = {name for name in {**given[a], **given[b]} if given[a].get(name) != given[b].get(name)}
        ends = [run.curve[-1] for run in (runs[a], runs[b]) if run.curve]
        if "seed" in changed and changed <= OF_A_REPEAT and len(ends) == 2:
            apart = abs(ends[0].ap - ends[1].ap)
            yield (
                f"{letter(a)} and {letter(b)} differ in the seed alone, and their last AP by {apart:.4f}: "
                "differences of that size between other runs may be chance"
            )


def _groups(values: Sequence[Any]) -> list[list[int]]:
    """Numbers of the runs with equal values, in the order of the first of each."""
    groups: list[list[int]] = []
    for number, value in enumerate(values):
        same = next((group for group in groups if values[group[0]] == value), None)
        if same is None:
            groups.append([number])
        else:
            same.append(number)
    return groups


def _told(values: Sequence[Any], show: Callable[[int], str] | None = None) -> str:
    """``A and C 64, B 96``, or "" where all are equal; ``show`` is asked with the number of a run."""
    groups = _groups(values)
    if len(groups) == 1:
        return ""
    return ", ".join(f"{_letters(group)} {show(group[0]) if show else values[group[0]]}" for group in groups)


def _letters(numbers: Sequence[int]) -> str:
    return _listed([letter(number) for number in numbers])


def _pairs(pairs: Sequence[tuple[int, int]]) -> str:
    told = [_letters(pair) for pair in pairs[:MOST_PAIRS]]
    more = [f"{len(pairs) - MOST_PAIRS} more pairs"] if len(pairs) > MOST_PAIRS else []
    return ", ".join([*told, *more])


def _listed(words: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
