from __future__ import annotations

import pytest
import torch

from tools import gpu_check


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device: run tools/gpu_check.py itself")
def test_without_a_device_it_says_that_nothing_was_run(capsys):
    assert gpu_check.main() == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("not run: no CUDA device")
    assert all(name in line for name in gpu_check.CHECKS)


def test_every_check_can_be_called():
    assert all(map(callable, gpu_check.CHECKS.values()))
