from __future__ import annotations

import torch
from checks.toys import ToyDetector, pictures, toy_loss

from visiontrain.checks.room import bytes_per_image
from visiontrain.training.precision import Precision

CPU = torch.device("cpu")


def test_an_image_needs_what_the_graph_keeps_and_parameters_are_not_its():
    model = ToyDetector().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    of_two, of_four = (bytes_per_image(model, toy_loss, pictures().slice(0, n), Precision(CPU)) for n in (2, 4))
    pixels = 3 * 32 * 32 * 4  # the input itself is kept for the gradient of the first convolution
    assert pixels < of_four < 10 * pixels
    assert abs(of_two - of_four) < pixels
    assert all(p.grad is None for p in model.parameters())
    # Ranks ask with different pictures, and are to stay alike.
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
