"""Where this process runs: among which ranks a launcher put it, what to do when that is gone, and whether in a notebook."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from visiontrain.errors import ConfigError

WATCH = 1.0  # seconds between two looks at the launcher


@dataclass(frozen=True, slots=True)
class Place:
    """``rank`` of ``size`` processes, ``local`` of ``local_size`` on this host; rank 0 is at ``address``, ``port``.

    ``bound``: the launcher shows each process its own accelerator alone.
    """

    rank: int = 0
    size: int = 1
    local: int = 0
    local_size: int = 1
    address: str = ""
    port: int = 0
    bound: bool = False


def place(environment: Mapping[str, str] = os.environ) -> Place:
    """Read it from the environment, of torchrun or of a Slurm step with several tasks; alone where there is neither.

    Raises:
        ConfigError: the environment contradicts itself.
    """
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return _checked(
            Place(
                rank=_number(environment, "RANK"),
                size=_number(environment, "WORLD_SIZE"),
                local=_number(environment, "LOCAL_RANK", 0),
                local_size=_number(environment, "LOCAL_WORLD_SIZE", 1),
                address=environment.get("MASTER_ADDR", ""),
                port=_number(environment, "MASTER_PORT", 0),
            )
        )
    if _number(environment, "SLURM_STEP_NUM_TASKS", 1) > 1:
        return _checked(_slurm(environment))
    return Place()


def devices_of(name: str) -> list[str]:
    """The devices that ``device=`` lists, as words; one for one rank."""
    return [word.strip() for word in name.split(",")]


@cache
def stop_with_launcher() -> None:
    """Under torch's elastic launcher: once that is gone (killed), this process gets the SIGTERM that it could not send."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    launcher = os.getppid()

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(WATCH)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="launcher watch", daemon=True).start()


def _checked(found: Place) -> Place:
    if not (0 <= found.rank < found.size and 0 <= found.local < found.local_size):
        raise ConfigError(
            f"the launcher's environment is wrong: rank {found.rank} of {found.size}, "
            f"on this host {found.local} of {found.local_size}; ranks count from 0"
        )
    if found.size > 1 and not (found.address and found.port):
        raise ConfigError("the launcher's environment lacks MASTER_ADDR or MASTER_PORT: where the ranks meet")
    return found


def _slurm(environment: Mapping[str, str]) -> Place:
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    counts = _tasks_per_node(environment.get("SLURM_STEP_TASKS_PER_NODE") or environment["SLURM_STEP_NUM_TASKS"])
    node = _number(environment, "SLURM_NODEID", 0)
    if node >= len(counts):
        raise ConfigError(f"Slurm's environment is wrong: SLURM_NODEID={node} of {len(counts)} nodes")
    return Place(
        rank=_number(environment, "SLURM_PROCID"),
        size=_number(environment, "SLURM_STEP_NUM_TASKS"),
        local=_number(environment, "SLURM_LOCALID", 0),
        local_size=counts[node],
        address=environment.get("MASTER_ADDR") or first_host(nodes),
        port=_number(environment, "MASTER_PORT", 20000 + _number(environment, "SLURM_JOB_ID", 0) % 20000),
        bound=True,
    )


def _tasks_per_node(text: str) -> list[int]:
    """``2(x3),1`` -> [2, 2, 2, 1]."""
    found: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        found += [int(count)] * int(times or 1)
    return found


def first_host(nodes: str) -> str:
    """The first name of a Slurm node list: ``gpu[03-05,09],cpu1`` -> ``gpu03``."""
    head = re.match(r"([^,\[]*)(?:\[(\d+))?", nodes)
    return (head[1] + (head[2] or "")) if head else ""


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environment.get(name) or default
    try:
        return int(text)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the launcher's environment is wrong: {name}={text} is not a whole number") from error


def in_notebook() -> bool:
    """Whether pictures can be shown inline: a kernel is running this, not a terminal's IPython."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")
