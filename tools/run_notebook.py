"""Run docs/notebook.ipynb and store what its cells show, without what is of this machine alone: python tools/run_notebook.py"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
CELL_SECONDS = 900


def main() -> None:
    """Run it in a folder that is gone afterwards."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        run(notebook, Path(folder))
        text = nbformat.writes(notebook).replace(f"{folder}/cache", "~/.cache/visiontrain")
    assert folder not in text and str(ROOT) not in text, "a path of this machine is in the outputs"
    NOTEBOOK.write_text(text + "\n", encoding="utf-8")
    print(f"{NOTEBOOK}: {len(text) / 1000:.0f} kB")


def run(notebook: Any, folder: Path) -> None:
    """Execute every cell with this very Python; kernel, cache and runs live in the folder.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell ended with an error.
    """
    client = NotebookClient(notebook, km=manager(folder), timeout=CELL_SECONDS, record_timing=False)
    client.resources = {"metadata": {"path": str(folder)}}
    asyncio.run(client.async_execute(env=environment(folder), stderr=subprocess.DEVNULL))
    notebook.metadata.pop("signature", None)


def manager(folder: Path) -> AsyncKernelManager:
    """Of a kernel in this Python, whatever kernels the user has installed."""
    specs = KernelSpecManager(kernel_dirs=[])
    return AsyncKernelManager(kernel_spec_manager=specs, connection_file=str(folder / "kernel.json"))


def environment(folder: Path) -> dict[str, str]:
    """What the kernel inherits: this checkout, one thread, and nothing of the user's to write to."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    own = {"VISIONTRAIN_CACHE": f"{folder}/cache", "IPYTHONDIR": f"{folder}/ipython", "PYTHONPATH": path}
    return {**os.environ, **own, "OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    sys.exit(main())
