"""What to do about BatchNorm at small micro-batches: train with one policy, and lay many runs side by side.

    python tools/norm_policies.py data=PATH policy=batch|momentum|reestimate|momentum+reestimate|group|frozen
                                  [nominal=N] [reestimate=N] [reestimate_batch=16] [any training setting]
    python tools/norm_policies.py table=FOLDER

``momentum`` gives the running statistics the horizon, in images, that they have with batches of ``nominal`` images (nbs
where not given); ``reestimate`` measures the statistics of the averaged weights over ``reestimate`` training images (256, or
all where there are fewer) before each evaluation; ``group`` and ``frozen`` are the settings of that name, and frozen
needs model=path/best.pt. A run ends with one line of JSON, which also stands in its folder; ``table`` reads those of a
project. The settings of the search are ``nbs=64 imgsz=160 epochs=20`` unless others are given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.results import answer, exit_with, rows_of, store
from visiontrain.config.parse import parse_words
from visiontrain.config.schema import TrainConfig
from visiontrain.errors import ConfigError
from visiontrain.training.run import train
from visiontrain.training.statistics import BatchNormPolicy

SEARCH = {"nbs": "64", "imgsz": "160", "epochs": "20", "plots": "false"}
NUMBERS = {"nominal": 0, "reestimate": 256, "reestimate_batch": 16}
POLICIES = ("batch", "momentum", "reestimate", "momentum+reestimate", "group", "frozen")
USAGE = f"python tools/norm_policies.py data=PATH policy={'|'.join(POLICIES)} [setting=value ...], or table=FOLDER"
RESULT = "norm_policy.json"
AXES = (
    "imgsz",
    "epochs",
    "nbs",
    "batch",
    "policy",
    "nominal",
    "reestimate",
)  # what a row of the table is the mean over


@dataclass(frozen=True)
class Asked:
    """A policy by name, its numbers, and the training settings with the normalisation that it means."""

    policy: str
    numbers: dict[str, int]
    config: TrainConfig

    @property
    def statistics(self) -> BatchNormPolicy:
        numbers, parts = self.numbers, self.policy.split("+")
        return BatchNormPolicy(
            nominal_images=(numbers["nominal"] or self.config.nbs) if "momentum" in parts else 0,
            reestimate_images=numbers["reestimate"] if "reestimate" in parts else 0,
            reestimate_batch=numbers["reestimate_batch"],
        )


def read_words(words: Sequence[str]) -> Asked:
    given = dict(word.split("=", 1) for word in words if "=" in word)
    policy = given.pop("policy", "")
    own = {name: given.pop(name) for name in NUMBERS if name in given}
    wrong = [f"{name}={value}" for name, value in own.items() if not (value.isdecimal() and int(value))]
    if policy not in POLICIES or "norm" in given or wrong or len(given) + len(own) + 1 != len(words):
        raise ConfigError(f"{' '.join(words)}: not understood {' '.join(wrong)}\nusage: {USAGE}")
    norm = policy if policy in ("group", "frozen") else "batch"
    settings = {**SEARCH, **given, "norm": norm}
    config = parse_words(TrainConfig, [f"{name}={value}" for name, value in settings.items()])
    return Asked(policy, {**NUMBERS, **{name: int(value) for name, value in own.items()}}, config)


def run(asked: Asked) -> dict[str, Any]:
    """Train; the result as it is printed and stored."""
    config, statistics = asked.config, asked.statistics
    result = train(config, statistics=statistics)
    own = {
        "policy": asked.policy,
        "nominal": statistics.nominal_images,
        "reestimate": statistics.reestimate_images,
    }
    return store(result, RESULT, config, ("data", "batch", "nbs", "imgsz", "epochs", "seed"), own)


def table(folder: Path) -> str:
    """A markdown table of all runs of a project: one row per configuration, the mean over its seeds and their range."""
    rows = rows_of(folder, RESULT)
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        alike[tuple(row[axis] for axis in AXES)].append(row)
    lines = [f"| {' | '.join(AXES)} | seeds | AP | AP50 | last AP |", "|" + "---|" * (len(AXES) + 4)]
    for key in sorted(alike):
        scores = [_range([row[name] for row in alike[key]]) for name in ("ap", "ap50", "last_ap")]
        seeds = ", ".join(str(row["seed"]) for row in sorted(alike[key], key=lambda row: row["seed"]))
        lines.append(f"| {' | '.join(map(str, key))} | {seeds} | {' | '.join(scores)} |")
    return "\n".join(lines)


def _range(values: Sequence[float]) -> str:
    mean = f"{sum(values) / len(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.3f} to {max(values):.3f})"


def main(words: Sequence[str]) -> None:
    answer(words, lambda given: run(read_words(given)), table)


if __name__ == "__main__":
    exit_with(main)
