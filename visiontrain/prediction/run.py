"""``predict``: a source, a checkpoint, results one after another, and what is written of them."""

from __future__ import annotations

from collections.abc import Generator
from time import perf_counter
from typing import Any

from visiontrain.config.schema import PredictConfig
from visiontrain.errors import ConfigError, DataError
from visiontrain.models.network import Network
from visiontrain.models.weights import licence_sentence, load_network
from visiontrain.prediction.predictor import Predictor
from visiontrain.prediction.results import Results
from visiontrain.prediction.saving import Writer
from visiontrain.prediction.sources import Item, expand, frames
from visiontrain.prediction.telling import Teller, warn
from visiontrain.terminal import say

Loaded = tuple[Network, dict[str, Any]]


def predict(
    config: PredictConfig,
    source: Any = None,
    loaded: Loaded | None = None,
    *,
    lines: bool = False,
    listed: bool = False,
) -> Generator[Results, None, None]:
    """Look at a source; settings, source and checkpoint are checked before this returns.

    Args:
        config: the settings.
        source: what to look at where words cannot say it; None: what the settings say.
        loaded: network and settings of its training, where they are in memory.
        lines: tell on standard output as the command line does.
        listed: all results are kept: a bar on standard error where it takes long, and no camera, which has no end.

    Returns:
        Results in the order of the source, made as they are asked for.

    Raises:
        ConfigError: the settings do not fit the checkpoint, the device or the source.
        DataError: nothing of the source could be read; raised at its end.
        WeightsError: the checkpoint cannot be used.
        OutOfMemory: a single picture does not fit.
    """
    bad = _Bad()
    items = expand(config.source if source is None else source, bad)
    if config.vid_stride > 1 and items and not any(item.moves for item in items):
        raise ConfigError(f"vid_stride={config.vid_stride}: there is no video in this source; leave it out")
    if listed and any(item.kind == "camera" for item in items):
        raise ConfigError("a camera has no end, and a list would never be full: write stream=True and take one by one")
    network, trained = loaded or load_network(config.model)
    predictor = Predictor(network, trained, config, on_shrink=warn)
    about = {"model": config.model, "names": list(network.class_names)}
    writer = Writer(config, items, about)
    if lines:
        say(*filter(None, (licence_sentence(network), network.about_nms)))
    return _run(predictor, items, bad, writer, Teller(items, lines) if lines or listed else None)


def _run(
    predictor: Predictor, items: list[Item], bad: _Bad, writer: Writer, teller: Teller | None
) -> Generator[Results, None, None]:
    """Whatever ends it, what was written until then is whole."""
    count, saving = 0, 0.0
    try:
        for result in predictor.results(frames(items, predictor.config.vid_stride, bad)):
            began = perf_counter()
            writer(result)
            saving += perf_counter() - began
            count += 1
            if teller:
                teller(result)
            yield result
    finally:
        writer.close()
        if teller:
            teller.close()
            if not teller.silent:
                seconds = predictor.seconds | ({"save": saving} if writer.folder else {})
                teller.sum_up(seconds, writer.folder)
    if not count:
        raise DataError("\n  ".join(["nothing could be read:", *(bad.told[:10] or ["the source is empty"])]))


class _Bad:
    """What could not be read: told at once, and kept for the end."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __call__(self, sentence: str) -> None:
        self.told.append(sentence)
        warn(sentence)
