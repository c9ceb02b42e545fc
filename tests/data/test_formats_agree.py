"""bccd as YOLO text, COCO JSON and Pascal VOC XML: three ways to say the same, so the same training samples."""

from __future__ import annotations

import numpy as np
import pytest

from visiontrain.config.groups import AugmentConfig
from visiontrain.data.convert import convert
from visiontrain.data.dataset import TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split

SAMPLES, IMGSZ = 100, 160
SIX_DIGITS = 5e-4  # pixels: what 640 px lose in YOLO text with six digits


@pytest.fixture(scope="module")
def bccd(shared, tmp_path_factory):
    """Descriptions of the same pictures: as they come, and converted from the COCO JSON."""
    root, here = shared / "data/bccd", tmp_path_factory.mktemp("bccd")
    (here / "coco.yaml").write_text(f"path: {root}\ntrain: instances_train.json\nval: instances_val.json\n")
    (here / "voc.yaml").write_text(
        f"path: {root}\nformat: voc\ntrain: images/train\nval: images/val\nannotations: voc/Annotations\n"
        "names: [RBC, WBC, Platelets]\n"
    )
    files = {"yolo": root / "data.yaml", "coco": here / "coco.yaml", "voc": here / "voc.yaml"}
    for form in ("yolo", "coco", "voc"):
        made = convert(load_description(files["coco"]), form, here / form)
        assert made.counts == {"train": (205, 2804), "val": (87, 1137)} and not made.lost
        files[f"{form} of coco"] = made.description
    return {name: load_description(file) for name, file in files.items()}


def test_the_boxes_are_the_same(bccd):
    for split in ("train", "val"):
        indices = {name: read_split(description, split) for name, description in bccd.items()}
        coco = indices["coco"]
        for index in indices.values():
            np.testing.assert_array_equal(index.all_classes, coco.all_classes)
            np.testing.assert_array_equal(index.sizes, coco.sizes)
            apart = max(np.abs(index.pixel_boxes(i) - coco.pixel_boxes(i)).max() for i in range(len(coco)))
            assert apart == 0 if index is not indices["yolo"] else apart < SIX_DIGITS


def test_the_first_hundred_training_samples_are_the_same(bccd):
    """Bit for bit, but for the boxes of YOLO text, where bccd's own files round to six digits."""
    sets = {
        name: TrainSet(read_split(bccd[name], "train"), IMGSZ, AugmentConfig(), seed=0, epochs=100)
        for name in ("yolo", "coco", "voc", "yolo of coco")  # the others' indices are those of coco, bit for bit
    }
    for position in range(SAMPLES):
        samples = {name: each[0, position] for name, each in sets.items()}
        coco = samples["coco"]
        for name, sample in samples.items():
            np.testing.assert_array_equal(sample.image, coco.image)
            np.testing.assert_array_equal(sample.classes, coco.classes)
            if name == "yolo":
                np.testing.assert_allclose(sample.boxes, coco.boxes, rtol=0, atol=0.01)
            else:
                np.testing.assert_array_equal(sample.boxes, coco.boxes)
