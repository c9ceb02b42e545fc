from __future__ import annotations

import numpy as np

from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.evaluation.objects import Objects
from visiontrain.evaluation.pictures import labels_and_predictions


def test_labels_are_those_of_the_split_and_predictions_those_that_are_sure_enough(tiny):
    index = read_split(load_description(str(tiny)), "val")
    boxes = np.array([[1.0, 2, 30, 40], [5, 6, 7, 8], [3, 4, 20, 25]])
    found = Objects(np.array([1, 1, 0]), boxes, np.array([1, 0, 1]), np.array([0.9, 0.24, 0.25]))
    labels, predictions = labels_and_predictions(index, found)
    assert (labels.name, predictions.name) == ("val_labels", "val_predictions")
    assert labels.scores is None
    for i in range(len(index)):
        assert np.array_equal(labels.boxes[i], index.pixel_boxes(i))
        assert np.array_equal(labels.classes[i], index.classes(i))
    assert [b.tolist() for b in predictions.boxes[:2]] == [[[3, 4, 20, 25]], [[1, 2, 30, 40]]]
    assert [c.tolist() for c in predictions.classes[:2]] == [[1], [1]]
    assert [s.tolist() for s in predictions.scores[:2]] == [[0.25], [0.9]]
    assert not any(map(len, predictions.boxes[2:]))
