"""A run writes into its folder and the user's cache, nowhere else; it changes no data; it opens no network connection.

Where strace is there, the kernel tells: every thread and child, also what C++ does. Everywhere an audit hook of Python
tells, in the process itself and in the workers that it forks. And the data are compared before and after, whoever wrote.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from data import kinds

HOOK = """
import os, sys
log = os.open(os.environ["LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.link", "os.symlink", "os.chmod", "os.truncate", "os.utime"}
def hook(event, words):
    if event == "open" and isinstance(words[0], (str, bytes)) and words[2] & WRITES:
        told = [os.fsdecode(words[0])]
    elif event in CHANGES:
        told = [os.fsdecode(word) for word in words[:2] if isinstance(word, (str, bytes))]
    elif event == "socket.__new__" and words[1] not in (0, 1, -1):  # AF_UNIX is of this machine
        told = [f"family {words[1]}"]
    elif event in ("socket.getaddrinfo", "urllib.Request"):
        told = [str(words[0])]
    else:
        return
    os.write(log, "".join(f"{event}\\t{os.path.abspath(each)}\\n" for each in told).encode())
sys.addaudithook(hook)
from visiontrain.cli import main
sys.exit(main(sys.argv[1:]))
"""
CHANGING = [
    "mkdir", "mkdirat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "symlink", "symlinkat", "link",
    "linkat", "chmod", "fchmodat", "chown", "lchown", "fchownat", "truncate", "utimensat", "utime", "utimes", "mknod",
    "mknodat", "setxattr", "removexattr",
]  # fmt: skip
NETWORK = ["socket", "connect", "bind", "sendto"]
WRITING = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND")


def written(trace: str, where: Path) -> set[str]:
    """The paths that a trace of strace -f -y says were opened for writing or changed."""
    found = set()
    for line in trace.splitlines():
        call = re.match(r"\d+\s+(\w+)\((.*)", line)
        if not call or re.search(r"= -1 E", line):
            continue
        name, words = call.groups()
        if name in CHANGING or (name in ("open", "openat", "creat") and WRITING.search(words)):
            for base, path in re.findall(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"', words):
                found.add(os.path.normpath(os.path.join(base or where, path)))
    return found


def connected(trace: str) -> list[str]:
    """The calls of a trace that have to do with a network; sockets of this machine are no network."""
    calls = [line for line in trace.splitlines() if re.match(rf"\d+\s+({'|'.join(NETWORK)})\(", line)]
    return [line for line in calls if re.search(r"AF_(?!UNIX|UNSPEC)\w+", line)]


def state(folder: Path) -> dict[str, tuple]:
    """Name, kind, mode, time and content of all that is in a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns, status.st_size, content)
    return found


def make_data(root: Path) -> Path:
    """Nine pictures, of which one lacks its last two bytes (IMG-05), one has bytes after its end, one is empty (IMG-08)."""
    for split, count in (("train", 6), ("val", 3)):
        for kind in ("images", "labels"):
            (root / kind / split).mkdir(parents=True)
        for number in range(count):
            noise = np.random.default_rng(number).integers(0, 255, (40, 60, 3), np.uint8)
            (root / "images" / split / f"{number}.jpg").write_bytes(kinds.jpeg(noise, kinds.exif(6)))
            (root / "labels" / split / f"{number}.txt").write_text("0 0.5 0.5 0.4 0.4\n0 0.5 0.5 1.0004 0.4\n")
    train = root / "images" / "train"
    (train / "0.jpg").write_bytes((train / "0.jpg").read_bytes()[:-2])
    (train / "1.jpg").write_bytes((train / "1.jpg").read_bytes() + bytes(10))
    (train / "2.jpg").write_bytes(b"")
    (root / "data.yaml").write_text(
        "train: images/train\nval: images/val\nnames: [a]\ndownload: https://example.com/a.zip\n"
    )
    for path in sorted(root.rglob("*"), reverse=True):
        path.chmod(0o555 if path.is_dir() else 0o444)  # root, who may anyhow, is watched by the comparison
    return root / "data.yaml"


