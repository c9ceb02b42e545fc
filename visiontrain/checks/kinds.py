"""Every kind of finding in data: how serious it is, what it is called, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """``fault``: something is wrong and makes `check` fail; else it is a note, for a person to judge."""

    fault: bool
    title: str
    remedy: str


_RETYPE = "correct the row, or delete it; training leaves it out"
_LEAK = "keep it in one of the two: scores on pictures that were trained on say nothing"

# In the order in which they are shown.
KINDS: dict[str, Kind] = {
    "split_unusable": Kind(
        True, "splits that cannot be used", "put right what the message says; nothing can be trained"
    ),
    "class_unknown": Kind(
        True, "rows of a class that names does not have", "correct the class, or add it to names; training stops here"
    ),
    "labels_unreadable": Kind(
        True,
        "label files that cannot be read",
        "save the file anew; training stops here, since its objects are unknown",
    ),
    "row_columns": Kind(True, "rows with a wrong number of columns", _RETYPE),
    "row_number": Kind(True, "rows that are not all numbers", _RETYPE),
    "row_size": Kind(True, "boxes without width or height", _RETYPE),
    "row_inverted": Kind(
        True, "boxes whose corners stand in the wrong order", "nothing: they are taken in the right one"
    ),
    "row_outside": Kind(
        True, "boxes that reach out of the picture", "draw the box inside its picture; YOLO rows are fractions of it"
    ),
    "row_duplicate": Kind(True, "rows that stand twice", "delete one of the two; training leaves the second out"),
    "box_twice": Kind(
        True, "objects that are probably annotated twice", "look at both lines; delete one if it is one object"
    ),
    "picture_missing": Kind(True, "pictures that are listed and not there", "bring it back, or take it off the list"),
    "picture_unreadable": Kind(True, "pictures that cannot be read", "save it anew, or take it out of the split"),
    "picture_truncated": Kind(
        True,
        "pictures whose file ends early",
        "copy it again from its source",
    ),
    "picture_too_large": Kind(
        True, "pictures that are too large to be decoded", "cut it into tiles, or save it smaller"
    ),
    "picture_in_both": Kind(True, "pictures that are in two splits", _LEAK),
    "picture_nearly_in_both": Kind(True, "pictures that are nearly the same as one of another split", _LEAK),
    "size_differs": Kind(
        True,
        "pictures that have another size than their labels say",
        "was it resized or turned after it was labelled? Bring the labelled one back, or correct the labels",
    ),
    "labels_without_picture": Kind(True, "labels without a picture", "bring the picture back, or delete the labels"),
    "labels_in_two_places": Kind(
        True, "label files of pictures that have another", "delete the one that is not meant; labels/ goes before"
    ),
    "class_without_boxes": Kind(
        False, "classes without a box", "label some, or take the class out of names; without val boxes it has no AP"
    ),
    "box_vanishes": Kind(
        False, "boxes that vanish at this imgsz", "train at a larger imgsz, or live with not finding these objects"
    ),
    "picture_dark": Kind(
        False, "pictures that are nearly black", "12 bits stored in 16? Multiply by 16 and save it anew, or leave it so"
    ),
    "row_clipped": Kind(False, "boxes a little over the border", "nothing: training clips them"),
    "picture_twice": Kind(False, "pictures that are in a split twice", "keep one, unless you want it to count twice"),
    "picture_nearly_twice": Kind(
        False, "pictures nearly the same as one of the same split", "frames of one film? Keep those that differ"
    ),
    "picture_without_labels": Kind(
        False,
        "pictures without a label file",
        "right for background; else add the file (an empty one says it is meant)",
    ),
    "labels_empty": Kind(False, "empty label files", "right for background; else label the objects"),
    "ignored": Kind(
        False, "objects that are ignored", "nothing: crowd and difficult objects are neither learned nor scored"
    ),
    "format_recognised": Kind(
        False, "formats told by their files", "nothing; format: coco or voc in the description says it for good"
    ),
    "labels_beside": Kind(False, "label files beside their pictures", "nothing: they are read from there"),
    "not_compared": Kind(
        False, "comparisons left out", "nothing: it is told so that silence is not taken for a verdict"
    ),
}
