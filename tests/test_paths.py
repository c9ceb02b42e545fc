from __future__ import annotations

from pathlib import Path

import pytest

from visiontrain import paths


def test_the_checkout_keeps_its_folders_one_level_up(checkout):
    assert (paths.cfg_dir(), paths.datasets_dir(), paths.weights_dir()) == (
        checkout / "cfg",
        checkout / "datasets",
        checkout / "weights",
    )


def test_a_wheel_keeps_them_beside_the_module(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "_HERE", tmp_path / "visiontrain")
    (tmp_path / "visiontrain" / "cfg").mkdir(parents=True)
    assert paths.cfg_dir() == tmp_path / "visiontrain" / "cfg"


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, ".cache/visiontrain"),
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/visiontrain"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, ".cache/visiontrain"),
        ("darwin", {"XDG_CACHE_HOME": "/x"}, "Library/Caches/visiontrain"),
        ("linux", {"VISIONTRAIN_CACHE": "/mine", "XDG_CACHE_HOME": "/x"}, "/mine"),
    ],
)
def test_the_cache_is_where_the_user_or_the_platform_says(platform, variables, expected, monkeypatch):
    for name in ("VISIONTRAIN_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(paths.sys, "platform", platform)
    assert paths.cache_dir() == Path.home() / expected


def test_looking_for_the_cache_makes_nothing(user_cache):
    assert paths.cache_dir() == user_cache
    assert not user_cache.exists()
