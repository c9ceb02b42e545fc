from __future__ import annotations

import torch
from checks.toys import ToyDetector, pictures, toy_loss

from visiontrain.checks.room import bytes_per_image, free_bytes
from visiontrain.training.precision import Precision

CPU = torch.device("cpu")


def system(tmp_path, **files):
    for name, text in files.items():
        path = tmp_path / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


MEMINFO = "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\n"


def test_the_machine_tells_what_is_available(tmp_path):
    assert free_bytes(CPU, system(tmp_path, proc__meminfo=MEMINFO)) == 8_000_000 * 1024


def test_a_container_has_what_its_limit_leaves_and_gets_its_file_cache_back(tmp_path):
    folder = "sys__fs__cgroup__"
    files = {"memory_dot_max": "3000000000\n", "memory_dot_current": "2500000000\n"}
    files["memory_dot_stat"] = "anon 500000000\ninactive_file 1000000000\n"
    root = system(tmp_path, proc__meminfo=MEMINFO, **{folder + name: text for name, text in files.items()})
    assert free_bytes(CPU, root) == 1_500_000_000


def test_a_container_without_limit_has_what_the_machine_has(tmp_path):
    root = system(tmp_path, proc__meminfo=MEMINFO, sys__fs__cgroup__memory_dot_max="max\n")
    assert free_bytes(CPU, root) == 8_000_000 * 1024


def test_where_nothing_is_told_half_of_the_memory_is_taken(tmp_path):
    assert free_bytes(CPU, tmp_path) > 0


def test_an_image_needs_what_the_graph_keeps_and_parameters_are_not_its():
    model = ToyDetector().train()
    of_two, of_four = (bytes_per_image(model, toy_loss, pictures().slice(0, n), Precision(CPU)) for n in (2, 4))
    pixels = 3 * 32 * 32 * 4  # the input itself is kept for the gradient of the first convolution
    assert pixels < of_four < 10 * pixels
    assert abs(of_two - of_four) < pixels
    assert all(p.grad is None for p in model.parameters())
