"""Runs side by side: what was set otherwise, what followed from it, what was measured. Reads run folders, writes nothing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visiontrain.errors import ConfigError
from visiontrain.record.compare_warnings import letter, same_yardstick, warnings_of
from visiontrain.record.run_folder import Point, RunFolder, labels_of, read_run

SCHEMA_VERSION = 1
MOST_POINTS = 10
LEFT_OUT = {"last_window.images_left_out", "optimizer.reason"}  # long, and they follow from what is shown

Values = tuple[Any, ...]  # one of each run, in their order; None where a run does not have it


@dataclass(frozen=True, slots=True)
class Standing:
    """The AP of each run, all after ``images_seen`` images, or with None each at its own end."""

    images_seen: int | None
    ap: Values

    @property
    def order(self) -> list[int]:
        """Numbers of the runs that have an AP, the highest first."""
        return sorted((n for n, ap in enumerate(self.ap) if ap is not None), key=lambda n: -self.ap[n])

    @property
    def first(self) -> int | None:
        """Number of the run that is ahead of all others; None where none is, or nothing to be ahead of."""
        order = self.order
        return order[0] if len(order) > 1 and self.ap[order[0]] > self.ap[order[1]] else None


@dataclass(frozen=True, repr=False)
class Comparison:
    """Two or more runs: values that differ by name, in the sections of run.json, and what a person should mind."""

    runs: tuple[RunFolder, ...]
    warnings: tuple[str, ...]
    given: dict[str, Values]
    computed: dict[str, Values]
    measured: dict[str, Values]  # all of it, equal values too

    @property
    def letters(self) -> list[str]:
        """A, B, C and so on: what tables and warnings call the runs."""
        return [letter(number) for number in range(len(self.runs))]

    @property
    def labels(self) -> list[str]:
        """The runs' folders, with as much of the path as tells them apart."""
        return labels_of([run.folder for run in self.runs])

    def points(self, most: int = MOST_POINTS) -> list[tuple[int, Values]]:
        """AP of all at the same images seen: that of the last evaluation at or before them; None for a run without any."""
        curves = [run.curve for run in self.runs]
        some = [curve for curve in curves if curve]
        if len(some) < 2:
            return []
        first, last = max(c[0].images_seen for c in some), min(c[-1].images_seen for c in some)
        fewest = min(some, key=len)
        grid = sorted({point.images_seen for point in fewest if first <= point.images_seen <= last} | {last})
        return [(x, tuple(_at(curve, x) for curve in curves)) for x in _thinned(grid, most) if x >= first]

    def at_end(self) -> Standing:
        """Where the runs stand at their last evaluation."""
        return Standing(None, tuple(run.curve[-1].ap if run.curve else None for run in self.runs))

    def at_equal(self) -> Standing | None:
        """Where they stand after as many images as all of them have seen; None where their curves do not meet."""
        points = self.points()
        return Standing(*points[-1]) if points else None

    @property
    def ended_alike(self) -> bool:
        """Whether all curves that there are end after equally many images."""
        return len({run.curve[-1].images_seen for run in self.runs if run.curve}) == 1

    def verdict(self) -> list[str]:
        """Who is ahead, at the end and after as many images as all have seen: one sentence where that is the same."""
        end, equal = self.at_end(), self.at_equal()
        if equal is None:
            return [self._sentence("At the end", end)]
        if self.ended_alike:
            return [self._sentence(f"At the end, after {equal.images_seen} images each", end)]
        after = f"After {equal.images_seen} images each"
        return [self._sentence("At the end", end), self._sentence(after, equal)]

    def _sentence(self, where: str, standing: Standing) -> str:
        metric = self.runs[0].record["metric"].partition(" (")[0].upper()
        if len(standing.order) < 2:
            return f"Fewer than two of the runs were evaluated: no {metric} is ahead of another"
        one, two = standing.order[:2]
        high, next_ = standing.ap[one], standing.ap[two]
        if standing.first is None:
            return f"{where}, {letter(one)} and {letter(two)} have the same {metric}, {high:.4f}"
        return f"{where}, {letter(one)} has the highest {metric}, {high:.4f}: {high - next_:.4f} above {letter(two)}"

    def to_json(self) -> dict[str, Any]:
        """Plain values for one line of JSON (docs/contracts.md)."""
        return {
            "schema_version": SCHEMA_VERSION,
            "axis": self.runs[0].record["axis"],
            "metric": self.runs[0].record["metric"],
            "runs": dict(zip(self._keys, self.labels, strict=True)),
            **{key: _summary(run) for key, run in zip(self._keys, self.runs, strict=True)},
            "warnings": list(self.warnings),
            "given": {name: self._keyed(values) for name, values in self.given.items()},
            "computed": {name: self._keyed(values) for name, values in self.computed.items()},
            "measured": {name: self._with_difference(values) for name, values in self.measured.items()},
            "points": [{"images_seen": x, **self._with_difference(values)} for x, values in self.points()],
        }

    @property
    def _keys(self) -> list[str]:
        return [name.lower() for name in self.letters]

    def _keyed(self, values: Values) -> dict[str, Any]:
        return dict(zip(self._keys, values, strict=True))

    def _with_difference(self, values: Values) -> dict[str, Any]:
        more = {"difference": difference(values)} if len(self.runs) == 2 else {}
        return {**self._keyed(values), **more}

    def __repr__(self) -> str:
        named = ", ".join(f"{a} {label}" for a, label in zip(self.letters, self.labels, strict=True))
        minded = f"; warnings: {len(self.warnings)}" if self.warnings else ""
        return f"<Comparison of {len(self.runs)} runs: {named}. {'. '.join(self.verdict())}{minded}; print it for the tables>"

    def _repr_html_(self) -> str:
        """The page in a frame, for notebooks."""
        from visiontrain.record.report.comparison import framed_page

        return framed_page(self)

    def __str__(self) -> str:
        from visiontrain.record.compare_text import as_text

        return as_text(self)


