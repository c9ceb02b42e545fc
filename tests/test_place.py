"""Where torchrun and Slurm put a process, read from environments as they set them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from visiontrain.errors import ConfigError
from visiontrain.place import Place, devices_of, first_host, place

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
}
SLURM = {
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
    "SLURM_STEP_NODELIST": "gpu[03-05],cpu1",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
    "SLURM_JOB_ID": "123456",
}


@pytest.mark.parametrize(
    ("environment", "where"),
    [
        ({}, Place()),
        ({"SLURM_JOB_ID": "1", "SLURM_STEP_NUM_TASKS": "1"}, Place()),  # one task, or none: alone
        ({"RANK": "0"}, Place()),
        (TORCHRUN, Place(5, 8, 1, 4, "node0", 29500)),
        ({**TORCHRUN, **SLURM}, Place(5, 8, 1, 4, "node0", 29500)),  # torchrun started by Slurm
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}, Place()),
        (SLURM, Place(5, 7, 1, 2, "gpu03", 20000 + 123456 % 20000, bound=True)),
        ({**SLURM, "SLURM_PROCID": "6", "SLURM_NODEID": "3", "SLURM_LOCALID": "0"},
         Place(6, 7, 0, 1, "gpu03", 20000 + 123456 % 20000, bound=True)),
        ({**SLURM, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4000"}, Place(5, 7, 1, 2, "10.0.0.1", 4000, bound=True)),
        ({"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_JOB_NODELIST": "box"},
         Place(1, 2, 1, 2, "box", 20000, bound=True)),
    ],
)  # fmt: skip
def test_the_place_is_read_from_the_environment(environment, where):
    assert place(environment) == where


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({**TORCHRUN, "RANK": "8"}, "rank 8 of 8"),
        ({**TORCHRUN, "RANK": "-1"}, "rank -1 of 8"),
        ({**TORCHRUN, "LOCAL_RANK": "4"}, "on this host 4 of 4"),
        ({**TORCHRUN, "MASTER_ADDR": ""}, "lacks MASTER_ADDR or MASTER_PORT"),
        ({n: v for n, v in TORCHRUN.items() if n != "MASTER_PORT"}, "lacks MASTER_ADDR or MASTER_PORT"),
        ({**TORCHRUN, "WORLD_SIZE": "two"}, "WORLD_SIZE=two is not a whole number"),
        ({n: v for n, v in SLURM.items() if n != "SLURM_PROCID"}, "SLURM_PROCID=None is not a whole number"),
        ({**SLURM, "SLURM_NODEID": "4"}, "SLURM_NODEID=4 of 4 nodes"),
        ({n: v for n, v in SLURM.items() if n != "SLURM_STEP_NODELIST"}, "lacks MASTER_ADDR"),
    ],
)
def test_an_environment_that_contradicts_itself_is_named(environment, said):
    with pytest.raises(ConfigError, match=said):
        place(environment)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("gpu[03-05,09],cpu1", "gpu03"), ("gpu7", "gpu7"), ("a,b", "a"), ("n[1,3]-x", "n1"), ("", "")],
)
def test_the_first_host_of_a_node_list(nodes, first):
    assert first_host(nodes) == first


def test_devices_are_words():
    assert devices_of("0, 1") == ["0", "1"] and devices_of("auto") == ["auto"]


def test_a_process_whose_launcher_is_killed_is_asked_to_stop():
    rank = (
        "import time; from visiontrain.place import stop_with_launcher; stop_with_launcher(); print('here', flush=True);"
        "time.sleep(60); print('still here')"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {rank!r}])"],
        env={**os.environ, "TORCHELASTIC_RUN_ID": "x"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert launcher.stdout.readline() == "here\n"
    launcher.kill()
    assert launcher.wait() == -9
    assert launcher.stdout.read() == ""  # until the last one who could write has ended
