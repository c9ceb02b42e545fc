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

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visiontrain.config.parse import parse_words
from visiontrain.config.schema import TrainConfig
from visiontrain.errors import ConfigError, VisionTrainError
from visiontrain.record.files import write_json
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
    measured = json.loads((result.folder / "run.json").read_text(encoding="utf-8"))["measured"]
    last = measured["metrics"]["last"]
    row = {
        "policy": asked.policy,
        "nominal": statistics.nominal_images,
        "reestimate": statistics.reestimate_images,
        **{name: getattr(config, name) for name in ("data", "batch", "nbs", "imgsz", "epochs", "seed")},
        "ap": result.metrics["ap"],
        "ap50": result.metrics["ap50"],
        "best_epoch": measured["metrics"]["best"]["epoch"],
        "last_ap": last["ap"],
        "last_ap50": last["ap50"],
        "seconds": measured["seconds"],
        "folder": str(result.folder),
    }
    write_json(result.folder / RESULT, row)
    return row


def table(folder: Path) -> str:
    """A markdown table of all runs of a project: one row per configuration, the mean over its seeds and their range."""
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob(f"*/{RESULT}"))]
    if not rows:
        raise ConfigError(f"table={folder}: no */{RESULT} there; train with policy=... project={folder} first")
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
    if len(words) == 1 and words[0].startswith("table="):
        print(table(Path(words[0].removeprefix("table="))))
    else:
        print(json.dumps(run(read_words(words))), flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except VisionTrainError as error:
        sys.exit(f"{error}")