def compare(*folders: str | Path) -> Comparison:
    """Put two or more run folders side by side.

    Raises:
        ConfigError: fewer than two, one is no run folder or was written by another version, or their axes or metrics differ.
    """
    if len(folders) < 2:
        raise ConfigError(
            "two or more run folders are needed, for example compare('runs/train/run', 'runs/train/run2')"
        )
    runs = tuple(read_run(folder) for folder in folders)
    same_yardstick(runs)
    given = [run.record["given"]["settings"] for run in runs]
    computed = [dict(flat(run.record["computed"])) for run in runs]
    warnings = tuple(warnings_of(runs, given, computed))
    measured = side_by_side([dict(_figures(run)) for run in runs])
    return Comparison(runs, warnings, _differing(given), _differing(computed), measured)


def difference(values: Values) -> float | None:
    """The second minus the first of two numbers; of anything else there is none."""
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return numbers[1] - numbers[0] if len(numbers) == len(values) == 2 else None


def differ(values: Sequence[Any]) -> bool:
    """Whether they are not all equal."""
    return any(value != values[0] for value in values)


def side_by_side(sections: Sequence[Mapping[str, Any]]) -> dict[str, Values]:
    """Name -> the values of all, of flat sections."""
    names = dict.fromkeys(name for section in sections for name in section)
    return {name: tuple(section.get(name) for section in sections) for name in names}


def _differing(sections: Sequence[Mapping[str, Any]]) -> dict[str, Values]:
    return {name: values for name, values in side_by_side(sections).items() if differ(values)}


def flat(section: Mapping[str, Any], parent: str = "") -> Iterator[tuple[str, Any]]:
    """(name, value) of a section of run.json, maps in it with dots in their names."""
    for key, value in section.items():
        name = f"{parent}{key}"
        if isinstance(value, dict) and name not in LEFT_OUT:
            yield from flat(value, f"{name}.")
        elif name not in LEFT_OUT:
            yield name, value


def _figures(run: RunFolder) -> Iterator[tuple[str, Any]]:
    """What is compared of the measured section, flat."""
    measured = run.measured
    for which in ("best", "last"):
        yield from flat(measured["metrics"][which], f"{which}.")
    for name in ("epochs", "images_seen", "targets_seen", "micro_batches", "updates_attempted", "updates_applied"):
        yield name, measured[name]
    yield "updates_skipped", measured["updates_attempted"] - measured["updates_applied"]
    yield from flat(measured["skipped"], "skipped.")
    yield "shrinks", len(measured["shrinks"])
    yield "clipped_share", measured["clipped"] / max(measured["updates_applied"], 1)
    yield "images_per_second", measured["images_per_second"]
    yield "seconds", measured["seconds"]
    yield "memory_peak", measured["memory"]["peak"]
    yield "memory_of", measured["memory"].get("of")
    yield "device", measured["device"]["name"]
    yield from flat(measured["versions"], "versions.")


def _summary(run: RunFolder) -> dict[str, Any]:
    return {
        "folder": str(run.folder),
        "outcome": run.record["outcome"],
        "images_planned": run.record["computed"]["images_planned"],
        "curve": [{"epoch": p.epoch, "images_seen": p.images_seen, "ap": p.ap} for p in run.curve],
    }


def _at(curve: Sequence[Point], images_seen: int) -> float | None:
    return curve[bisect_right([p.images_seen for p in curve], images_seen) - 1].ap if curve else None


def _thinned(grid: Sequence[int], most: int) -> list[int]:
    """At most ``most`` of them, evenly, the last one among them."""
    if len(grid) <= most:
        return list(grid)
    return [grid[round((i + 1) * len(grid) / most) - 1] for i in range(most)]
