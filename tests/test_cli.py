from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

import visiontrain
from visiontrain import actions, cli
from visiontrain.config.help import VERBS
from visiontrain.config.schema import (
    CheckConfig,
    CompareConfig,
    ConvertConfig,
    ExportConfig,
    PlanConfig,
    PredictConfig,
    TrainConfig,
    ValConfig,
)
from visiontrain.config.values import leaves_of
from visiontrain.errors import (
    ConfigError,
    DataError,
    Interrupted,
    OutOfMemory,
    TrainingStopped,
    VisionTrainError,
    WeightsError,
)


def run(*words: str, cwd=None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "visiontrain", *words], cwd=cwd, capture_output=True, text=True)


@pytest.mark.parametrize("words", [["help"], ["--help"], ["-h"]])
def test_help_lists_the_verbs_that_work(words, capsys):
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    for verb in VERBS:
        assert f"\n  {verb} " in said


@pytest.mark.parametrize(
    ("verb", "settings"),
    [
        ("train", TrainConfig),
        ("val", ValConfig),
        ("plan", PlanConfig),
        ("check", CheckConfig),
        ("compare", CompareConfig),
        ("convert", ConvertConfig),
        ("export", ExportConfig),
        ("predict", PredictConfig),
    ],
)
@pytest.mark.parametrize("form", [("help", "{}"), ("{}", "--help"), ("{}", "-h"), ("{}", "data=x", "help")])
def test_help_of_a_verb_lists_its_settings_and_nothing_else(verb, settings, form, capsys):
    assert cli.main([word.format(verb) for word in form]) == 0
    said = capsys.readouterr().out
    listed = [line.split("=")[0].strip() for line in said.splitlines() if line.startswith("  ") and line[2] != " "]
    assert sorted(listed) == sorted(leaves_of(settings))
    assert max(map(len, said.splitlines())) <= 110


def test_help_shows_default_range_and_group(capsys):
    cli.main(["help", "train"])
    said = capsys.readouterr().out
    assert "batch=16" in said and "[at least 1]" in said and "\nAugmentation\n" in said
    assert "workers=auto" in said and "[use or drop]" in said and "exist_ok=false" in said
    assert said.index("  data=") < said.index("  epochs=") < said.index("\nOptimizer\n") < said.index("  lr0=")


@pytest.mark.parametrize(
    "form", [("help", "lr0"), ("help", "train", "lr0"), ("train", "lr0", "-h"), ("help", "--lr0=1")]
)
def test_help_of_one_setting(form, capsys):
    assert cli.main(list(form)) == 0
    said = capsys.readouterr().out
    assert said.startswith("lr0=0.01  in train")
    assert "learning rate after warm-up" in said and "takes a number above 0" in said
    assert len(said.splitlines()) == 3


def test_help_of_a_setting_tells_verbs_apart_and_where_to_read_on(capsys):
    assert cli.main(["help", "conf", "nbs"]) == 0
    said = capsys.readouterr().out
    assert "conf=0.001  in train, val, check\n" in said and "conf=0.25  in predict\n" in said
    assert "nbs=64  in train, plan, check\n" in said and "more in docs/accumulation.md" in said


def test_help_finds_settings_that_speak_of_a_word(capsys):
    assert cli.main(["help", "Learning"]) == 0
    said = capsys.readouterr().out
    assert "  lr0=0.01 " in said and "  cos_lr=false " in said and "(train, check)" in said and "  box=" not in said
    assert cli.main(["help", "predict", "overlap"]) == 0
    assert "  iou=0.7 " in (said := capsys.readouterr().out) and "(predict)" not in said


def test_a_verb_that_is_a_setting_too_leads_to_it(capsys):
    cli.main(["help", "val"])
    assert "visiontrain help train val" in capsys.readouterr().out
    assert cli.main(["help", "train", "val"]) == 0
    assert capsys.readouterr().out.startswith("val=true  in train\n")


def test_the_pages_that_help_leads_to_speak_of_the_setting(checkout):
    from visiontrain.config.help import PAGES

    known = {name for settings, _, _ in VERBS.values() if settings for name in leaves_of(settings)}
    for page, names in PAGES.items():
        text = (checkout / page).read_text("utf-8")
        assert set(names) <= known
        assert not [name for name in names if not re.search(rf"\b{name}\b", text)], page


