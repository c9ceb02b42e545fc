"""Words, files and keywords: what people type, and what they are told (CFG-01, CFG-03, CFG-04 of the known failures)."""

from __future__ import annotations

import pytest
import yaml

from visiontrain.config.files import to_yaml
from visiontrain.config.parse import parse_keywords, parse_words
from visiontrain.config.schema import PlanConfig, TrainConfig, ValConfig
from visiontrain.errors import ConfigError


def train(*words):
    return parse_words(TrainConfig, ["data=d.yaml", *words])


def complaint(*words, settings=TrainConfig) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_words(settings, words if settings is not TrainConfig else ["data=d.yaml", *words])
    return str(caught.value)


@pytest.mark.parametrize(
    ("word", "name", "value"),
    [
        ("lr0=1e-3", "lr0", 0.001),
        ("lr0=.5", "lr0", 0.5),
        ("val=no", "val", False),
        ("val=Off", "val", False),
        ("exist_ok=1", "exist_ok", True),
        ("amp=False", "amp", False),
        ("epochs=010", "epochs", 10),
        ("name=no", "name", "no"),
        ("name=1e-3", "name", "1e-3"),
        ("name='my run'", "name", "my run"),
        ('name="my run"', "name", "my run"),
        ("name=", "name", ""),
        (" batch = 4 ", "batch", 4),
        ("optimizer=sgd", "optimizer", "SGD"),
        ("optimizer=ADAMW", "optimizer", "AdamW"),
        ("workers=auto", "workers", -1),
        ("workers=0", "workers", 0),
        ("deterministic=auto", "deterministic", None),
        ("deterministic=yes", "deterministic", True),
        ("resume=True", "resume", "true"),
        ("resume=no", "resume", ""),
        ("resume=runs/train/run/weights/last.pt", "resume", "runs/train/run/weights/last.pt"),
        ("device=0", "device", "0"),
        ("device=cuda:1", "device", "cuda:1"),
        ("save_period=-1", "save_period", -1),
    ],
)
def test_words_mean_what_people_expect(word, name, value):
    got = train(word).leaves()[name]
    assert got == value and type(got) is type(value)


def test_an_equals_sign_may_stand_in_a_value():
    assert parse_words(TrainConfig, ["data='a=b/data.yaml'"]).data == "a=b/data.yaml"


@pytest.mark.parametrize(
    "path", [r"C:\x\y.yaml", "a:b/c.yaml", "it\u2019s/d.yaml", "my data/d.yaml", "~/d.yaml", "https://x.y/" + "q" * 300]
)
def test_odd_paths_are_paths(path):
    assert parse_words(TrainConfig, [f"data={path}"]).data == path


def test_what_may_end_in_a_comma_is_told_by_its_own_rule():
    assert train("classes=0,2,").sampling.classes == "0,2," and train("name='a,'").output.name == "a,"


@pytest.mark.parametrize(
    ("words", "typed", "instead"),
    [
        (["batch", "8"], "'batch 8'", "batch=8"),
        (["batch=", "8"], "'batch= 8'", "batch=8"),
        (["momentum", "=0.9"], "'momentum =0.9'", "momentum=0.9"),
        (["momentum", "=", "0.9"], "'momentum = 0.9'", "momentum=0.9"),
        (["--batch", "8"], "'--batch 8'", "write batch=8"),
        (["--batch=8"], "'--batch=8'", "write batch=8"),
        (["-batch=8"], "'-batch=8'", "write batch=8"),
        (["--exist-ok"], "'--exist-ok'", "write exist_ok=true"),
        (["\u2013batch", "8"], "8'", "en dash, U+2013"),
        (["batch"], "'batch'", "write batch=16"),
        (["batch="], "'batch='", "write batch=16"),
        (["my.yaml"], "'my.yaml'", "write data=my.yaml"),
        (["best.pt"], "'best.pt'", "write model=best.pt"),
        (["=8"], "'=8'", "no name before ="),
        (["--batch-size", "8"], "'--batch-size 8'", "write batch=8"),
        (["epochs", "=", "3"], "'epochs = 3'", "write it without blanks: epochs=3"),
        (["\u2014epochs=3"], "epochs=3'", "em dash, U+2014"),
        (
            ["name=\u201cmy", "run\u201d"],
            "my run",
            "left double quotation mark, U+201C, is a letter to the shell; write name='my run'",
        ),
        (["\u2018model=a.pt\u2019"], "model=a.pt", "write model=a.pt"),
        (["lr0=\u201c0.1\u201d"], "0.1", "write lr0=0.1"),
        (["name=\u201cmy"], "my", "write name=my"),
        (["epochs=3,"], "'epochs=3,'", "without commas; write epochs=3"),
        (["project='x',"], "\"project='x',\"", "write project=x"),
        (["epochs:3"], "'epochs:3'", "write epochs=3"),
        (["epochs:", "3"], "'epochs: 3'", "write epochs=3"),
        (["epochs:"], "'epochs:'", "write epochs=100"),
        (["yolov8n"], "'yolov8n'", "if you mean it as model, write model=yolov8n"),
        (["epochs=3", "epochs=4"], "epochs=4", "epochs is given twice (before: epochs=3); keep one"),
    ],
)
def test_what_is_typed_wrong_is_answered_with_what_to_type(words, typed, instead):
    said = complaint(*words)
    assert typed in said and instead in said and "\n" not in said


