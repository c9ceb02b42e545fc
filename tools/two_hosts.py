"""Two hosts for real, on one machine: two network namespaces with a cable between them, a run over both, a cut cable.

    sudo python tools/two_hosts.py                          everything below
    sudo python tools/two_hosts.py parts=equal,bytes        some of it
    sudo python tools/two_hosts.py parts=cut how=loss,dies-a meet=b

Linux, root and iproute2 (``ip``) are needed. Each host has a name and an address of its own and starts
``torchrun --nnodes 2 -m visiontrain train``; gloo goes over the cable. The parts:

equal   one process, then two hosts, the same settings: images of each update, losses, weights and metrics side by side.
bytes   what crosses the cable for an update of eight micro-batches, and for the same images as updates of one.
cut     the cable is cut in the middle. Both sides must end by themselves, in bounded time, with an exit code that is not 0 and
        with words that say what happened; last.pt holds the last window.
resume  one process ends a copy of the cut run, two hosts the run; they must come to the weights of the uncut one, bit for bit.

Own words: ``parts``, ``rdzv=c10d|static`` (how torchrun's agents meet), ``meet=a|b`` (on whose host; static: a), ``how`` the hosts
are cut off, one or several of ``down`` (the cable is unplugged), ``loss`` (it swallows everything), ``dies-a`` and ``dies-b`` (a
host loses power and is never heard again), ``after`` (updates before the cut), ``tcp_retries``, ``images`` and ``folder`` (a new one).
Every other word is a setting of train. Rank 0 is on host a, and so is the folder of the runs: host b sees none of it. Pictures
must be at the same place on both.

torchrun's agents have no timeout of their own on a store that does not answer: the agent on the far side of the cut ends when TCP
gives up. With Linux's net.ipv4.tcp_retries2=15 that is after a quarter of an hour, with tcp_retries=8, as here, after two minutes.
"""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from tools.two_namespaces import CUTS, LAUNCHER, Host, mend, two_hosts, what_is_missing
from visiontrain.data.description import load_description

OWN = {"parts": "equal,bytes,cut,resume", "rdzv": "c10d", "meet": "a", "how": "down", "after": "6"}
OWN |= {"tcp_retries": "8", "images": "64", "folder": ""}
SETTINGS = {
    "device": "cpu",
    "imgsz": "64",
    "norm": "group",
    "batch": "2",
    "nbs": "16",
    "epochs": "3",
    "warmup_epochs": "0",
    "close_mosaic": "1",
    "optimizer": "SGD",
    "lr0": "0.01",
    "workers": "0",
    "plots": "false",
    "timeout": "30",
}
DRIFT = 1e-4  # relative, of float32 weights after the whole run; each window's gradient is exact to rounding
SLACK = 180  # seconds that may pass beyond ``timeout`` until both sides have ended; the machine may be busy
PORT = 29500


@dataclass
class Bench:
    """What the parts share: who runs, with what, where; and what was found wrong."""

    hosts: tuple[Host, Host]
    own: dict[str, str]
    settings: dict[str, str]
    folder: Path
    wrong: list[str]

    @property
    def ways(self) -> list[str]:
        return self.own["how"].split(",")

    def check(self, good: bool, sentence: str) -> None:
        print(("  ok    " if good else "  WRONG ") + sentence, flush=True)
        if not good:
            self.wrong.append(sentence)

    def words(self, name: str, **settings: str) -> list[str]:
        """The command line of a run, without who starts it."""
        mine = self.settings | {"project": str(self.folder), "name": name} | settings
        return ["-m", "visiontrain", "train", *(f"{key}={value}" for key, value in mine.items())]

    def alone(self, words: Sequence[str], log: str) -> None:
        """One process; it must succeed."""
        process = self.hosts[0].start([sys.executable, *words], self.folder / log)
        if process.wait():
            sys.exit(f"the run of one process failed:\n{tail(self.folder / log)}")

    def together(self, words: Sequence[str], log: str) -> list[subprocess.Popen[bytes]]:
        """torchrun on both hosts."""
        meet = self.hosts["ab".index(self.own["meet"])].name
        found = []
        for number, host in enumerate(self.hosts):
            launcher = ["-m", LAUNCHER, "--nnodes", "2", "--nproc-per-node", "1"]
            launcher += ["--rdzv-backend", self.own["rdzv"], "--rdzv-endpoint", f"{meet}:{PORT}", "--rdzv-id", log]
            launcher += ["--node-rank", str(number)]
            found.append(host.start([sys.executable, *launcher, *words], self.log(log, host)))
            time.sleep(1)
        return found

    def log(self, name: str, host: Host) -> Path:
        return self.folder / f"{name}-{host.name}.log"

    def finish(self, processes: Sequence[subprocess.Popen[bytes]], log: str) -> None:
        """Both must succeed."""
        codes = [process.wait() for process in processes]
        if any(codes):
            said = "\n".join(f"--- {host.name}\n{tail(self.log(log, host))}" for host in self.hosts)
            sys.exit(f"exit codes {codes} of {log}:\n{said}")

    def on_both(self, words: Sequence[str], log: str) -> None:
        self.finish(self.together(words, log), log)


