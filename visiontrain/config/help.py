"""The help of the command line, derived from the settings; what does not work yet is not listed."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from visiontrain.config.build import unknown
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
from visiontrain.config.values import Leaf, interval, leaves_of, one_of, show, takes
from visiontrain.errors import ConfigError
from visiontrain.terminal import USUAL, Look

VERBS: dict[str, tuple[type | None, str, str]] = {
    "train": (
        TrainConfig,
        "train a detector",
        "visiontrain train data=shapes model=yolov8n epochs=20 imgsz=320 batch=8",
    ),
    "val": (
        ValConfig,
        "score a checkpoint on a split",
        "visiontrain val model=runs/train/run/weights/best.pt split=val",
    ),
    "predict": (
        PredictConfig,
        "find objects in pictures and videos",
        "visiontrain predict model=runs/train/run/weights/best.pt source=pictures",
    ),
    "export": (
        ExportConfig,
        "write a checkpoint as ONNX, TorchScript or OpenVINO, compared with it",
        "visiontrain export model=runs/train/run/weights/best.pt format=onnx",
    ),
    "plan": (PlanConfig, "print the arithmetic of windows and updates", "visiontrain plan batch=8 images=118287"),
    "check": (
        CheckConfig,
        "find what is wrong in data and settings before a training",
        "visiontrain check data=shapes imgsz=160 batch=4",
    ),
    "convert": (
        ConvertConfig,
        "write a data set in another label format, or a checkpoint as one of ours",
        "visiontrain convert data=shapes format=coco out=shapes_coco",
    ),
    "compare": (
        CompareConfig,
        "two or more runs side by side",
        "visiontrain compare runs/train/run runs/train/run2 out=comparison.html",
    ),
    "help": (None, "this text, or that of a verb, or of a setting", "visiontrain help train"),
    "completion": (
        None,
        "print what completes words with the Tab key in bash or zsh",
        'eval "$(visiontrain completion bash)"',
    ),
    "version": (None, "the version", "visiontrain version"),
}
COMPLETION = {
    "bash": (
        "In bash (4 or later), for this shell, or for every one that starts with bash-completion installed:",
        '  eval "$(visiontrain completion bash)"',
        "  mkdir -p ~/.local/share/bash-completion/completions",
        "  visiontrain completion bash > ~/.local/share/bash-completion/completions/visiontrain",
    ),
    "zsh": (
        "In zsh, for this shell, or for every one by the same line in ~/.zshrc, after compinit:",
        '  eval "$(visiontrain completion zsh)"',
    ),
}
FOLDED = Look(columns=USUAL)
CODES = "Exit codes: 0 done, 1 failed, 2 usage or settings, 3 data, 4 weights, 5 memory, 130 interrupted."
# Where settings that stand in no group of their own are shown, in this order; the groups come after them.
PLACES: dict[str, tuple[str, ...]] = {
    "Used most": (
        *("data", "model", "source", "split", "epochs", "imgsz", "batch", "nbs", "device", "workers"),
        *("patience", "resume"),
    ),
    "Window and weights": (
        *("last_window", "norm", "freeze", "auxiliary", "backbone_weights", "sha256", "reduce"),
        *("checkpoint_blocks", "amp"),
    ),
    "Run": (*("val", "seed", "deterministic", "cache", "download", "timeout", "max_restarts", "preflight", "export"),),
    "Ways of looking": ("augment", "tile", "tile_overlap", "vid_stride", "half"),
    "Detections": ("conf", "iou", "max_det", "nms", "agnostic", "classes", "single_cls", "predictions"),
    "Output": ("project", "name", "exist_ok", "plots", "save_json", "format"),
}
TIED = "\xa0"  # a blank at which no line ends: a short range stays in one piece
FEW = 14  # settings that need no sections
# Pages that say more than the help of a setting can.
PAGES: dict[str, tuple[str, ...]] = {
    "docs/accumulation.md": ("batch", "nbs", "last_window", "norm", "checkpoint_blocks"),
    "docs/data.md": (
        *("data", "download", "fraction", "classes", "single_cls", "balance", "balance_threshold", "class_weights"),
        *("rect", "multi_scale", "imgsz", "cache", "albumentations", "augment_device", "partners", "mosaic", "mixup"),
        *("close_mosaic", "degrees", "shear", "perspective", "scale", "hsv_h", "fliplr"),
    ),
    "docs/long_runs.md": (
        *("epochs", "resume", "patience", "val_period", "val_updates", "val_minutes", "fitness", "best_after"),
        *("average_best", "save_period", "save_minutes", "save_updates"),
    ),
    "docs/distributed.md": ("device", "reduce", "timeout", "max_restarts"),
    "docs/scale.md": ("lr_scale",),
    "docs/models.md": ("model", "weights", "freeze", "backbone_weights", "sha256", "optimizer", "layer_decay"),
    "docs/evaluation.md": ("max_det", "predictions", "split"),
    "docs/predict.md": ("source", "tile", "tile_overlap", "vid_stride", "augment", "save_txt", "save_crop"),
    "docs/export.md": ("dynamic", "nms", "pictures"),
}


def text_for(words: Sequence[str], look: Look = FOLDED) -> str:
    """What ``visiontrain help WORD ...`` prints: the overview, a verb, settings by name, or those that speak of the words.

    Raises:
        ConfigError: there is nothing of that name, and nothing speaks of it.
    """
    if not words:
        return overview(look)
    verb = words[0] if words[0] in VERBS else ""
    names = [word.lstrip("-").partition("=")[0].replace("-", "_") for word in words[bool(verb) :]]
    if not names:
        return page(verb, look)
    entries = _entries([verb] if verb else list(VERBS))
    there = {entry.leaf.name for entry in entries}
    if there.issuperset(names):
        return "\n\n".join(_about(name, entries, look) for name in dict.fromkeys(names))
    found = [entry for entry in entries if all(word.lower() in entry.words for word in names)]
    if not found:
        raise ConfigError(_nothing(verb, names))
    what = f"{' '.join(names)}: {len(found)} settings{f' of {verb}' if verb else ''} speak of it"
    return "\n".join([what, "", *_listed(found, look, verbs=not verb)])


def overview(look: Look = FOLDED) -> str:
    """The page that ``visiontrain help`` prints."""
    verbs = {verb: what for verb, (_, what, _) in VERBS.items()}
    further = {
        "visiontrain help VERB": "its settings, each with default and range",
        "visiontrain help NAME": "one setting; of any other word: the settings that speak of it",
        "visiontrain completion bash": "what completes words with the Tab key, in bash; likewise zsh",
        "cfg=file.yaml": "read settings from a file; words on the command line go over it",
    }
    examples = [f"  {example}" for settings, _, example in VERBS.values() if settings]
    return "\n".join(
        [
            "visiontrain VERB name=value ...",
            *("", look.paint("Verbs", "bold"), *_rows(verbs, look)),
            *("", look.paint("For example", "bold"), *examples),
            *("", look.paint("Further", "bold"), *_rows(further, look)),
            *("", *look.fold(CODES)),
        ]
    )


def page(verb: str, look: Look = FOLDED) -> str:
    """The page of one verb: its settings, those that people use first, each with default, meaning and range."""
    settings, what, example = VERBS[verb]
    if settings is None:
        how = [line for shell in COMPLETION.values() for line in ("", *shell)] if verb == "completion" else []
        return "\n".join([f"visiontrain {verb}: {what}", f"For example: {example}", *how])
    lines = [*look.fold(f"visiontrain {verb} name=value ...: {what}"), f"For example: {example}"]
    head = max(len(_typed(leaf)) for leaf in leaves_of(settings).values())
    for title, leaves in sections(settings).items():
        lines += ["", look.paint(title, "bold"), *_listed([Entry(leaf, (verb,)) for leaf in leaves], look, head)]
    lines += ["", *look.fold("cfg=file.yaml reads any of these from a file of 'name: value' lines; words go over it.")]
    owners = [other for other in VERBS if verb in _leaves(other)]
    if owners:
        also = f"{verb} is a setting of {' and '.join(owners)} too: visiontrain help {owners[0]} {verb}"
        lines += look.fold(also)
    return "\n".join(lines)


def sections(settings: type) -> dict[str, list[Leaf]]:
    """The settings of a class by the title they are shown under; each once."""
    leaves = leaves_of(settings)
    if len(leaves) <= FEW:
        return {"Settings": list(leaves.values())}
    alone = {name: leaf for name, leaf in leaves.items() if not leaf.path}
    placed = {title: [alone.pop(name) for name in names if name in alone] for title, names in PLACES.items()}
    found = {title: listed for title, listed in (*placed.items(), ("More", list(alone.values()))) if listed}
    for leaf in leaves.values():
        if leaf.path:
            found.setdefault(leaf.title, []).append(leaf)
    return found


@dataclass(frozen=True, slots=True)
class Entry:
    """A setting with the verbs in which it is this one: ``conf`` has another default in predict than in val."""

    leaf: Leaf
    verbs: tuple[str, ...]

    @property
    def words(self) -> str:
        """What a search looks through."""
        return f"{self.leaf.name} {self.leaf.help} {takes(self.leaf)}".lower()


def _entries(verbs: Sequence[str]) -> list[Entry]:
    found: dict[tuple[str, ...], Entry] = {}
    for verb in verbs:
        for leaf in _leaves(verb).values():
            key = (_typed(leaf), leaf.help, takes(leaf))
            found[key] = Entry(leaf, (*found[key].verbs, verb) if key in found else (verb,))
    return list(found.values())


def _leaves(verb: str) -> Mapping[str, Leaf]:
    settings = VERBS[verb][0]
    return leaves_of(settings) if settings else {}


def _about(name: str, entries: Sequence[Entry], look: Look) -> str:
    """All that is known of a setting, for each group of verbs in which it is the same."""
    lines = []
    for entry in entries:
        if entry.leaf.name == name:
            lines += [look.paint(_typed(entry.leaf), "cyan") + f"  in {', '.join(entry.verbs)}"]
            lines += look.fold(entry.leaf.help, "  ", "  ")
            lines += look.fold(f"takes {takes(entry.leaf)}", "  ", "    ")
    pages = [page for page, names in PAGES.items() if name in names]
    return "\n".join([*lines, *([f"  more in {' and '.join(pages)}"] if pages else [])])


def _listed(entries: Sequence[Entry], look: Look, head: int = 0, verbs: bool = False) -> list[str]:
    """A setting and its default on the left, what it means on the right; below it where the terminal is narrow."""
    left = 2 + (head or max(len(_typed(entry.leaf)) for entry in entries)) + 2
    beside = look.columns - left >= 36
    lines = []
    for entry in entries:
        typed, indent = f"  {_typed(entry.leaf)}", " " * (left if beside else 6)
        allowed = _range(entry.leaf) + (f" ({', '.join(entry.verbs)})" if verbs else "")
        folded = look.fold(f"{entry.leaf.help}{allowed}", f"{typed:<{left}}" if beside else indent, indent)
        lines += ([] if beside else [typed]) + folded
    return [_painted(line.replace(TIED, " "), look) for line in lines]


def _painted(line: str, look: Look) -> str:
    """A line of a list with the name at its left in colour."""
    name, equals, rest = line.partition("=")
    return f"  {look.paint(name[2:], 'cyan')}{equals}{rest}" if line[2:3].strip() and equals else line


def _rows(rows: Mapping[str, str], look: Look) -> list[str]:
    """Names on the left, what they mean on the right; below where the terminal is narrow."""
    left, lines = 2 + max(map(len, rows)) + 2, []
    for name, text in rows.items():
        first, *more = look.fold(text, " " * left, " " * left)
        if look.columns - left >= 26:
            lines += [f"  {look.paint(name, 'cyan')}{first[2 + len(name) :]}", *more]
        else:
            lines += [f"  {look.paint(name, 'cyan')}", *look.fold(text, " " * 6, " " * 6)]
    return lines


def _range(leaf: Leaf) -> str:
    allowed = one_of(leaf.meta["choices"]) if leaf.meta["choices"] else interval(leaf)
    return f" [{allowed.replace(' ', TIED) if len(allowed) < 32 else allowed}]" if allowed else ""


def _typed(leaf: Leaf) -> str:
    return f"{leaf.name}={show(leaf, leaf.default)}"


def _nothing(verb: str, names: Sequence[str]) -> str:
    """The sentence where nothing was found: a verb that was misspelt, or a setting."""
    settings = VERBS[verb][0] if verb else None
    if not verb and difflib.get_close_matches(names[0], VERBS, n=1):
        return no_verb(names[0])
    return unknown(settings or TrainConfig, names[0])


def no_verb(word: str) -> str:
    """The sentence about a word that is no verb."""
    near = difflib.get_close_matches(word.lower(), VERBS, n=1)
    meant = f"; did you mean {near[0]}?" if near else ";"
    return f"no verb {word!r}{meant} the verbs are {', '.join(VERBS)}"
