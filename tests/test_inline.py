"""What is shown in a notebook is small, escaped, and has no ground of its own; elsewhere it is text."""

from __future__ import annotations

import re
import traceback

import cv2
import numpy as np
import pytest

import visiontrain
from visiontrain import inline
from visiontrain.api import Metrics, Run
from visiontrain.errors import ConfigError, Interrupted, empty_frames, said_in_python
from visiontrain.record.events import EpochEnded, EpochStarted, RunEnded, RunStarted, WindowClosed
from visiontrain.record.sinks.notebook import LATEST, Inline


@pytest.fixture
def cell(monkeypatch):
    """The areas under a cell, each as the list of what it showed."""
    areas: list[list[str]] = []

    def show(self, html, text=""):
        if not hasattr(self, "shown"):
            self.shown = []
            areas.append(self.shown)
        self.shown.append(html)

    monkeypatch.setattr(inline.Area, "show", show)
    return areas


def test_what_says_itself_in_sentences_is_a_card_here_and_lines_there():
    plan = visiontrain.plan(images=100, batch=8)
    assert repr(plan) == "\n".join(plan.sentences())
    assert all(f"<div>{sentence}</div>" in plan._repr_html_() for sentence in plan.sentences())


def test_text_is_no_markup():
    shown = inline.card(["a<b"], "<i>") + inline.table(["<c>"], [["&"]], note="<n>")
    assert not re.search("a<b|<i>|<c>|>&<|<n>", shown) and "&lt;c&gt;" in shown


def ended(epoch, best=False):
    return EpochEnded(epoch, 1.0, None, {"box_loss": 1.0}, {"ap": epoch / 1000}, 0.1, best, 5.0, 0)


def test_a_long_run_has_one_table_of_the_latest_epochs_and_the_best_and_one_bar(cell, capsys):
    sink = Inline()
    sink(RunStarted("runs/x", ("a plan",), {}, 900, 10, ("box_loss",)))
    for epoch in range(1, 61):
        sink(EpochStarted(epoch, 900, 10))
        for _ in range(50):
            sink(WindowClosed(epoch, None, 0, 0, 1, {}, {}, 0, False, 0, 0, 0, 1, True, "", 0, 0, 0))
        sink(ended(epoch, best=epoch == 7))
    sink(RunEnded("interrupted", "SIGINT; go on with: visiontrain train resume=my runs/x/weights/last.pt"))
    plan, table, bar = cell
    assert plan == [inline.card(["a plan"])]
    rows = re.findall(r"<tr[^>]*><td>(\d+)/900</td>", table[-1])
    assert rows == ["7", *map(str, range(61 - LATEST, 61))] and '<tr style="font-weight:600"><td>7/900' in table[-1]
    assert len(table[-1]) < 6000 and len(table) == 61
    assert bar[-1] == "" and len(bar) < 60 * 4  # an update a window would be 3000
    assert 'model.train(resume="my runs/x/weights/last.pt")' in capsys.readouterr().out


def test_a_bar_is_drawn_now_and_then_and_leaves_nothing(cell):
    with inline.InlineBar(total=1000, desc="reading", unit="img", disable=None) as bar:
        for _ in range(1000):
            bar.update()
    assert "width:0.0%" in cell[0][0] and cell[0][-1] == "" and len(cell[0]) < 10
    with inline.InlineBar(total=5, delay=5) as bar:
        bar.update(5)
    assert len(cell) == 1 or cell[1] == [""]  # too quick to be shown


@pytest.fixture
def run(tmp_path):
    (tmp_path / "metrics.csv").write_text("epoch,train/box_loss,metrics/ap\n1,3.5,0.1\n2,2.5,\n3,1.5,0.4\n")
    scores = {"ap": 0.4, "ap50": 0.7, "precision": None, "recall": 0.5}
    return Run(tmp_path, Metrics(ap=0.4, ap50=0.7, recall=0.5), "finished", {"cat": scores, "<dog>": scores})