def main(words: Sequence[str]) -> int:
    """Run the parts; 0 where all is as it must be, 1 where something is wrong, 2 where it cannot run here."""
    given = dict(word.split("=", 1) for word in words)
    own = {name: given.pop(name, default) for name, default in OWN.items()}
    for name, known in (("how", CUTS), ("parts", PARTS)):
        if strange := [word for word in own[name].split(",") if word not in known]:
            return cannot(f"{name}={strange[0]}: there are {', '.join(known)}")
    if missing := what_is_missing():
        return cannot(missing)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit("stopped"))
    folder = Path(own["folder"] or tempfile.mkdtemp(prefix="two-hosts-")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with two_hosts(folder, int(own["tcp_retries"])) as hosts:
        data = {"data": str(some_shapes(folder, int(own["images"])))}
        bench = Bench(hosts, own, SETTINGS | data | given, folder, [])
        print(f"{hosts[0].name} ({hosts[0].address}) and {hosts[1].name} ({hosts[1].address}); logs and runs: {folder}")
        for part in own["parts"].split(","):
            PARTS[part](bench)
    print(f"{len(bench.wrong)} of the checks failed" if bench.wrong else "all checks passed")
    return bool(bench.wrong)


def cannot(why: str) -> int:
    print(f"two_hosts cannot run: {why}", file=sys.stderr)
    return 2


def some_shapes(folder: Path, images: int) -> Path:
    """A description of the first pictures of shapes: a short run wants few."""
    shapes = load_description("shapes")
    lists = {}
    for split, count in (("train", images), ("val", max(images // 4, 1))):
        pictures = sorted(shapes.splits[split][0].glob("*.jpg"))[:count]
        (folder / f"{split}.txt").write_text("".join(f"{picture}\n" for picture in pictures))
        lists[split] = f"{split}.txt"
    (folder / "data.yaml").write_text(yaml.safe_dump(lists | {"names": list(shapes.names)}))
    return folder / "data.yaml"


def equal(bench: Bench) -> None:
    """One process and two hosts come to the same."""
    print("equal: one process, then two hosts")
    bench.alone(bench.words("one"), "one.log")
    bench.on_both(bench.words("two"), "two")
    one, two = bench.folder / "one", bench.folder / "two"
    print(indented("\n".join(plan(two))))
    bench.check(dealt(one) == dealt(two), f"images and boxes of each of {len(dealt(two))} updates are the same")
    losses = [relative(x, y) for x, y in zip(column(two, "losses"), column(one, "losses"), strict=True)]
    print("  loss, relative difference by update: " + " ".join(f"{value:.0e}" for value in losses))
    for what in ("weights", "ema"):
        drift = relative(weights(two, what), weights(one, what))
        bench.check(drift <= DRIFT, f"{what}: relative difference {drift:.1e} (at most {DRIFT:g})")
    scores = [record(run)["measured"]["metrics"]["last"] for run in (one, two)]
    for name in ("ap50", "recall"):
        x, y = (score[name] for score in scores)
        bench.check(abs(x - y) <= 1e-3, f"{name} after the last epoch: {x:.6f} and {y:.6f}")
    places = record(two)["measured"]["places"]
    hosts = [place["host"] for place in places]
    bench.check(hosts == [host.name for host in bench.hosts], f"run.json names the hosts: {', '.join(hosts)}")


def sent_bytes(bench: Bench) -> None:
    """What an update costs on the cable, with and without accumulation."""
    print("bytes: the same images as updates of eight micro-batches and of one")
    found = {}
    for name, nbs in (("A=8", "16"), ("A=1", "2")):
        processes = bench.together(bench.words(name, nbs=nbs, epochs="1", val="false"), name)
        found[name] = rows, count = cable_by_update(bench, name, processes)
        bench.finish(processes, name)
        print(f"  {name}: {count / rows / 1e6:.2f} MB from {bench.hosts[0].name} for each of {rows} updates")
    share = found["A=8"][1] / found["A=8"][0] / 8 / (found["A=1"][1] / found["A=1"][0])
    parameters = record(bench.folder / "A=8")["computed"]["model"]["parameters"]
    print(f"  gradients of {parameters} parameters are {4 * parameters / 1e6:.2f} MB")
    bench.check(0.11 <= share <= 0.14, f"for the same images A=8 sends {share:.3f} of what A=1 sends (1/8 = 0.125)")


def cable_by_update(bench: Bench, name: str, processes: Sequence[subprocess.Popen[bytes]]) -> tuple[int, int]:
    """Updates and bytes from the first to the last update that was seen; a row is written as its window closes."""
    path, seen = bench.folder / name / "updates.jsonl", []
    while all(process.poll() is None for process in processes):
        rows = len(lines(path))
        if rows and (not seen or rows > seen[-1][0]):
            seen.append((rows, bench.hosts[0].sent()))
        time.sleep(0.01)
    return seen[-1][0] - seen[0][0], seen[-1][1] - seen[0][1]


@dataclass
class Ended:
    """One side after the cut: seconds until its training and its launcher were gone, exit code, processes that stayed."""

    training: float = math.inf
    launcher: float = math.inf
    code: int | None = None
    left: int = 0


def cut(bench: Bench) -> None:
    """The hosts are cut off from each other: what both sides say, and what is left."""
    for how in bench.ways:
        print(
            f"cut: {CUTS[how].__doc__} after {bench.own['after']} updates; agents meet by {bench.own['rdzv']} on "
            f"host-{bench.own['meet']}, timeout={bench.settings['timeout']}"
        )
        name = f"cut-{how}"
        processes = bench.together(bench.words(name), name)
        while len(lines(bench.folder / name / "updates.jsonl")) < int(bench.own["after"]):
            if any(process.poll() is not None for process in processes):
                bench.finish(processes, name)
            time.sleep(0.05)
        CUTS[how](*bench.hosts)
        judge(bench, how, how_they_ended(bench, processes))
        mend(*bench.hosts)


def how_they_ended(bench: Bench, processes: Sequence[subprocess.Popen[bytes]]) -> list[Ended]:
    """What became of both sides; a side that has not ended in time is ended and marked by an endless time."""
    start, found = time.monotonic(), [Ended(), Ended()]
    limit = start + float(bench.settings["timeout"]) + SLACK
    while (now := time.monotonic()) < limit and not all(side.code is not None for side in found):
        for side, host, process in zip(found, bench.hosts, processes, strict=True):
            if process.poll() is not None and side.code is None:
                side.code, side.launcher = process.returncode, now - start
            if math.isinf(side.training) and not host.trains():
                side.training = now - start
        time.sleep(0.2)
    for side, host, process in zip(found, bench.hosts, processes, strict=True):
        side.left = len(host.processes())
        host.kill()
        process.wait()
    return found


def judge(bench: Bench, how: str, sides: Sequence[Ended]) -> None:
    """What both sides said, and whether the last window is on disk."""
    run, dead = bench.folder / f"cut-{how}", how[-1] if how.startswith("dies") else ""
    wanted = {"a": "rank 1 (host host-b", "b": "cannot be reached any more from host-b"}
    for (letter, words), host, side in zip(wanted.items(), bench.hosts, sides, strict=True):
        if letter == dead:
            continue
        said = [line for line in lines(bench.log(run.name, host)) if line.startswith("visiontrain: ")]
        print(
            f"  {host.name}: training ended {side.training:.0f} s after the cut, torchrun after {side.launcher:.0f} s"
        )
        print(indented("\n".join(said), 10))
        bench.check(side.left == 0, f"{host.name}: {side.left} processes are left")
        bench.check(side.code == 1, f"{host.name}: exit code {side.code}")
        bench.check(any(words in line for line in said), f"{host.name}: the message says {words!r}")
    closed = column(run, "updates_attempted")[-1]
    saved = checkpoint(run)["state"]["updates_attempted"]
    bench.check(saved == closed or dead == "a", f"last.pt holds update {saved}; {closed} were closed")


def go_on(bench: Bench) -> None:
    """One process ends a copy of each run that was cut, two hosts the run."""
    for how in bench.ways:
        print(f"resume: the run of how={how}, by one process and by two hosts")
        run = bench.folder / f"cut-{how}"
        copy = run.with_name(run.name + "-by-one")
        shutil.copytree(run, copy)
        resume = ["-m", "visiontrain", "train"]
        bench.alone([*resume, f"resume={copy / 'weights' / 'last.pt'}"], f"{copy.name}.log")
        bench.on_both([*resume, f"resume={run / 'weights' / 'last.pt'}"], f"{run.name}-resumed")
        for ended in (copy, run):
            bench.check(record(ended)["outcome"] == "finished", f"{ended.name}: finished")
        compare_with_uncut(bench, run, copy)


def compare_with_uncut(bench: Bench, run: Path, copy: Path) -> None:
    """Where the part ``equal`` has left the run of two hosts that nobody disturbed."""
    uncut = bench.folder / "two"
    if not uncut.is_dir():
        return
    same = torch.equal(weights(run, "weights"), weights(uncut, "weights"))
    bench.check(same and dealt(run) == dealt(uncut), "resumed by two hosts: the weights of the uncut run, bit for bit")
    drift = relative(weights(copy, "weights"), weights(uncut, "weights"))
    bench.check(drift <= DRIFT, f"resumed by one process: relative difference {drift:.1e} (at most {DRIFT:g})")


PARTS: dict[str, Callable[[Bench], None]] = {"equal": equal, "bytes": sent_bytes, "cut": cut, "resume": go_on}


def lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.is_file() else []


def tail(path: Path, count: int = 15) -> str:
    return "\n".join(lines(path)[-count:])


def indented(text: str, by: int = 4) -> str:
    return "\n".join(" " * by + line for line in text.splitlines())


def record(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "run.json").read_text())
    return content


def plan(run: Path) -> list[str]:
    sentences: list[str] = record(run)["plan"]
    return sentences


def column(run: Path, name: str) -> list[Any]:
    return [json.loads(line)[name] for line in lines(run / "updates.jsonl")]


def dealt(run: Path) -> list[tuple[int, ...]]:
    """Images, boxes and counters of each update."""
    names = ("window_images", "window_targets", "images_seen", "targets_seen", "updates_applied", "epoch")
    return list(zip(*(column(run, name) for name in names), strict=True))


def checkpoint(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(run / "weights" / "last.pt", weights_only=True)
    return content


def weights(run: Path, what: str) -> torch.Tensor:
    return torch.cat([t.double().flatten() for t in checkpoint(run)[what].values()])


def relative(a: Any, b: Any) -> float:
    """||a - b|| / ||b||, of tensors or of mappings of numbers."""
    a, b = (torch.tensor(list(x.values()), dtype=torch.float64) if isinstance(x, dict) else x for x in (a, b))
    return float((a - b).norm() / b.norm())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
