"""report.html from a real run: what it says, that it escapes, that it stays small, and what it is in every state of a run."""

from __future__ import annotations

import json
import os
import re
import signal
from html import escape, unescape
from pathlib import Path

import cv2
import numpy as np
import pytest

import visiontrain
from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.errors import ConfigError, Interrupted
from visiontrain.record.events import RunEnded, WindowClosed
from visiontrain.record.report.run import write_report
from visiontrain.record.report.source import MOST_ROWS, sampled
from visiontrain.record.report.svg import chart, thinned
from visiontrain.record.sinks.report import Report
from visiontrain.training.run import train

NAMES = ("<script>alert(1)</script>", "\"&'")
REFRESH = 'http-equiv="refresh"'


def words(html: str) -> str:
    """What a person reads, in one line."""
    body = re.sub(r"<(style|script)>.*?</\1>", " ", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", body)))


def sections(html: str) -> list[str]:
    return re.findall(r'<section id="(\w+)"', html)


ALL = ["glance", "curves", "scores", "pictures", "record", "memory", "data", "settings", "environment"]


def test_a_finished_run(hostile_run):
    """The page that the run itself left."""
    html = (hostile_run / "report.html").read_text("utf-8")
    record = json.loads((hostile_run / "run.json").read_text("utf-8"))
    measured, said = record["measured"], words(html)
    assert sections(html) == ALL
    assert f"Best AP {measured['metrics']['best']['ap']:.3f}" in said and "Finished 2 epochs" in said
    assert "26 of 26 planned" in said and "7 updates attempted, 7 applied, of 7 planned" not in said
    for sentence in (*record["plan"], *record["warnings"]):
        assert re.sub(r"\s+", " ", sentence) in said
    assert len(re.findall(r"<figure class=\"panel chart\"", html)) == 11 and html.count('src="data:image/jpeg') == 7
    assert "epochs 2 passes over" in said and "workers=0" in said  # given settings first, and the command
    assert REFRESH not in html


def test_names_and_paths_are_text(hostile_run):
    html = (hostile_run / "report.html").read_text("utf-8")
    for name in (*NAMES, str(hostile_run)):
        assert name not in html and escape(name) in html


def test_it_fetches_nothing_and_runs_no_script_but_its_own(hostile_run):
    html = (hostile_run / "report.html").read_text("utf-8")
    addresses = re.findall(r'<[^>]* (?:src|href|action|srcset|data)="([^"]{1,9})', html)
    assert len(addresses) > 10 and all(address.startswith(("#", "data:")) for address in addresses)
    assert not re.search(r"url\(|@import|fetch\(|XMLHttp|WebSocket|eval\(|innerHTML|<[^>]* on\w+=", html)
    assert html.count("<script") == 1 and "default-src 'none'" in unescape(html)


def test_large_pictures_are_made_small(changed_run):
    folder = changed_run()
    noise = np.random.default_rng(0).integers(0, 255, (1400, 1400, 3), np.uint8)
    written = cv2.imencode(".jpg", noise, [cv2.IMWRITE_JPEG_QUALITY, 95])[1].tobytes()
    pictures = list(folder.glob("*.jpg"))
    for path in pictures:
        path.write_bytes(written)
    assert len(pictures) == 7 and 7 * len(written) > 10e6
    report = write_report(folder)
    assert report.stat().st_size < 5e6 and report.read_text("utf-8").count('src="data:image/jpeg') == 7


def test_a_run_that_has_closed_no_epoch(changed_run):
    """Right after the start there are run.json and some updates, and nothing else."""
    folder = changed_run({"outcome": "running"}, ["metrics.csv", "curves.json", "*.png", "val_*"])
    record = json.loads((folder / "run.json").read_text("utf-8"))
    nothing = {"epochs": 0, "metrics": {"best": {}, "last": {}}, "per_class": {}, "images_seen": 0, "seconds": 0.0}
    (folder / "run.json").write_text(json.dumps({**record, "measured": {**record["measured"], **nothing}}))
    lines = (folder / "updates.jsonl").read_text().splitlines(keepends=True)
    (folder / "updates.jsonl").write_text("".join(lines[:2]) + lines[2][:40])  # the third is being written
    html = write_report(folder).read_text("utf-8")
    seen = json.loads(lines[1])["images_seen"]
    assert REFRESH in html and "no validation so far" in html
    assert re.search(rf"{seen} of 26 images, about \d+:\d\d left", words(html)) and "Epoch 1 of 2 is open" in html
    (folder / "updates.jsonl").unlink()
    assert "curves" not in sections(write_report(folder).read_text("utf-8"))


@pytest.mark.parametrize("outcome", ["failed", "interrupted"])
def test_a_run_that_came_to_no_end(changed_run, outcome):
    folder = changed_run({"outcome": outcome, "reason": "OSError: <no space>"}, ["curves.json", "val_*"])
    html = write_report(folder).read_text("utf-8")
    assert (
        f"{outcome.capitalize()} with 2 of 2 epochs done: OSError: <no space>." in words(html) and REFRESH not in html
    )


def test_an_old_folder_without_pictures_and_curves(changed_run):
    folder = changed_run(without=["*.jpg", "*.png", "curves.json", "updates.jsonl", "args.yaml"])
    record = json.loads((folder / "run.json").read_text("utf-8"))
    del record["given"]["names"]
    (folder / "run.json").write_text(json.dumps(record))
    html = write_report(folder).read_text("utf-8")
    assert sections(html) == [name for name in ALL if name != "pictures"]
    given = words(html).split("Given for this run")[1].split("at their defaults")[0]
    assert "imgsz 64" in given and "patience" not in given  # what differs from the defaults


def test_pictures_of_another_run_are_left_out(changed_run):
    """exist_ok=true writes into a folder where another run was."""
    folder = changed_run()
    os.utime(folder / "train_batch0.jpg", (0, 0))
    assert write_report(folder).read_text("utf-8").count('src="data:image/jpeg') == 6


def test_made_again_from_python(changed_run):
    folder = changed_run()
    assert visiontrain.report(folder) == folder / "report.html" and (folder / "report.html").is_file()


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no run folder \(there is no run.json in it\)"):
        write_report(tmp_path)


def test_interrupted_and_resumed(short_run, narrow, capsys):
    """The page tells of each end; after the second it is that of a finished run which went on."""

    def stop(event):
        if isinstance(event, WindowClosed) and event.counters.updates_attempted == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        train(build(TrainConfig, short_run), [stop])
    (report,) = Path(short_run["project"]).glob("*/report.html")
    assert "Interrupted with 0 of 1 epochs done" in words(report.read_text("utf-8"))
    assert f"open {report}" in capsys.readouterr().out
    train(build(TrainConfig, {"resume": str(report.parent / "weights" / "last.pt")}))
    said = words(report.read_text("utf-8"))
    assert "Finished 1 epoch in" in said and re.search(r"Went on at [\d: -]+ after 2 updates", said)


def test_the_page_is_made_again_now_and_then(changed_run, make):
    """At the start and the end always, else after 20 s."""
    folder, now = changed_run(), [0.0]
    report, sink = folder / "report.html", Report(folder, clock=lambda: now[0])
    for event, at, expected in (
        (make.started(folder), 0, True), (make.window(1), 19, False), (make.window(2), 20, True),
        (make.epoch_ended(1), 30, False), (RunEnded("finished", ""), 31, True),
    ):  # fmt: skip
        now[0] = at
        sink(event)
        assert report.exists() == expected, event
        report.unlink(missing_ok=True)


def test_a_page_that_takes_long_is_made_seldom(changed_run, make):
    """Each look at the clock takes a second here, so making the page takes some: fifty times that pass before the next."""
    folder, now = changed_run(), iter(range(1000))
    report, sink = folder / "report.html", Report(folder, every=0, clock=lambda: float(next(now)))
    sink(make.started(folder))
    report.unlink()
    looks = 0
    while not report.exists():
        sink(make.window(1))
        looks += 1
    assert 50 <= looks <= 101


def test_a_long_run_is_read_in_no_more_time(tmp_path):
    path = tmp_path / "updates.jsonl"
    line = '{{"updates_attempted": {}, "of": "{}"}}\n'
    path.write_text("".join(line.format(number, "x" * (number % 300)) for number in range(1, 30001)) + '{"updates_att')
    rows = [row["updates_attempted"] for row in sampled(path, MOST_ROWS)]
    assert rows == sorted(set(rows)) and (rows[0], rows[-1]) == (1, 30000)
    assert 0.9 * MOST_ROWS < len(rows) <= MOST_ROWS + 1
    assert max(np.diff(rows)) < 3 * 30000 / MOST_ROWS
    path.write_text("".join(line.format(number, "") for number in range(1, 100)))
    assert [row["updates_attempted"] for row in sampled(path, MOST_ROWS)] == list(range(1, 100))


def test_a_legend_shows_counts_as_counts():
    assert "<b>8</b>" in chart("images per update", [thinned("", [1, 2], [64.0, 8.0])])
    assert "<b>8.500</b>" in chart("a mean", [thinned("", [1, 2], [64.0, 8.5])])
