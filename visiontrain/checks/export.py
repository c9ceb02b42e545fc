"""Whether the model can be exported, before the first epoch: it is, into the user's cache, compared, and removed."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from visiontrain.checks.rows import FAIL, PASS, Row
from visiontrain.config.schema import ExportConfig, TrainConfig
from visiontrain.config.sizes import EXPORTED
from visiontrain.errors import ConfigError, ExportError
from visiontrain.exporters.export import metadata_of, pictures_of, write_compared
from visiontrain.models.detector import Detector
from visiontrain.paths import cache_dir
from visiontrain.training.start import model_with, normalisation_of

PICTURES = 2


def export_rows(formats: str, settings: TrainConfig, class_names: Sequence[str], ranks: int) -> list[Row]:
    """A row for each format, of the model as training would begin it.

    Args:
        formats: divided by commas; none for "".
        settings: of the training.
        class_names: of the data.
        ranks: that would train.

    Raises:
        WeightsError: the checkpoint to start from cannot be used.
    """
    if not formats:
        return []
    model = model_with(settings, class_names, normalisation_of(settings, ranks=ranks).norm).eval()
    return [_row(format.strip(), model, settings) for format in formats.split(",")]


def _row(format: str, model: Detector, settings: TrainConfig) -> Row:
    config = ExportConfig(model=settings.model, format=format, imgsz=settings.imgsz)
    metadata = metadata_of(config, model, {}, settings.imgsz)
    pictures, _ = pictures_of(settings.data, PICTURES)
    cache_dir().mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".exporting-", dir=cache_dir()) as folder:
            parity = write_compared(format, model, metadata, Path(folder) / f"trial{EXPORTED[format]}", pictures)
    except (ConfigError, ExportError) as error:
        return Row(f"export to {format}", FAIL, "failed", str(error), "train another model, or use another format")
    value = f"{parity.all_boxes:.1e} px"
    return Row(
        f"export to {format}", PASS, value, f"{model.name} was exported; {parity.sentence()}", "", parity.all_boxes
    )
