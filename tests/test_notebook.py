"""A real kernel in this Python: the tutorial runs, the stop button stops, nothing heavy or running is left, and what is shown stays small."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from tools.run_notebook import NOTEBOOK, environment, run


def kinds(cell) -> list[str]:
    """What a cell shows, for example ``text/html``; of a stream its name. An area whose bar has gone shows nothing."""
    return [
        output.get("name") or next(kind for kind in ("image/jpeg", "text/html", "text/plain") if kind in output["data"])
        for output in cell.outputs
        if output.get("data", {}).get("text/html") != ""
    ]


def test_the_tutorial_runs_and_shows_what_is_stored(tmp_path):
    """In little: one epoch on a twentieth of the pictures. NB-04: what three epochs and more leave is small."""
    stored = nbformat.read(NOTEBOOK, as_version=4)
    little = nbformat.reads(
        json.dumps(stored).replace("epochs, share = 6, 1.0", "epochs, share = 1, 0.05"), as_version=4
    )
    assert little != stored
    run(little, tmp_path)
    cells = [cell for cell in little.cells if cell.cell_type == "code"]
    assert [kinds(c) for c in cells] == [kinds(c) for c in stored.cells if c.cell_type == "code"]
    shown = [kind for cell in cells for kind in kinds(cell)]
    assert {"text/html", "image/jpeg", "stdout"} <= set(shown) and "stderr" not in shown
    text = "\n".join(output.get("text", "") for cell in cells for output in cell.outputs)
    assert "Finished after" in text and "\r" not in text and "\x1b" not in text
    told = json.dumps(
        [cell.outputs for cell in cells if "image/jpeg" not in kinds(cell) and "img src" not in str(cell)]
    )
    assert len(told) < 50_000
    assert (tmp_path / "runs" / "train" / "run" / "weights" / "last.pt").is_file()
    grounds = re.findall(r"background[a-z-]*:([^;\\\\\"]+)", told)
    assert set(grounds) <= {"none", "#3b82f6", "rgba(127,127,127,.3)"}  # none that is a lamp in the dark


def test_the_stored_tutorial_is_small_and_says_nothing_of_a_machine():
    text = NOTEBOOK.read_text("utf-8")
    assert len(text) < 300_000 and "stderr" not in text and '"error"' not in text
    assert not re.search(r"/(root|home|tmp|Users)/", text)


class Kernel:
    """A notebook's kernel, spoken to as a front end does."""

    def __init__(self, folder) -> None:
        specs = KernelSpecManager(kernel_dirs=[])
        self.manager = KernelManager(kernel_spec_manager=specs, connection_file=str(folder / "kernel.json"))
        self.manager.start_kernel(env=environment(folder), cwd=str(folder), stderr=subprocess.DEVNULL)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)

    def run(self, code: str, stop_at: str = "") -> str:
        """All that a cell shows, as text; the stop button is pressed once this was seen."""
        sent, shown = self.client.execute(code), []
        while True:
            message = self.client.get_iopub_msg(timeout=250)
            content = message["content"]
            if message["parent_header"].get("msg_id") != sent:
                continue
            if content.get("execution_state") == "idle":
                return "\n".join(filter(None, shown))
            data, trace = content.get("data", {}), content.get("traceback", [])
            shown.append(content.get("text") or data.get("text/plain", "") or "\n".join(trace))
            if stop_at and stop_at in shown[-1]:
                stop_at = ""
                self.manager.interrupt_kernel()

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory, tiny):
    """One for all cells below; networks are a sixteenth as wide."""
    kernel = Kernel(tmp_path_factory.mktemp("notebook"))
    kernel.run(f"""
import gc, json, os, pathlib, visiontrain
from visiontrain import models
from visiontrain.models.detector import Detector
usual = models._sizes
models._sizes = lambda family: {{"n": {{"depth": 0.33, "width": 0.0625, "widest": 1024}}}}
S = dict(data={str(tiny)!r}, device="cpu", workers=2, batch=2, nbs=4, imgsz=64, warmup_epochs=0, plots=False)
model = visiontrain.YOLO("yolov8n")

def alive():
    return sum(issubclass(type(o), Detector) for o in gc.get_objects())

def children():
    return pathlib.Path(f"/proc/self/task/{{os.getpid()}}/children").read_text().split()

class Counting:
    def __init__(self): self.kinds = []
    def __call__(self, event): self.kinds.append(type(event).__name__)
""")
    yield kernel
    kernel.close()


def test_the_stop_button_ends_a_run_and_the_next_cell_goes_on(kernel):
    """With loader processes made by fork in a process with threads and a running event loop, as kernels are."""
    said = kernel.run("model.train(**S, epochs=500)", stop_at="epoch 2/500")
    assert 'go on with: model.train(resume="runs/train/run/weights/last.pt")' in said
    assert said.splitlines()[-1].startswith("\x1b[31mInterrupted\x1b[0m: SIGINT;") and "Traceback" not in said
    assert kernel.run("print(alive(), children())").strip() == "0 []"  # the last error is kept, and holds no model
    assert "Finished" in kernel.run("run = model.train(resume=True, epochs=4, device='cpu')")
    assert kernel.run("print(run.outcome, model.model)").strip() == "finished runs/train/run/weights/best.pt"


def test_a_second_training_leaves_no_more_than_the_first(kernel):
    kernel.run("model = visiontrain.YOLO('yolov8n'); run = model.train(**S, epochs=1)")
    assert kernel.run("print(alive())").strip() == "0"


def test_an_error_of_ours_is_a_sentence_and_one_of_the_user_keeps_its_frames(kernel):
    said = kernel.run("model.train(**{**S, 'data': 'nix'})")
    assert said.startswith("\x1b[31mDataError\x1b[0m: data=nix: no such description") and len(said) < 600
    assert "Traceback" in kernel.run("1 / 0")


def test_augmentations_of_a_cell_reach_loader_processes_but_not_ranks(kernel):
    """NB-03: told before anything starts."""
    kernel.run("""
import albumentations as A
class Mine(A.ImageOnlyTransform):
    def apply(self, img, **_): return img[:, ::-1].copy()
mine = A.Compose([Mine(p=1)])
""")
    assert "Finished" in kernel.run("model.train(**S, epochs=1, albumentations=mine)")
    said = kernel.run("model.train(**{**S, 'device': [0, 1]}, epochs=1, albumentations=mine)")
    assert "ConfigError" in said and "__main__.Mine" in said and "the ranks of several devices" in said


def test_ranks_of_a_cell_tell_it_and_stop_with_it(kernel):
    """Callbacks are objects of a class of the cell; the ranks have ended when the cell has."""
    kernel.run("models._sizes = usual; seen = Counting()")
    said = kernel.run(
        "visiontrain.train(model='yolov8n', **{**S, 'device': 'cpu,cpu', 'norm': 'group'}, epochs=50, callbacks=[seen])",
        "epoch 2/50",
    )
    assert "2 ranks on 1 host" in said and "Interrupted after" in said
    assert said.splitlines()[-1].startswith("\x1b[31mInterrupted\x1b[0m: SIGINT; go on with: model.train(")
    counted = kernel.run("print(seen.kinds.count('EpochEnded'), seen.kinds[-1], children())").split(maxsplit=2)
    assert int(counted[0]) >= 1 and counted[1] == "RunEnded" and counted[2].strip() == "[]"


SCRIPT = """
import multiprocessing, sys
multiprocessing.set_start_method("spawn", force=True)
import visiontrain
print("the script begins")
{more}
settings = dict(batch=4, nbs=8, imgsz=64, workers=1, device="cpu", plots=False, val=False)
visiontrain.train(model="yolov8n", data=sys.argv[1], epochs=1, **settings, **more)
"""


def test_a_script_without_a_main_guard_trains_once_under_spawn(tmp_path, tiny):
    """NB-01; and NB-04: a file of standard output is lines of text."""
    (tmp_path / "train.py").write_text(SCRIPT.format(more="more = {}"))
    with (tmp_path / "log.txt").open("wb") as log:
        subprocess.run(
            [sys.executable, "train.py", str(tiny)], cwd=tmp_path, stdout=log, check=True, env=environment(tmp_path)
        )
    log = (tmp_path / "log.txt").read_bytes()
    assert log.count(b"the script begins") == 1 and b"Finished" in log
    assert len(log) < 10_000 and not re.search(rb"[^\x20-\x7e\n]", log)
    assert [f.name for f in (tmp_path / "runs" / "train").iterdir()] == ["run"]
