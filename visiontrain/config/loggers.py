"""The loggers that ``loggers=`` knows. A new one is a class in visiontrain/record/sinks/ and a line here."""

from __future__ import annotations

import difflib

# Name, as typed and as the extra is called that installs what it needs -> where its class is. Read only where it is asked for.
LOGGERS = {
    "tensorboard": "visiontrain.record.sinks.tensorboard.TensorBoard",
    "wandb": "visiontrain.record.sinks.wandb.WeightsAndBiases",
    "mlflow": "visiontrain.record.sinks.mlflow.MLflow",
}


def names_in(value: str) -> list[str]:
    """The names of a list such as ``tensorboard,wandb``."""
    return [word.strip() for word in value.split(",") if word.strip()]


def loggers_problem(value: str) -> str:
    """What is wrong with such a list, or ""."""
    names = names_in(value)
    for name in names:
        if name not in LOGGERS:
            near = difflib.get_close_matches(name.lower(), LOGGERS, n=1)
            return f"no logger {name!r}; {f'did you mean {near[0]!r}? ' if near else ''}There are {', '.join(LOGGERS)}"
    return "" if len(set(names)) == len(names) else "names a logger twice"
