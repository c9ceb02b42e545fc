"""Two network namespaces with a cable between them: two hosts on one machine, for tools/two_hosts.py."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

LAUNCHER = "torch.distributed.run"


@dataclass(frozen=True)
class Host:
    """A network namespace with one end of the cable; ``hosts`` is its /etc/hosts, of ``hidden`` it sees nothing."""

    name: str
    space: str
    address: str
    hosts: Path
    hidden: Path | None

    def start(self, words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Run a command there, under the host's name; what it says goes to ``log``."""
        own = 'echo "$0" > /proc/sys/kernel/hostname && mount --bind "$1" /etc/hosts && shift && '
        own += f'mount -t tmpfs none "{self.hidden}" && exec "$@"' if self.hidden else 'exec "$@"'
        command = ["ip", "netns", "exec", self.space, "unshare", "--uts", "--mount", "sh", "-c", own, self.name]
        command += [str(self.hosts), *words]
        environment = os.environ | {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
        with log.open("wb") as file:
            return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)

    def ip(self, *words: str) -> str:
        return _shell("ip", "-n", self.space, *words)

    def processes(self) -> list[int]:
        return [int(word) for word in _shell("ip", "netns", "pids", self.space).split()]

    def trains(self) -> bool:
        """Is there a process besides the launcher's?"""
        return any(LAUNCHER.encode() not in _command_line(number) for number in self.processes())

    def sent(self) -> int:
        """Bytes that this end has put on the cable."""
        (link,) = json.loads(self.ip("-s", "-j", "link", "show", "eth0"))
        count: int = link["stats64"]["tx"]["bytes"]
        return count

    def kill(self) -> None:
        for number in self.processes():
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


@contextmanager
def two_hosts(folder: Path, tcp_retries: int) -> Iterator[tuple[Host, Host]]:
    """Two hosts that know each other's names, and a cable; gone at the end with all that runs on them, whatever happened.

    What is in ``folder`` is on the disk of host a alone.
    """
    names, space = folder / "hosts", f"visiontrain-{os.getpid()}"
    a = Host("host-a", f"{space}-a", "10.77.0.1", names, None)
    b = Host("host-b", f"{space}-b", "10.77.0.2", names, folder)
    names.write_text("127.0.0.1 localhost\n" + "".join(f"{host.address} {host.name}\n" for host in (a, b)))
    try:
        for host in (a, b):
            _shell("ip", "netns", "add", host.space)
        _shell("ip", "link", "add", "eth0", "netns", a.space, "type", "veth", "peer", "name", "eth0", "netns", b.space)
        for host in (a, b):
            host.ip("address", "add", f"{host.address}/24", "dev", "eth0")
            host.ip("link", "set", "lo", "up")
            host.ip("link", "set", "eth0", "up")
            retries = ["sysctl", "-qw", f"net.ipv4.tcp_retries2={tcp_retries}"]
            _shell("ip", "netns", "exec", host.space, *retries)
        yield a, b
    finally:
        for host in (a, b):
            with suppress(subprocess.CalledProcessError):  # it never came to be
                host.kill()
                _shell("ip", "netns", "delete", host.space)


def unplugged(a: Host, b: Host) -> None:
    """the cable is unplugged"""
    b.ip("link", "set", "eth0", "down")


def swallowed(a: Host, b: Host) -> None:
    """the cable swallows everything"""
    for host, other in ((a, b), (b, a)):  # what is sent is for nobody's card
        host.ip("neighbour", "replace", other.address, "lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent")


def dies(a: Host, b: Host) -> None:
    """host-b loses power"""
    unplugged(a, b)
    b.kill()


def first_dies(a: Host, b: Host) -> None:
    """host-a loses power"""
    dies(b, a)


def mend(a: Host, b: Host) -> None:
    """The cable as it was."""
    for host in (a, b):
        host.ip("link", "set", "eth0", "up")
        host.ip("neighbour", "flush", "dev", "eth0", "nud", "all")


CUTS: dict[str, Callable[[Host, Host], None]] = {
    "down": unplugged,
    "loss": swallowed,
    "dies-a": first_dies,
    "dies-b": dies,
}


def what_is_missing() -> str:
    """Why two hosts cannot be had here, or nothing."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if absent := [name for name in ("ip", "unshare", "sysctl") if not shutil.which(name)]:
        return f"{' and '.join(absent)} not found; install iproute2 (ip), util-linux (unshare) and procps (sysctl)"
    if os.geteuid():
        return "it makes network namespaces, which takes root; run it with sudo"
    tried = subprocess.run(["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, text=True)
    return f"this kernel or container allows no network namespaces ({tried.stderr.strip()})" if tried.returncode else ""


def _command_line(process: int) -> bytes:
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return LAUNCHER.encode()


def _shell(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout
