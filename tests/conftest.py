from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from narrow import narrow_families

# Small tensors gain nothing from many threads, and threads that wait for each other lose much on a busy machine.
# By environment: tests of the settings need no torch, and children inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

CHECKOUT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the repository."""
    return CHECKOUT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The project's folder of real pictures and reference values; it lies beside the checkout and is not part of it."""
    folder = Path(os.environ.get("VISIONTRAIN_SHARED") or CHECKOUT.parent / "shared")
    if not folder.is_dir():
        pytest.skip(f"needs the shared data: no folder {folder} (set VISIONTRAIN_SHARED to another place)")
    return folder


@pytest.fixture(scope="session", autouse=True)
def cache_of_tests(tmp_path_factory) -> None:
    """Tests leave the user's cache alone, also those that train; children inherit it."""
    os.environ["VISIONTRAIN_CACHE"] = str(tmp_path_factory.mktemp("user-cache"))


@pytest.fixture
def user_cache(tmp_path, monkeypatch) -> Path:
    """A fresh user cache for one test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("VISIONTRAIN_CACHE", str(folder))
    return folder


@pytest.fixture
def narrow(monkeypatch):
    """A sixteenth of the width, one thread: for tests of the machinery, not of the network."""
    import torch

    narrow_families(monkeypatch)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    if not any(item.get_closest_marker("gpu") for item in items):
        return
    import torch

    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """The description of a small data set: 13 training and 5 validation pictures of coloured squares, two classes."""
    import cv2
    import numpy as np

    root = tmp_path_factory.mktemp("tiny")
    for split, count in (("train", 13), ("val", 5)):
        for kind in ("images", "labels"):
            (root / kind / split).mkdir(parents=True)
        for number in range(count):
            rng = np.random.default_rng([number, count])
            picture = rng.integers(90, 140, (64, 64, 3), dtype=np.uint8)
            rows = []
            for _ in range(number % 4):  # every fourth picture is background
                kind, size = int(rng.integers(2)), int(rng.integers(12, 28))
                x, y = rng.integers(0, 64 - size, 2)
                picture[y : y + size, x : x + size] = (20, 40, 230) if kind else (230, 200, 20)
                rows.append(f"{kind} {(x + size / 2) / 64} {(y + size / 2) / 64} {size / 64} {size / 64}")
            cv2.imwrite(str(root / "images" / split / f"{number}.png"), picture)
            (root / "labels" / split / f"{number}.txt").write_text("\n".join(rows) + "\n")
    (root / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [sun, sea]\n")
    return root / "data.yaml"


@pytest.fixture
def short_run(tiny, tmp_path) -> dict:
    """Settings of a run of seconds: one epoch of the small data set in windows of four, not validated before its end."""
    return {
        "data": str(tiny), "project": str(tmp_path / "runs"), "device": "cpu", "workers": 0, "epochs": 1, "batch": 2,
        "nbs": 4, "imgsz": 64, "warmup_epochs": 0, "close_mosaic": 0, "plots": False, "val": False,
    }  # fmt: skip


@pytest.fixture(
    scope="module"
)  # not longer: while playwright is open nothing else here can run an event loop, as notebooks do
def browser():
    """Chromium of this machine without a window; tests that need it are skipped where there is none, but never on CI."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        reason = (
            "needs a browser: no chromium, chromium-browser or google-chrome on the PATH (Debian: apt install chromium)"
        )
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=path, args=["--no-sandbox"])  # which root cannot have
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser):
    """Opens a file: ``visit(path, width=1440, dark=False)`` gives its ``page`` and what was ``said``: console, errors, requests."""
    contexts = []

    def open_file(path: Path, width: int = 1440, dark: bool = False) -> SimpleNamespace:
        size, said = {"width": width, "height": 900}, []
        contexts.append(browser.new_context(viewport=size, color_scheme="dark" if dark else "light"))
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("request", lambda request: said.append(f"request: {request.url}"))
        page.goto(path.as_uri())
        assert said.pop(0) == f"request: {path.as_uri()}"  # the page itself
        return SimpleNamespace(page=page, said=said)

    yield open_file
    for context in contexts:
        context.close()


@pytest.fixture
def server(monkeypatch):
    """A server of files on this machine that can fail in several ways, and is asked again at once."""
    from serving import Server

    from visiontrain import fetching

    monkeypatch.setattr(fetching, "PAUSE", 0)
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
