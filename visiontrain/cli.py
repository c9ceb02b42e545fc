"""The command ``visiontrain``: words -> verb and settings -> one action; prints errors and sets the exit code."""

from __future__ import annotations

import io
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from typing import TextIO

from visiontrain.config.help import VERBS, no_verb, text_for
from visiontrain.config.parse import parse_words
from visiontrain.config.schema import (
    CheckConfig,
    CompareConfig,
    ConvertConfig,
    ExportConfig,
    PlanConfig,
    PredictConfig,
    TrainConfig,
    ValConfig,
)
from visiontrain.config.values import leaves_of
from visiontrain.errors import ConfigError, VisionTrainError
from visiontrain.place import Place, place
from visiontrain.terminal import Look, colours, columns, look_of, say

_HELP = {"-h", "--help", "help"}
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: words after the program's name; None: those of this process.

    Returns:
        the exit code: 0 done, 1 failed, 2 usage or settings, 3 data, 4 weights, 5 memory, 130 interrupted.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    _tolerate(sys.stdout)
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever read, as head does, has read enough; nothing is left to say at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return VisionTrainError.exit_code
    except VisionTrainError as error:
        _tell(error)
        return error.exit_code
    except KeyboardInterrupt:
        print(_headed("interrupted"), file=sys.stderr)
        return _INTERRUPTED


def _tolerate(stream: TextIO) -> None:
    """Let letters that the stream's encoding lacks appear as escapes: a file's name is no reason to stop a run."""
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="backslashreplace")


def _tell(error: VisionTrainError) -> None:
    """Print an error once: of one that several ranks have, the first tells; one that came before they met, each host."""
    try:
        here = place()
    except ConfigError:
        here = Place()
    teller = error.told_by if error.told_by is not None else here.rank - here.local
    if here.rank == teller:
        who = f"rank {here.rank} ({platform.node()}): " if here.rank else ""
        print(_headed(f"{who}{error}"), file=sys.stderr)


def _headed(text: str) -> str:
    """The lines of an error behind the program's name; on a terminal folded, and those after the first set in."""
    look = look_of(sys.stderr)
    first, *more = text.splitlines() or [""]
    indent = "  " if look.columns else ""
    lines = [look.led("visiontrain: ", "red", first, 2 * indent)]
    return "\n".join([*lines, *(line for text in more for line in look.fold(text, indent, 2 * indent))])


def _run(words: list[str]) -> int:
    if not words or words[0] in _HELP:
        _help([word for word in words[1:] if word not in ("-h", "--help")])
        return 0 if words else ConfigError.exit_code
    if words[0] in ("version", "--version"):
        from visiontrain import __version__

        print(f"visiontrain {__version__}")
        return 0
    verb = _known(words[0])
    if _HELP.intersection(words[1:]):
        settings = VERBS[verb][0]
        _help([verb, *(word for word in words[1:] if settings and word in leaves_of(settings))])
        return 0
    return _ACTIONS[verb](words[1:])


def _help(words: list[str]) -> None:
    print(text_for(words, Look(colours(sys.stdout), columns(sys.stdout))))


def _known(verb: str) -> str:
    if verb in VERBS:
        return verb
    if "=" in verb:
        first = verb.split()[0]
        if first in VERBS:
            raise ConfigError(f"{verb!r}: quotes make one word of several; write visiontrain {verb}")
        raise ConfigError(f"{verb!r}: the verb comes first, for example visiontrain train {verb}")
    raise ConfigError(no_verb(verb))


def _completion(words: list[str]) -> int:
    from visiontrain.config.completion import script

    print(script(" ".join(words)), end="")
    return 0


def _train(words: list[str]) -> int:
    config = parse_words(TrainConfig, words)
    from visiontrain import actions  # torch takes seconds to import; a typo was answered above

    actions.run_training(config)
    return 0


def _val(words: list[str]) -> int:
    config = parse_words(ValConfig, words)
    from visiontrain import actions
    from visiontrain.evaluation.scores import scores_table
    from visiontrain.record.files import plain

    evaluation = actions.run_validation(config)
    if place().rank:  # rank 0 speaks for all
        return 0
    if config.format == "json":
        print(json.dumps(plain(evaluation.to_json()), allow_nan=False))
    else:
        print(scores_table(evaluation, look_of(sys.stdout)))
    return 0


def _predict(words: list[str]) -> int:
    config = parse_words(PredictConfig, words)
    from visiontrain import actions

    for result in actions.run_prediction(config, lines=config.format == "text"):
        if config.format == "json":
            print(json.dumps({"schema_version": 1, **result.row()}, allow_nan=False), flush=True)
    return 0


def _plan(words: list[str]) -> int:
    config = parse_words(PlanConfig, words)
    from visiontrain import actions

    plan = actions.run_plan(config)
    say(*plan.sentences(), "These are counts; they say nothing about the memory of a device, nor about speed.")
    if config.format == "json":
        print(json.dumps({"schema_version": 1, **plan.facts()}, allow_nan=False))
    return 0


def _check(words: list[str]) -> int:
    config = parse_words(CheckConfig, words)
    from visiontrain import actions
    from visiontrain.record.files import plain

    result = actions.run_check(config)
    if config.format == "json" and result.main:
        print(json.dumps(plain(result.to_json()), allow_nan=False))
    return result.exit_code


def _convert(words: list[str]) -> int:
    config = parse_words(ConvertConfig, words)
    from visiontrain import actions

    say(*actions.run_convert(config).sentences())
    return 0


def _export(words: list[str]) -> int:
    config = parse_words(ExportConfig, words)
    from visiontrain import actions

    say(*actions.run_export(config).sentences())
    return 0


def _compare(words: list[str]) -> int:
    config = parse_words(CompareConfig, words)
    from visiontrain import actions
    from visiontrain.record.compare_text import as_text
    from visiontrain.record.files import plain

    comparison = actions.run_compare(config)
    if config.format == "json":
        print(json.dumps(plain(comparison.to_json()), allow_nan=False))
    else:
        print(as_text(comparison, look_of(sys.stdout)))
        if config.out:
            print(f"\n{config.out} is written")
    return 0


_ACTIONS: dict[str, Callable[[list[str]], int]] = {
    "train": _train,
    "val": _val,
    "predict": _predict,
    "plan": _plan,
    "check": _check,
    "convert": _convert,
    "export": _export,
    "compare": _compare,
    "completion": _completion,
}
