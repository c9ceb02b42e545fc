"""Which of several ranks tells an error, under a launcher that is not ours."""

from __future__ import annotations

import pytest

from visiontrain import actions, cli
from visiontrain.errors import ConfigError, DataError


@pytest.mark.parametrize(
    ("rank", "local", "told_by", "said"),
    [
        (0, 0, 0, "visiontrain: x"),  # all have it: rank 0 tells
        (3, 1, 0, ""),
        (3, 1, 3, "visiontrain: rank 3 (box): x"),  # this one alone
        (0, 0, None, "visiontrain: x"),  # before they met: each host, for its files may be others
        (1, 1, None, ""),
        (2, 0, None, "visiontrain: rank 2 (box): x"),
    ],
)
def test_an_error_is_told_once(rank, local, told_by, said, monkeypatch, capsys):
    def fail(config):
        error = DataError("x")
        error.told_by = told_by
        raise error

    environment = {"RANK": rank, "WORLD_SIZE": 4, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": 2}
    for name, value in {**environment, "MASTER_ADDR": "a", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(cli.platform, "node", lambda: "box")
    monkeypatch.setattr(actions, "run_training", fail)
    assert cli.main(["train", "data=x"]) == DataError.exit_code
    assert capsys.readouterr().err.strip() == said


def test_a_launcher_s_environment_that_is_wrong_is_an_error_for_people(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert cli.main(["train", "data=x"]) == ConfigError.exit_code
    assert "rank 5 of 2" in capsys.readouterr().err
