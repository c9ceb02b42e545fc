"""The wheel carries the package and the YAML of three folders, and works away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def strays(checkout):
    """What must never be shipped, lying where a careless run could leave it."""
    files = [
        checkout / folder / f"stray-{os.getpid()}{end}"
        for folder, end in (("datasets", ".jpg"), ("weights", ".pt"), ("cfg", ".txt"))
    ]
    for file in files:
        file.write_bytes(b"stray")
    yield files
    for file in files:
        file.unlink()


@pytest.fixture(scope="module")
def wheel(checkout, strays, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    result = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return next(folder.glob("visiontrain-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """A folder with the wheel installed, far from the checkout."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    result = subprocess.run([*pip, "--target", str(target), str(wheel)], cwd=target, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return target


def test_the_source_archive_keeps_the_tree_and_ships_no_picture(checkout, strays, tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        names = {n.partition("/")[2] for n in archive.getnames()}
    assert {"datasets/coco.yaml", "cfg/models/yolov8.yaml", "visiontrain/cli.py", "LICENSE", "README.md"} <= names
    assert not [n for n in names if n.startswith(("cfg/", "datasets/", "weights/")) and not n.endswith(".yaml")]


def test_the_wheel_holds_code_and_yaml_and_nothing_else(wheel, checkout):
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {n for n in names if n.startswith(("visiontrain/cfg/", "visiontrain/datasets/", "visiontrain/weights/"))}
    expected = {
        f"visiontrain/{file.relative_to(checkout).as_posix()}"
        for folder in ("cfg", "datasets", "weights")
        for file in (checkout / folder).rglob("*.yaml")
    }
    assert shipped == expected
    assert {
        "visiontrain/datasets/coco.yaml",
        "visiontrain/weights/weights.yaml",
        "visiontrain/cfg/default.yaml",
    } <= shipped
    code = {
        f"visiontrain/{f.relative_to(checkout / 'visiontrain').as_posix()}"
        for f in (checkout / "visiontrain").rglob("*.py")
    }
    others = {n for n in names if ".dist-info/" not in n} - shipped
    assert others == code | {"visiontrain/py.typed"}
    assert any(n.endswith("LICENSE") for n in names)


def test_the_installed_wheel_finds_its_descriptions(installed, tmp_path):
    code = (
        "import visiontrain; from visiontrain.paths import datasets_dir, cfg_dir, weights_dir;"
        "from visiontrain.data.description import load_description;"
        "print(visiontrain.__file__); print(load_description('coco.yaml').file);"
        "print((cfg_dir() / 'models' / 'yolov8.yaml').is_file(), (weights_dir() / 'weights.yaml').is_file())"
    )
    result = _python(installed, tmp_path, "-c", code)
    module, description, there = result.stdout.splitlines()
    assert Path(module) == installed / "visiontrain" / "__init__.py"
    assert Path(description) == installed / "visiontrain" / "datasets" / "coco.yaml"
    assert there == "True True"


def test_the_installed_command_plans(installed, tmp_path):
    result = _python(installed, tmp_path, "-m", "visiontrain", "plan", "data=coco", "batch=8")
    assert "118287 images" in result.stdout
    assert (installed / "bin" / "visiontrain").is_file() or (installed / "Scripts").is_dir()


def _python(installed: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(installed), "VISIONTRAIN_CACHE": str(cwd / "cache")}
    result = subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result