@pytest.fixture(scope="module")
def run(tmp_path_factory, checkout):
    """A training run of one epoch with a worker, in an environment of its own; what it touched, as told twice."""
    root = tmp_path_factory.mktemp("touched")
    folders = {name: root / name for name in ("home", "tmp", "cache", "here", "runs", "data")}
    for folder in folders.values():
        folder.mkdir()
    data = make_data(folders["data"])
    before = state(folders["data"])
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "COVERAGE", "PYTEST", "TORCH"))},
        "HOME": str(folders["home"]), "TMPDIR": str(folders["tmp"]), "VISIONTRAIN_CACHE": str(folders["cache"]),
        "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1", "LOG": str(root / "hook.txt"),
    }  # fmt: skip
    words = [f"data={data}", f"project={folders['runs']}", "epochs=1", "batch=2", "nbs=4", "imgsz=32", "device=cpu"]
    command = [sys.executable, "-c", HOOK, "train", *words, "workers=1", "cache=disk"]
    trace = root / "trace.txt"
    calls = ",".join(["open", "openat", "creat", *CHANGING, *NETWORK])
    strace = ["strace", "-f", "-y", "-qq", "-s", "4096", "--seccomp-bpf", "-e", f"trace={calls}", "-o", str(trace)]
    with_strace = shutil.which("strace") and not subprocess.run([*strace, "true"], capture_output=True).returncode
    done = subprocess.run(
        [*strace, *command] if with_strace else command,
        cwd=folders["here"], env=environment, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    yield {
        **folders,
        "root": root,
        "before": before,
        "trace": trace.read_text(errors="replace") if with_strace else None,
        "hook": [line.split("\t") for line in (root / "hook.txt").read_text().splitlines()],
    }
    for path in folders["data"].rglob("*"):
        path.chmod(0o755)


def foreign(paths: set[str], run: dict) -> list[str]:
    """Those that are neither in the run's folder nor in the cache, nor the system's: devices, shared memory, and the
    folder of temporary files, which is empty again at the end."""
    allowed = tuple(f"{run[name]}/" for name in ("runs", "cache", "tmp")) + (
        "/dev/",
        "/proc/",
        str(run["root"] / "hook.txt"),
    )
    folders = {str(run[name]) for name in ("runs", "cache", "tmp")}
    return sorted(path for path in paths if not path.startswith(allowed) and path not in folders)


def test_the_run_did_its_work(run):
    (folder,) = run["runs"].iterdir()
    assert (folder / "weights" / "best.pt").is_file() and list(run["cache"].rglob("pixels.bin"))
    said = (folder / "data_findings.txt").read_text()
    assert (
        "0.jpg: " in said
        and "no end of the picture" in said
        and "2.jpg: " in said
        and "1.jpg" not in said.split("images")[0]
    )


def test_the_data_are_as_they_were(run):
    assert state(run["data"]) == run["before"]


def test_nothing_is_left_elsewhere(run):
    assert [list(run[name].iterdir()) for name in ("home", "tmp", "here")] == [[], [], []]


def test_python_writes_only_into_the_run_and_the_cache(run):
    paths = {path for event, path in run["hook"] if not event.startswith(("socket", "urllib"))}
    assert any(path.startswith(str(run["runs"])) for path in paths) and foreign(paths, run) == []


def test_python_opens_no_connection(run):
    assert [event for event, _ in run["hook"] if event.startswith(("socket", "urllib"))] == []


def test_the_kernel_says_the_same(run):
    if run["trace"] is None:
        pytest.skip("needs strace, and the right to use it")
    paths = written(run["trace"], run["here"])
    assert any(path.endswith("pixels.bin") for path in paths) and any(path.endswith("last.pt") for path in paths)
    assert foreign(paths, run) == []
    assert connected(run["trace"]) == []


def test_a_trace_is_read_rightly():
    trace = r"""
12 openat(AT_FDCWD</w>, "a/b.txt", O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0666) = 3</w/a/b.txt>
12 openat(AT_FDCWD</w>, "/r/only.txt", O_RDONLY|O_CLOEXEC) = 3</r/only.txt>
12 openat(AT_FDCWD</w>, "/no", O_WRONLY|O_CREAT, 0666) = -1 EACCES (Permission denied)
13 unlinkat(5</d>, "x", 0) = 0
13 rename("/one", "/two" <unfinished ...>
13 utimensat(AT_FDCWD</w>, "/t", NULL, 0) = 0
13 socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0) = 3<UNIX-STREAM:[1]>
13 socket(AF_INET6, SOCK_DGRAM|SOCK_CLOEXEC, IPPROTO_IP) = 3<UDPv6:[2]>
13 connect(3<UNIX-STREAM:[1]>, {sa_family=AF_UNIX, sun_path="/var/run/nscd/socket"}, 110) = -1 ENOENT (No such file)
"""
    assert written(trace, Path("/w")) == {"/w/a/b.txt", "/d/x", "/one", "/two", "/t"}
    assert len(connected(trace)) == 1 and "AF_INET6" in connected(trace)[0]
