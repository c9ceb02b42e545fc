"""On a copy of real pictures with a fault of each kind, `check` names all by file and line and changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

from tools.faulty_data import FAULTS, Copy, hashes, named, plant
from visiontrain import cli
from visiontrain.checks.data import examine
from visiontrain.data.description import load_description


def test_every_planted_fault_is_named_by_file_and_line(shared, tmp_path, capsys):
    copy = Copy(str(shared / "data" / "bccd" / "data.yaml"), tmp_path, pictures=len(FAULTS) + 2)
    faults = plant(copy)
    before = hashes(tmp_path)
    assert cli.main(["check", f"data={tmp_path / 'data.yaml'}", "imgsz=320", "preflight=false", "format=json"]) == 3
    findings = json.loads(capsys.readouterr().out.splitlines()[-1])["findings"]
    assert len(faults) >= 10
    assert [fault for fault in faults if not named(fault, findings)] == []
    others = [f for f in findings if not any(named(fault, [f]) for fault in faults)]
    assert {Path(f["file"]).name for f in others} <= {"BloodImage_00037.jpg"}  # the leak that was there, see below
    assert hashes(tmp_path) == before


def test_of_real_pictures_only_a_real_leak_is_named(shared):
    """BloodImage_00037 in val is BloodImage_00038 in train with another focus; no other pair of the 292 is alike."""
    report = examine(load_description(shared / "data" / "bccd" / "data.yaml"), 320)
    (finding,) = report.findings
    assert finding.kind == "picture_nearly_in_both" and finding.file.endswith("val/BloodImage_00037.jpg")
    assert "train/BloodImage_00038.jpg" in finding.message
