"""docs/contracts.md against real files: every key that is written is documented, every documented key is written."""

from __future__ import annotations

import csv
import json
import re
import shutil
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
import yaml

from visiontrain.cli import main
from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.training.run import train

JUDGED = {"val_updates": 1, "average_best": 2}  # so that there is all that can be
NAMES = {bool: "bool", int: "int", float: "float", str: "str", list: "list", type(None): "null"}


def documented(text: str, heading: str) -> dict[str, str]:
    """Key -> type of the table under ``heading``."""
    section = re.split(rf"^#+ {re.escape(heading)}.*$", text, flags=re.MULTILINE)[1]
    table = re.split(r"^#", section, flags=re.MULTILINE)[0]
    rows = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in table.splitlines() if line[:1] == "|"]
    return {key: kind for key, kind, *_ in rows[2:]}


def differences(value: dict, table: dict[str, str], parent: str = "") -> list[str]:
    """What ``value`` has that the table does not describe so, and what the table asks for that it lacks."""
    found = []
    for key, item in value.items():
        name = parent + str(key)
        if name not in table:
            found.append(f"{name} is not documented")
        elif not fits(item, table[name]):
            found.append(f"{name} is {item!r:.40}, documented as {table[name]}")
        elif table[name] == "object":
            found += differences(item, table, name + ".")
    own = [name for name in table if name.startswith(parent) and "." not in name[len(parent) :]]
    missing = [name for name in own if name[len(parent) :] not in value and "optional" not in table[name]]
    return found + [f"{name} is documented but missing" for name in missing]


def fits(item: object, kind: str) -> bool:
    kinds = kind.removesuffix(", optional").split(" or ")
    if isinstance(item, dict):
        tensors = bool(item) and all(isinstance(tensor, torch.Tensor) for tensor in item.values())
        return bool({"map", "object"} & set(kinds)) or (kinds == ["tensors"] and tensors)
    return NAMES[type(item)] in kinds or (type(item) is int and "float" in kinds)


def number(text: str) -> object:
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


