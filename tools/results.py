"""What the searches have in common: a run's result as one row, stored in its folder, and the rows of a project."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from visiontrain.config.schema import TrainConfig
from visiontrain.errors import ConfigError, VisionTrainError
from visiontrain.record.files import write_json
from visiontrain.training.run import RunResult


def store(
    result: RunResult, file: str, config: TrainConfig, settings: Sequence[str], own: Mapping[str, Any]
) -> dict[str, Any]:
    """Write ``file`` into the run's folder: ``own``, these settings, and how the run ended."""
    measured = json.loads((result.folder / "run.json").read_text(encoding="utf-8"))["measured"]
    last = measured["metrics"]["last"]
    row = {
        **own,
        **{name: config.leaves()[name] for name in settings},
        "ap": result.metrics["ap"],
        "ap50": result.metrics["ap50"],
        "best_epoch": measured["metrics"]["best"]["epoch"],
        "last_ap": last["ap"],
        "last_ap50": last["ap50"],
        "seconds": measured["seconds"],
        "folder": str(result.folder),
    }
    write_json(result.folder / file, row)
    return row


def rows_of(project: Path, file: str) -> list[dict[str, Any]]:
    """What ``store`` wrote into the runs of a project.

    Raises:
        ConfigError: nothing.
    """
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(project.glob(f"*/{file}"))]
    if not rows:
        raise ConfigError(f"table={project}: no */{file} there; train with project={project} first")
    return rows


def answer(words: Sequence[str], run: Callable[[Sequence[str]], dict[str, Any]], table: Callable[[Path], str]) -> None:
    """Print a table for ``table=FOLDER``, else train and print one line of JSON."""
    if len(words) == 1 and words[0].startswith("table="):
        print(table(Path(words[0].removeprefix("table="))))
    else:
        print(json.dumps(run(words)), flush=True)


def exit_with(main: Callable[[Sequence[str]], None]) -> None:
    """Run a tool on this process's words; what people can mend ends it without a traceback."""
    try:
        main(sys.argv[1:])
    except VisionTrainError as error:
        sys.exit(f"{error}")