def test_a_run_shows_scores_and_curves_and_links_to_its_report(run, monkeypatch):
    assert repr(run) == f"Run(finished, AP 0.400, AP50 0.700: {run.folder})"
    card = run._repr_html_()
    assert "Finished, 3 epochs" in card and "&lt;dog&gt;" in card and "report.html" not in card
    assert re.findall(r'points="([^"]+)"', card)[1] == "0.0,80.0 260.0,0.0"  # the epoch without a score is left out
    (run.folder / "report.html").write_text("<p>a 'report'</p>")
    assert f'href="file://{run.folder}/report.html"' in run._repr_html_()
    monkeypatch.chdir(run.folder.parent)
    assert f'href="{run.folder.name}/report.html"' in run._repr_html_()


def test_the_report_is_shown_here_and_named_there(run, cell, monkeypatch, capsys):
    with pytest.raises(ConfigError, match=r"report\.html: there is no report of this run"):
        run.report()
    path = run.folder / "report.html"
    path.write_text('<p>a "report" & more</p>')
    assert run.report() == path and capsys.readouterr().out == f"{path}\n" and not cell
    monkeypatch.setattr("visiontrain.api.in_notebook", lambda: True)
    run.report(height=300)
    assert 'srcdoc="&lt;p&gt;a &quot;report&quot; &amp; more&lt;/p&gt;"' in cell[0][0] and "height:300px" in cell[0][0]


def test_results_show_pictures_of_bounded_size(tmp_path):
    from visiontrain.prediction.results import SHOWN, Boxes, Found, Results
    from visiontrain.prediction.sources import Frame

    picture = np.random.default_rng(0).integers(0, 255, (900, 1200, 3), np.uint8)
    row = np.array([[10, 20, 1000, 800, 0.9, 0]], np.float32)
    result = Results(Frame(picture, "a<b.jpg", None), {0: "cat"}, Boxes(row, (900, 1200)), {})
    shown = cv2.imdecode(np.frombuffer(result._repr_jpeg_(), np.uint8), cv2.IMREAD_COLOR)
    assert shown.shape == (540, 720, 3)

    def gone():
        raise visiontrain.VisionTrainError("b.jpg: is gone")

    lost = Results(Frame(picture, "b.jpg", gone), {0: "cat"}, Boxes(row, (900, 1200)), {}).forget_image()
    found = Found([lost, *[result] * 1000])
    assert lost._repr_jpeg_() is None and isinstance(found[2:5], Found) and found[1] is result
    html = found._repr_html_()
    assert html.count("<img") == SHOWN - 1 and "b.jpg: is gone" in html and "a&lt;b.jpg: 1 cat" in html
    assert f"{SHOWN} of 1001 pictures" in html and len(html) < SHOWN * 50_000
    assert repr(found).count("\n") == SHOWN and repr(found).endswith(f"... and {1001 - SHOWN} more]")


def test_an_error_is_told_in_the_words_of_python():
    error = Interrupted("SIGINT; go on with: visiontrain train resume=a b/last.pt")
    error.add_note("in picture 3")
    assert error._render_traceback_() == [
        '\x1b[31mInterrupted\x1b[0m: SIGINT; go on with: model.train(resume="a b/last.pt")',
        "in picture 3",
    ]
    assert said_in_python("resume=x.pt") == "resume=x.pt"


def test_an_error_that_is_kept_holds_nothing_of_what_it_came_through():
    def deep():
        held = np.zeros(3)
        raise KeyError(held.size)

    try:
        try:
            deep()
        except KeyError as cause:
            raise ConfigError("x") from cause
    except ConfigError as error:
        empty_frames(error)
        frames = [frame for frame, _ in traceback.walk_tb(error.__cause__.__traceback__)]
        assert frames[-1].f_code.co_name == "deep" and not frames[-1].f_locals