@pytest.fixture(scope="module")
def contracts(checkout) -> str:
    return (checkout / "docs" / "contracts.md").read_text("utf-8")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a real run: two epochs on six pictures."""
    root = tmp_path_factory.mktemp("contracts")
    for split, count in (("train", 6), ("val", 2)):
        for kind in ("images", "labels"):
            (root / kind / split).mkdir(parents=True)
        for index in range(count):
            picture = np.random.default_rng(index).integers(0, 255, (64, 64, 3), dtype=np.uint8)
            cv2.imwrite(str(root / "images" / split / f"{index}.png"), picture)
            (root / "labels" / split / f"{index}.txt").write_text(f"{index % 2} 0.5 0.5 0.5 0.5\n")
    with (root / "labels" / "train" / "3.txt").open("a") as file:
        file.write("0 0.5 0.5 0.1 0\n")  # for data_findings.txt
    (root / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [cat, dog]\n")
    settings = {"data": str(root / "data.yaml"), "project": str(root / "runs"), "device": "cpu", "workers": 0}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a busy machine more threads wait for each other at every tiny layer
    yield train(build(TrainConfig, {**settings, "epochs": 2, "batch": 2, "nbs": 4, "imgsz": 64, **JUDGED})).folder
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def checked(run):
    """What a real check ends with, of the data of that run with one fault in it."""
    labels = run.parents[1] / "labels" / "train" / "0.txt"
    before = labels.read_text()
    labels.write_text(before + "9 0.5 0.5 0.5 0.5\n")
    words = [f"data={run.parents[1] / 'data.yaml'}", "epochs=2", "batch=2", "nbs=4", "imgsz=64", "workers=0"]
    with redirect_stdout(StringIO()) as said:
        code = main(["check", *words, "device=cpu", "warmup_epochs=0", "format=json"])
    labels.write_text(before)
    return code, json.loads(said.getvalue().splitlines()[-1])


def test_the_line_of_check(checked, contracts):
    code, line = checked
    assert code == 3 and line["schema_version"] == 1
    assert differences(line, documented(contracts, "The line of check")) == []
    for row in line["findings"]:
        assert differences(row, documented(contracts, "A finding of check")) == []
    for row in line["preflight"]:
        assert differences(row, documented(contracts, "A row of the preflight")) == []
    assert {row["verdict"] for row in line["preflight"]} <= {"pass", "note"}, line["preflight"]
    assert [f["kind"] for f in line["findings"]].count("class_unknown") == 1


@pytest.mark.parametrize("words", [["images=1000"], ["ranks=2"]])
def test_line_of_plan(contracts, capsys, words):
    assert main(["plan", *words, "format=json"]) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    table = documented(contracts, "The line of plan")
    if line["index"] is None:
        table = {key: kind for key, kind in table.items() if not key.startswith("index.")}
    assert line["schema_version"] == 1
    assert differences(line, table) == []


@pytest.mark.parametrize("name", ["weights/last.pt", "weights/best.pt"])
def test_checkpoint(run, contracts, name):
    content = torch.load(run / name, weights_only=True)
    assert differences(content, documented(contracts, name)) == []


def test_run_json(run, contracts):
    record = json.loads((run / "run.json").read_text("utf-8"))
    assert differences(record, documented(contracts, "run.json")) == []


def test_the_versions_in_run_json_are_those_of_the_document(run, contracts):
    schemas = json.loads((run / "run.json").read_text("utf-8"))["schemas"]
    written = {name.lower(): int(v) for name, v in re.findall(r"^## (.+) \(version (\d+)\)$", contracts, re.MULTILINE)}
    assert {name.removesuffix(" yaml"): version for name, version in written.items()} == schemas


def test_updates_jsonl(run, contracts):
    rows = [json.loads(line) for line in (run / "updates.jsonl").read_text("utf-8").splitlines()]
    assert [row["updates_attempted"] for row in rows] == list(range(1, len(rows) + 1))
    assert [differences(row, documented(contracts, "updates.jsonl")) for row in rows] == [[]] * len(rows)


def test_metrics_csv(run, contracts):
    table = documented(contracts, "metrics.csv")
    with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(table)
    read = [{key: number(text) for key, text in row.items()} for row in rows]
    assert [differences(row, table) for row in read] == [[], []]


def test_validations_csv(run, contracts):
    with (run / "validations.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    table = documented(contracts, "validations.csv")
    assert rows and list(rows[0]) == list(table)
    assert [differences({key: number(text) for key, text in row.items()}, table) for row in rows] == [[]] * len(rows)


def test_the_answer_of_compare(run, contracts, capsys):
    """The run against itself and against a copy with another setting and another optimizer."""
    other = shutil.copytree(run, run.parent / "other")
    record = json.loads((other / "run.json").read_text("utf-8"))
    record["given"]["settings"] |= {"lr0": 0.5, "of_tomorrow": 1}
    record["computed"]["optimizer"]["lr0"] = 0.5
    (other / "run.json").write_text(json.dumps(record), "utf-8")
    for second, differing in ((run, set()), (other, {"lr0", "of_tomorrow"})):
        assert main(["compare", str(run), str(second), "format=json"]) == 0
        answer = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert differences(answer, documented(contracts, "The answer of `compare`")) == []
        assert answer["given"].keys() == differing
        assert [row.keys() for row in answer["points"]] == [{"images_seen", "a", "b", "difference"}] * 2
        assert [row.keys() for row in answer["a"]["curve"]] == [{"epoch", "images_seen", "ap"}] * 2
        assert all(pair.keys() == {"a", "b", "difference"} for pair in answer["measured"].values())
        assert {"best.ap", "last.ap50", "updates_applied", "memory_peak"} <= answer["measured"].keys()
    assert answer["given"]["of_tomorrow"] == {"a": None, "b": 1}
    assert answer["computed"].keys() == {"optimizer.lr0"}


def test_the_line_and_the_file_of_predict(run, contracts, capsys, tmp_path):
    picture = next((run.parents[1] / "images" / "val").iterdir())
    words = [f"model={run / 'weights' / 'best.pt'}", f"source={picture}", "device=cpu", "conf=0.0001", "format=json"]
    assert main(["predict", *words, "save=false", "save_json=true", "save_txt=true", f"project={tmp_path}"]) == 0
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert differences(line, documented(contracts, "The line of predict")) == [] and line["boxes"]
    assert differences(line["boxes"][0], documented(contracts, "A box of predict")) == []
    content = json.loads((tmp_path / "predict" / "predictions.json").read_text("utf-8"))
    assert differences(content, documented(contracts, "predictions.json of predict")) == []
    assert {"schema_version": 1, **content["pictures"][0]} == line
    rows = (tmp_path / "predict" / "labels" / f"{picture.stem}.txt").read_text().splitlines()
    assert len(rows) == len(line["boxes"]) and {len(row.split()) for row in rows} == {5}


def test_curves_json(run, contracts):
    content = json.loads((run / "curves.json").read_text("utf-8"))
    assert differences(content, documented(contracts, "curves.json")) == []
    rows = [*content["precision_over_recall"], *(row for rows in content["over_confidence"].values() for row in rows)]
    assert len(rows) == 4 * len(content["names"]) and {len(row) for row in rows} == {101}


def test_data_findings(run, contracts):
    """A line is FILE:LINE: message, in the file and in the document's example."""
    (line,) = (run / "data_findings.txt").read_text("utf-8").splitlines()
    file, number, message = re.fullmatch(r"(.+\.txt):(\d+): (.+)", line).groups()
    assert Path(file).read_text().splitlines()[int(number) - 1] == "0 0.5 0.5 0.1 0"
    section = contracts.split("## data_findings.txt")[1].split("\n## ")[0]
    assert re.search(r"^    /\S+/7\.txt:3: (.+)$", section, re.MULTILINE)[1] == message
    assert json.loads((run / "run.json").read_text("utf-8"))["measured"]["data"]["findings"] == 1


def test_shipped_descriptions(checkout, contracts):
    table = documented(contracts, "Description YAML")
    files = sorted((checkout / "datasets").glob("*.yaml"))
    assert files
    for file in files:
        assert differences(yaml.safe_load(file.read_text("utf-8")), table) == [], file.name


def test_the_comparison_sees_what_is_missing_added_or_of_another_type():
    table = {"a": "int", "b": "object", "b.c": "float", "d": "str, optional", "e": "float or null"}
    assert differences({"a": 1, "b": {"c": 2}, "e": None}, table) == []
    assert differences({"a": "1", "b": {"c": True, "f": 0}}, table) == [
        "a is '1', documented as int",
        "b.c is True, documented as float",
        "b.f is not documented",
        "e is documented but missing",
    ]
