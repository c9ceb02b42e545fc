"""``convert weights=``: a checkpoint of any kind that is read here, as one of ours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from visiontrain.config.sizes import CHECKPOINTS
from visiontrain.errors import ConfigError
from visiontrain.inline import Told
from visiontrain.models.archive import write_archive
from visiontrain.models.safetensors import write_safetensors
from visiontrain.models.weights import licence_sentence, model_of, read_checkpoint
from visiontrain.record.files import plain, write_atomic

# What a checkpoint with finished weights is made of; a run's own state stays behind.
KEPT = ("schema_version", "model", "settings", "given", "data_fingerprint", "versions", "metrics", "epoch")


@dataclass(frozen=True, slots=True, repr=False)
class ConvertedWeights(Told):
    """A finished conversion: the new file, and what was read and told of it."""

    file: Path
    told: tuple[str, ...]

    def sentences(self) -> list[str]:
        """For a person, a line each."""
        return [*self.told, f"written to {self.file}: use it as model={self.file}"]


def convert_weights(source: Path, out: Path) -> ConvertedWeights:
    """Write the weights that ``load_model`` would evaluate, with what is needed to use them.

    Args:
        source: the checkpoint.
        out: a file that is not there yet; its ending says the format.

    Raises:
        ConfigError: ``out`` is there already, cannot be written, or has another ending.
        WeightsError: the checkpoint cannot be read, or its weights do not fit the model.
    """
    if not out.name.endswith(CHECKPOINTS):
        raise ConfigError(f"out={out}: must end in {' or '.join(CHECKPOINTS)}")
    if out.exists() or out.is_symlink():
        raise ConfigError(f"out={out}: is there already, and nothing is written over; give another name")
    content = read_checkpoint(source)
    model = model_of(content, source)
    kept = {key: content[key] for key in KEPT if key in content}
    kept["model"] = {**content["model"], **model.description()}
    _write({**kept, "kind": "model", "weights": model.state_dict()}, out)
    read = f"read {source}: {model.name}, {len(model.class_names)} classes, {model.parameter_count():,} parameters"
    return ConvertedWeights(out, (read, *filter(None, [licence_sentence(model)])))


def _write(content: dict[str, Any], out: Path) -> None:
    def write(file: BinaryIO) -> None:
        if out.suffix == ".safetensors":
            write_safetensors(
                {**plain({k: v for k, v in content.items() if k != "weights"}), "weights": content["weights"]}, file
            )
        else:
            write_archive(content, file)

    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(out, write)
    except OSError as error:
        raise ConfigError(f"out={out}: cannot be written: {error.strerror or error}") from error