def test_a_mistake_does_not_swallow_the_next_setting():
    said = complaint("--amp", "batch=0")
    assert "'--amp'" in said and "batch=0: must be at least 1" in said


@pytest.mark.parametrize(
    ("word", "allowed"),
    [
        ("degrees=none", "between 0 and 180"),
        ("warmup_epochs=1e309", "a finite number"),
        ("lr0=nan", "a finite number"),
        ("batch=0", "at least 1"),
        ("imgsz=-1", "at least 32"),
        ("imgsz=640,", "one number, or height and width such as 384,640"),
        ("imgsz=64,96,128", "one number, or height and width such as 384,640"),
        ("imgsz=64,100", "the nearest are 96 and 128"),
        ("imgsz=0,64", "at least 32"),
        ("epochs=1.5", "a whole number"),
        ("epochs=", "no value after ="),
        ("workers=-3", "at least 0"),
        ("close_mosaic=none", "a whole number"),
        ("amp=maybe", "true or false"),
        ("optimizer=Lion", "auto, SGD, AdamW or Muon"),
        ("last_window=pad", "use or drop"),
        ("momentum=1", "below 1"),
        ("lr0=0", "above 0"),
        ("save_period=0", "at least 1, or -1"),
        ("name=../x", "leave out /"),
        ("device=mps", "never run on mps"),
        ("device=0,0", "takes different CUDA devices"),
        ("device=tpu", "auto, cpu, cuda, cuda:N or N"),
        ("fraction=0", "above 0 and at most 1"),
        ("epochs=99999999999999999999", "must be at most 9007199254740992"),
        ("epochs=" + "9" * 5000, "a whole number at least 1"),
        ("project=" + "x" * 256, "at most 255 bytes between two slashes"),
        ("model=" + "x/" * 2048, "4095 in all"),
        ("split={}", "split changes nothing in train (it is a setting of val)"),
        ("cache=tape", "must be ram or disk"),
        ("batch=many", "a whole number at least 1 or auto"),
        ("data2={dataset.location}/data.yaml", "no setting 'data2'; did you mean data?"),
    ],
)
def test_a_bad_value_is_answered_with_what_is_allowed(word, allowed):
    said = complaint(word)
    assert said.startswith((word, repr(word))) and allowed in said


def test_a_placeholder_that_was_not_filled_in_is_named():
    with pytest.raises(ConfigError, match=r"\{dataset.location\} stands for something"):
        parse_words(TrainConfig, ["data={dataset.location}/data.yaml"])


def test_all_problems_are_reported_at_once():
    said = complaint("bacth=8", "lr0=x", "epochs=0", "--nbs", "64", "epochs=3", "cutmix=1").splitlines()
    assert len(said) == 6
    for part in (
        "did you mean batch?",
        "lr0=x: takes a number above 0",
        "epochs=0",
        "write nbs=64",
        "given twice",
        "cutmix: this version cannot",
    ):
        assert any(part in line for line in said), part