def test_every_setting_of_training_has_its_section():
    from visiontrain.config.help import PLACES, sections

    shown = sections(TrainConfig)
    assert next(iter(shown)) == "Used most" and len(shown["Used most"]) == 10
    assert "More" not in shown and set(PLACES["Run"]) > {leaf.name for leaf in shown["Run"]}


def test_every_example_of_the_help_is_accepted():
    from visiontrain.config.parse import parse_words

    for settings, _, example in VERBS.values():
        if settings:
            parse_words(settings, example.split()[2:])


def test_version(capsys):
    assert cli.main(["version"]) == cli.main(["--version"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"visiontrain {visiontrain.__version__}"] * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian", "data=x"], "did you mean train?"),
        (["data=x", "train"], "the verb comes first, for example visiontrain train data=x"),
        (
            ["infer"],
            "the verbs are train, val, predict, export, plan, check, convert, compare, help, completion, version",
        ),
        (["help", "trian"], "did you mean train?"),
        (["train", "bacth=8"], "did you mean batch?"),
        (["train", "data=x", "device=mps"], "mps"),
        (["TRAIN"], "did you mean train?"),
        (["train data=x"], "quotes make one word of several; write visiontrain train data=x"),
        (["help", "bacth"], "did you mean batch?"),
        (["help", "train", "sourec"], "no setting 'sourec'"),
        (["help", "cutmix"], "this version cannot do that"),
        (["help", "train", "split"], "split changes nothing in train (it is a setting of val)"),
    ],
)
def test_usage_mistakes_give_code_2_and_no_traceback(words, said, capsys):
    assert cli.main(words) == 2
    streams = capsys.readouterr()
    assert said in streams.err and not streams.out


