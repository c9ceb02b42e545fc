"""Completion in shells: what is offered comes from the settings, and real shells complete with it."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time

import pytest

from visiontrain import cli
from visiontrain.config.completion import FILES, SCRIPTS, offered, script
from visiontrain.config.help import VERBS
from visiontrain.config.sizes import model_names
from visiontrain.config.values import leaves_of

SETTINGS = {verb: settings for verb, (settings, _, _) in VERBS.items() if settings}
TYPED_FREELY = {"freeze", "classes", "name", "sha256"}  # texts of which no list can be made


def in_bash(code: str, cwd=None) -> list[str]:
    result = subprocess.run(
        ["bash", "--norc", "-c", f'{script("bash")}\ncompopt() {{ echo "$@"; }}\n{code}'],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not result.stderr
    return result.stdout.splitlines()


def completed(words: list[str], cwd=None) -> list[str]:
    """What bash is answered for words as it divides them, options of the completion (nospace, filenames) first."""
    quoted = " ".join(f"'{word}'" for word in words)
    code = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _visiontrain; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    return in_bash(code, cwd)


@pytest.fixture
def folder(tmp_path):
    for run in ("run", "my run"):
        weights = tmp_path / "runs" / "train" / run / "weights"
        weights.mkdir(parents=True)
        for file in (weights / "best.pt", weights / "last.pt", weights.parent / "run.json"):
            file.touch()
    for name in ("my.yaml", "a b.yml", "notes.txt", "net.onnx", "found.json"):
        (tmp_path / name).touch()
    (tmp_path / "pics").mkdir()
    return tmp_path


def test_the_names_are_those_of_the_settings():
    said = in_bash("\n".join(f"_visiontrain_names {verb}" for verb in SETTINGS))
    assert [line.split() for line in said] == [[*leaves_of(s), "cfg"] for s in SETTINGS.values()]


@pytest.mark.parametrize(("verb", "settings"), SETTINGS.items())
def test_what_is_offered_is_accepted_and_every_text_is_thought_of(verb, settings):
    from visiontrain.config.build import check

    for name, leaf in leaves_of(settings).items():
        words = offered(leaf, verb)
        for word in words:
            assert check(settings, {name: word})[1] == {}, (name, word)
        if leaf.kind is str:
            assert words or name in FILES or name in TYPED_FREELY, f"{verb}: what does completion offer for {name}?"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["tr"], ["train"]),
        (["train", "warmup_m"], ["-o nospace", "warmup_momentum="]),
        (["train", "lr0", "=", "0.1", "lr"], ["-o nospace", "lrf=", "lr_scale="]),  # lr0 is given already
        (["train", "norm", "="], ["auto", "batch", "sync", "group", "frozen"]),
        (["train", "norm", "=", "b"], ["batch"]),
        (["train", "norm=b"], ["norm=batch"]),  # where COMP_WORDBREAKS has no =
        (["train", "amp", "=", "t"], ["true"]),
        (["train", "batch", "="], ["auto"]),
        (["train", "cache", "="], ["ram", "disk", "false"]),
        (["train", "deterministic", "="], ["true", "false", "auto"]),
        (["train", "model", "=", "yolov8"], ["-o filenames"] + [name for name in model_names() if name.startswith("yolov8")]),
        (["train", "data", "=", "my"], ["-o filenames", "my.yaml"]),
        (["train", "data", "=", "a"], ["-o filenames", "a b.yml"]),
        (["train", "data", "=", "c"], ["-o filenames", "coco", "coco128"]),
        (["val", "model", "=", "n"], ["-o filenames", "net.onnx"]),
        (["val", "model", "=", "runs/train/run/weights/b"], ["-o filenames", "runs/train/run/weights/best.pt"]),
        (["val", "predictions", "=", "f"], ["-o filenames", "found.json"]),
        (["predict", "source", "=", "p"], ["-o filenames", "pics"]),
        (["train", "resume", "=", "ru"], [r"runs/train/my\ run/weights/last.pt", "runs/train/run/weights/last.pt", "runs"]),
        (["compare", "runs/train/"], [r"runs/train/my\ run", "runs/train/run"]),
        (["compare", "run", "pi"], ["-o filenames", "pics"]),
        (["export", "format", "=", "o"], ["onnx", "openvino"]),
        (["help", "tra"], ["train", "translate"]),
        (["help", "export", "dy"], ["dynamic"]),
        (["completion", ""], list(SCRIPTS)),
        (["train", "nosuch", "=", "x"], [""]),
    ],
)  # fmt: skip
def test_bash_is_answered(words, answer, folder):
    assert completed(["visiontrain", *words], folder) == answer


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_tab_key_in_a_real_shell(shell, folder):
    """The shell divides the line itself; what it then runs is the completed command."""
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    start = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell]
    file = folder / "script"
    file.write_text(script(shell))
    with Shell(start, folder) as typed:
        typed.send(f"visiontrain() {{ printf '<%s>' \"$@\"; echo; }}; source {file}; echo rea''dy\n", "ready\r")
        typed.send(
            "visiontrain train norm=b\tmodel=runs/train/my\\ r\tweights/b\t\n", "<train><norm=batch><model=runs/"
        )
        assert "<model=runs/train/my run/weights/best.pt>" in typed.seen


class Shell:
    """An interactive shell on a terminal of its own."""

    def __init__(self, command: list[str], cwd) -> None:
        self.command, self.cwd, self.seen = command, cwd, ""

    def __enter__(self):
        self.terminal, end = pty.openpty()
        clean = {"PATH": os.environ["PATH"], "HOME": str(self.cwd), "TERM": "dumb", "COLUMNS": "200"}
        self.child = subprocess.Popen(
            self.command, cwd=self.cwd, env=clean, stdin=end, stdout=end, stderr=end, start_new_session=True
        )
        os.close(end)
        return self

    def __exit__(self, *error) -> None:
        self.child.kill()
        self.child.wait()
        os.close(self.terminal)

    def send(self, keys: str, until: str) -> None:
        """Type, and read what is shown until something stands there."""
        os.write(self.terminal, keys.encode())
        began, self.seen = time.monotonic(), ""
        while until not in self.seen or not self.seen.endswith(("$ ", "% ", "# ")):
            if select.select([self.terminal], [], [], 0.5)[0]:
                self.seen += os.read(self.terminal, 65536).decode()
            elif until in self.seen:
                return
            assert time.monotonic() - began < 20, self.seen


def test_a_script_says_how_to_load_it_and_another_shell_is_refused(capsys):
    for shell in SCRIPTS:
        assert cli.main(["completion", shell]) == 0
        assert f'eval "$(visiontrain completion {shell})"' in capsys.readouterr().out.split("\n\n")[0]
    for words in (["completion"], ["completion", "fish"]):
        assert cli.main(words) == 2
        assert "write visiontrain completion bash or" in capsys.readouterr().err.lower()