def test_what_is_missing_is_said_with_an_example():
    assert complaint(settings=ValConfig).startswith("model is missing")
    with pytest.raises(ConfigError, match=r"data is missing.*visiontrain train data=shapes"):
        parse_words(TrainConfig, [])
    assert parse_words(TrainConfig, ["resume=true"]).resume == "true"
    assert parse_words(PlanConfig, []).batch == 16


def test_scoring_predictions_needs_data_and_no_model():
    assert parse_words(ValConfig, ["predictions=found.json", "data=my.yaml"]).predictions == "found.json"
    assert complaint("predictions=found.json", settings=ValConfig).startswith("data is missing: predictions of what?")
    said = complaint("predictions=found.json", "data=my.yaml", "model=best.pt", "iou=0.5", settings=ValConfig)
    assert [line.split()[0] for line in said.splitlines()] == ["model", "iou"]


def test_a_file_lies_under_the_words(tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text("lr0: 1e-3\nval: no\nepochs: 010\nname: no\nbatch: 4\n")
    config = train(f"cfg={file}", "batch=8")
    assert (config.optim.lr0, config.val, config.epochs, config.output.name) == (0.001, False, 10, "no")
    assert config.batch == 8
    assert config.given == {"data", "lr0", "val", "epochs", "name", "batch"}


def test_mistakes_in_a_file_are_named_by_line(tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text("lr0: x\nbacth: 4\nepochs: 3\nepochs: 4\nscale: [1, 2]\nname: {a: b}\n")
    said = complaint(f"cfg={file}", "momentum=2")
    for part in (
        "line 1: lr0: x: takes a number",
        "line 2: bacth: 4: no setting",
        "line 4: epochs: 4: epochs is given twice",
    ):
        assert f"{file}, {part}" in said
    assert "line 5: scale: [1, 2]: takes a number" in said and "momentum=2" in said
    assert "line 6: name takes one value or a list of them" in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no such file"),
        ("a: [", "not readable as YAML"),
        ("- 1", "must hold lines"),
        ("epochs = 3", "must hold lines"),
        ("lr0:\t0.1", "recipe.yaml, line 1: a tab stands where YAML takes blanks alone"),
        ("lr0: 0.1\n\tepochs: 3", "recipe.yaml, line 2: a tab stands"),
        ("epochs: 3\n---\nepochs: 4", "not readable as YAML"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error(tmp_path, content, said):
    file = tmp_path / "recipe.yaml"
    if content is not None:
        file.write_text(content)
    assert said in complaint(f"cfg={file}", "batch=0")
    assert "batch=0" in complaint(f"cfg={file}", "batch=0")  # and the rest is still checked


def test_args_yaml_of_a_run_can_be_given_back(tmp_path):
    config = train("lr0=1e-5", "seed=3", "name=no", "amp=false", "workers=2")
    file = tmp_path / "args.yaml"
    file.write_text(to_yaml(config.leaves()))
    assert parse_words(TrainConfig, [f"cfg={file}"]) == config
    assert yaml.safe_load(file.read_text()) == config.leaves()


def test_default_yaml_means_the_defaults(checkout):
    assert train(f"cfg={checkout / 'cfg' / 'default.yaml'}") == train()


def test_keywords_are_checked_as_words_are(tmp_path):
    config = parse_keywords(TrainConfig, {"data": tmp_path / "d.yaml", "batch": 8, "resume": False, "device": 0})
    assert (config.data, config.batch, config.resume, config.device) == (str(tmp_path / "d.yaml"), 8, "", "0")
    assert parse_keywords(TrainConfig, {"data": "d", "lr0": 1, "epochs": 3.0}).epochs == 3
    with pytest.raises(ConfigError) as caught:
        parse_keywords(
            TrainConfig, {"data": "d", "batch": True, "bacth": 8, "epochs": 1.5, "name": 3, "device": [0, 0]}
        )
    said = str(caught.value)
    for part in (
        "batch=True: takes a whole number",
        "did you mean batch",
        "epochs=1.5",
        "name=3: takes text",
        "different CUDA devices",
    ):
        assert part in said


def test_cfg01_a_learning_rate_that_was_given_is_known_as_given():
    assert "lr0" in train("lr0=0.01").given
    assert "lr0" not in train().given
