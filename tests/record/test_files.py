from __future__ import annotations

import errno
import json
import math

import numpy as np
import pytest

from visiontrain.errors import ConfigError
from visiontrain.record.files import run_folder, write_atomic, write_json, write_text


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "last.pt"
    path.write_bytes(b"good")

    def half(file):
        file.write(b"ha")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, half)
    assert path.read_bytes() == b"good"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_is_overwritten(tmp_path):
    (tmp_path / ".run.json.tmp").write_text("half of a fi")
    write_text(tmp_path / "run.json", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    assert (tmp_path / "run.json").read_text() == "whole"


def test_readers_see_the_old_file_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "a"
    write_text(path, "old")
    seen = []

    def write(file):
        file.write(b"new")
        file.flush()
        seen.append(path.read_text())

    write_atomic(path, write)
    assert (seen, path.read_text()) == (["old"], "new")


def test_json_is_strict_and_numbers_come_back(tmp_path):
    value = {
        "a": 0.1 + 0.2,
        "b": math.nan,
        "c": [math.inf, 1],
        "d": tmp_path,
        "e": np.float64(0.3),
        "f": ("x", None, True),
    }
    write_json(tmp_path / "v.json", value)

    def refuse(word):
        raise AssertionError(word)

    read = json.loads((tmp_path / "v.json").read_text(), parse_constant=refuse)
    assert read == {"a": 0.1 + 0.2, "b": None, "c": [None, 1], "d": str(tmp_path), "e": 0.3, "f": ["x", None, True]}


def test_run_folders_are_never_shared(tmp_path):
    project = str(tmp_path / "runs" / "train")
    made = [run_folder(project).name, run_folder(project).name, run_folder(project, "cells").name]
    assert made == ["run", "run2", "cells"]
    assert run_folder(project, "cells").name == "cells2"
    assert run_folder(project, "cells", exist_ok=True).name == "cells"


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(ConfigError, match="runs"):
        run_folder(str(tmp_path / "runs"), "a")
    with pytest.raises(ConfigError, match="is a file"):
        run_folder(str(tmp_path), "runs", exist_ok=True)