def test_no_words_show_the_help_and_fail(capsys):
    assert cli.main([]) == 2
    assert "visiontrain VERB" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["help", "train"],
        ["help", "learning"],
        ["completion", "bash"],
        ["train", "bacth=8"],
        ["check", "bacth=8"],
        ["compare", "nothing", "here"],
        ["plan", "batch=8", "images=1000"],
        ["version"],
    ],
)
def test_what_is_answered_at_once_loads_no_torch(words):
    code = (
        "import sys; from visiontrain.cli import main; main(sys.argv[1:]);"
        "print([m for m in ('torch', 'cv2', 'numpy') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_python_m_exits_with_the_code():
    assert run("trian").returncode == 2
    assert run("version").stdout.strip() == f"visiontrain {visiontrain.__version__}"


def test_plan_prints_sentences_and_counts(capsys):
    assert cli.main(["plan", "batch=8", "images=118287"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("8 images x 8 micro-batches x 1 rank = 64 images per update (nbs 64); 118287 images = 14786")
    assert "nothing about the memory of a device, nor about speed" in said


def test_plan_ends_with_one_line_of_json(capsys):
    assert cli.main(["plan", "batch=24", "images=1000", "format=json"]) == 0
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (facts["accumulate"], facts["images_per_update"], facts["updates_per_epoch"]) == (3, 72, 14)
    assert facts["weight_decay"] == pytest.approx(5e-4 * 72 / 64)


def test_plan_reaches_past_this_machine(capsys):
    """Half a thousand ranks and a hundred million images: counted, nothing touched."""
    assert cli.main(["plan", "batch=4096", "ranks=512", "images=100000000", "format=json"]) == 0
    *said, line = capsys.readouterr().out.splitlines()
    facts = json.loads(line)
    assert (facts["images_per_rank"], facts["updates_per_epoch"], facts["reduction"]) == (8, 24415, "ddp")
    assert facts["model"] == {"name": "yolov8n", "parameters": 3157184, "classes": 80, "classes_assumed": True}
    assert facts["moved"] == {"gradient_bytes": 12628736, "statistics_bytes": 84736, "ring_bytes": 25377282}
    assert facts["index"]["bytes"] == pytest.approx(1e8 * (24 + 64 + 20 * 7.27), rel=1e-3)
    assert "(ddp, reduce=auto: a window is one micro-batch)" in said[3]
    assert "12.6 MB of gradient and 84736 bytes of BatchNorm's statistics over the ranks" in said[4]
    assert "at 80 classes, which is assumed" in said[4] and "25.4 MB, 2 x 511/512 of it. Computed" in said[4]
    assert "takes 23.3 GB, once on the host that reads it" in said[5]


def test_plan_asks_data_and_checkpoint_what_they_know(tmp_path, tiny, user_cache, capsys):
    import torch

    def facts(*words):
        assert cli.main(["plan", *words, "batch=8", "ranks=2", "format=json"]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    known = facts(f"data={tiny}", "model=yolov8s")
    assert known["model"]["classes"] == 2 and not known["model"]["classes_assumed"]
    paths = [str(path) for path in (tiny.parent / "images/train").iterdir()]
    assert known["index"]["bytes_per_path"] == sum(map(len, paths)) / 13 and not known["index"]["path_assumed"]
    about = {"family": "yolov8", "name": "yolov8s", "nc": 3, "names": ["a", "b", "c"], "stride": 32, "norm": "group"}
    content = {"schema_version": 1, "kind": "model", "model": about, "settings": {}, "weights": {}}
    torch.save(content, tmp_path / "best.pt")
    started = facts(f"model={tmp_path / 'best.pt'}")
    assert (started["model"]["name"], started["model"]["classes"]) == ("yolov8s", 3)
    assert started["normalisation"]["norm"] == "group" and started["moved"]["statistics_bytes"] == 0
    assert facts("data=shapes")["images"] == 240 and not user_cache.exists()  # nothing is drawn to be counted
    assert cli.main(["plan", "model=yolov8nn"]) == 2
    assert "did you mean 'yolov8n'" in capsys.readouterr().err


def test_plan_refuses_a_batch_that_ranks_cannot_share(capsys):
    assert cli.main(["plan", "batch=7", "ranks=2"]) == 2
    assert "6 and 8" in capsys.readouterr().err


def test_plan_counts_the_images_that_are_there(shared, capsys):
    assert cli.main(["plan", f"data={shared / 'data' / 'bccd' / 'data.yaml'}", "batch=8", "format=json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["images"] == 205


def test_plan_takes_the_count_of_the_description_where_images_are_elsewhere(tmp_path, capsys):
    file = tmp_path / "big.yaml"
    file.write_text("path: nowhere\ntrain: images\nval: images\nnames: [cat]\nimages: {train: 118287}\n")
    assert cli.main(["plan", f"data={file}", "format=json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["images"] == 118287
    file.write_text("path: nowhere\ntrain: images\nval: images\nnames: [cat]\n")
    assert cli.main(["plan", f"data={file}"]) == 3
    assert cli.main(["plan", f"data={file}", "images=10"]) == 0  # counted by the user: the data is not touched


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (DataError("x"), 3),
        (WeightsError("x"), 4),
        (OutOfMemory("x"), 5),
        (TrainingStopped("x"), 1),
        (VisionTrainError("x"), 1),
        (Interrupted("x"), 130),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(error, code, monkeypatch, capsys):
    def fail(config):
        raise error

    monkeypatch.setattr(actions, "run_training", fail)
    assert cli.main(["train", "data=x"]) == code
    said = capsys.readouterr().err
    assert said.startswith("visiontrain: ") and "Traceback" not in said


def test_a_reader_that_has_read_enough_is_no_fault():
    child = subprocess.Popen(
        [sys.executable, "-m", "visiontrain", "help", "train"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    child.stdout.close()  # as head does after its lines
    assert child.stderr.read() == "" and child.wait() == 1


def test_a_fault_of_ours_shows_its_traceback():
    code = (
        "import sys, visiontrain.actions as actions, visiontrain.cli as cli\n"
        "actions.run_plan = lambda config: 1 / 0\n"
        "sys.exit(cli.main(['plan']))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1 and "ZeroDivisionError" in result.stderr


def test_words_arrive_in_the_settings(monkeypatch):
    seen = []
    monkeypatch.setattr(actions, "run_training", seen.append)
    assert cli.main(["train", "data=x", "batch=8", "lr0=1e-3"]) == 0
    assert (seen[0].batch, seen[0].optim.lr0, seen[0].given) == (8, 0.001, {"data", "batch", "lr0"})


def test_missing_data_and_weights_have_their_codes(tmp_path):
    assert cli.main(["val", f"model={tmp_path / 'none.pt'}", "data=shapes"]) == 4
    assert cli.main(["train", f"data={tmp_path / 'none.yaml'}", f"project={tmp_path}"]) == 3
