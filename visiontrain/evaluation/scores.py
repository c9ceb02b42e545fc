"""How well a split was detected: the numbers, as a table of text, and as one of a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visiontrain import inline
from visiontrain.evaluation.curves import Errors
from visiontrain.evaluation.objects import Objects
from visiontrain.evaluation.scoring import AREAS
from visiontrain.record.events import Curves
from visiontrain.terminal import PLAIN, Look


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation:
    """How well a split was detected.

    ``metrics`` holds plain finite numbers: ap, ap50, ap75 (COCO's, 100 detections), ap_max_det, precision and recall (at
    ``confidence``, where the mean F1 is best), and ap_small, ap_medium, ap_large where there are objects of that
    size. In a split without any label the first six are 0.0 and a notice says so. ``per_class`` maps each class name to precision,
    recall, ap, ap50 (None without labels; such classes are in no mean), instances and images.
    ``found`` are all detections in original pixels, ``worst`` the images with the most errors at confidence 0.25,
    ``seconds`` the time of each stage, ``folder`` where curves, pictures and scores.json were written.
    """

    metrics: dict[str, float]
    per_class: dict[str, dict[str, float | int | None]]
    curves: Curves
    found: Objects
    images: int
    targets: int
    confidence: float
    capped_candidates: int
    non_finite: int
    seconds: dict[str, float]
    worst: tuple[Errors, ...] = ()
    notices: tuple[str, ...] = ()
    folder: Path | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values for one line of JSON; null where there was nothing to measure."""
        sizes = {f"ap_{area}": self.metrics.get(f"ap_{area}") for area in list(AREAS)[1:]}
        return {
            **self.metrics,
            **sizes,
            "confidence": self.confidence,
            "images": self.images,
            "targets": self.targets,
            "per_class": self.per_class,
            "capped_candidates": self.capped_candidates,
            "non_finite": self.non_finite,
            "seconds": self.seconds,
            "notices": list(self.notices),
        }

    def __repr__(self) -> str:
        ap, ap50 = self.metrics["ap"], self.metrics["ap50"]
        return f"Evaluation(AP {ap:.4f}, AP50 {ap50:.4f}, {self.images} images, {self.targets} objects)"

    def _repr_html_(self) -> str:
        head, rows, notes = scores(self)
        return inline.table(head, rows, marked=[0], note=" ".join(notes))


def scores_table(evaluation: Evaluation, look: Look = PLAIN) -> str:
    """The scores as text: all classes together, then each; a dash where a class has no labels."""
    head, rows, notes = scores(evaluation)
    width = max(len(row[0]) for row in [head, *rows])
    table = [look.paint(_line(head, width), "bold"), *(_line(row, width) for row in rows)]
    return "\n".join([*table, *(line for note in notes for line in look.fold(note))])


def scores(evaluation: Evaluation) -> tuple[list[str], list[list[str]], list[str]]:
    """The same in parts: titles, a row for all classes and one for each, and sentences to go with them."""
    metrics = evaluation.metrics
    rows = [_cells("all", {**metrics, "images": evaluation.images, "instances": evaluation.targets})]
    rows += [_cells(name, found) for name, found in evaluation.per_class.items()]
    return ["class", *_COLUMNS], rows, list(_notes(evaluation))


_COLUMNS = {"images": 6, "objects": 7, "precision": 9, "recall": 6, "AP50": 6, "AP": 6}  # and the room they have


def _cells(name: str, found: Mapping[str, float | int | None]) -> list[str]:
    shares = (found[key] for key in ("precision", "recall", "ap50", "ap"))
    return [name, str(found["images"]), str(found["instances"]), *("-" if v is None else f"{v:.4f}" for v in shares)]


def _line(cells: list[str], width: int) -> str:
    numbers = (cell.rjust(room) for cell, room in zip(cells[1:], _COLUMNS.values(), strict=True))
    return "  ".join([cells[0].ljust(width), *numbers])


def _notes(evaluation: Evaluation) -> Iterator[str]:
    metrics = evaluation.metrics
    sizes = {area: metrics[f"ap_{area}"] for area in list(AREAS)[1:] if f"ap_{area}" in metrics}
    if sizes:
        told = ", ".join(f"{area} {ap:.4f}" for area, ap in sizes.items())
        yield f"AP by size of the object: {told} (COCO's limits, 32 x 32 and 96 x 96 pixels of the picture)."
    yield (
        f"AP counts COCO's 100 detections per image; with all of max_det it is {metrics['ap_max_det']:.4f}. "
        f"Precision and recall at confidence {evaluation.confidence:.3f}, where F1 is best."
    )
    # What each stage took for a picture, in the order of the work.
    each = {stage: seconds / max(evaluation.images, 1) * 1e3 for stage, seconds in evaluation.seconds.items()}
    yield "A picture took, in ms: " + ", ".join(f"{stage} {ms:.1f}" for stage, ms in each.items() if ms) + "."
    if evaluation.folder:
        yield f"Saved in {evaluation.folder}"
