"""The tool needs root and makes network namespaces, so no test runs it; here is what it says where it cannot run."""

from __future__ import annotations

import re
import subprocess

import pytest

from tools import two_namespaces
from tools.two_hosts import main


@pytest.fixture
def whole(monkeypatch):
    """A machine that has everything."""
    monkeypatch.setattr(two_namespaces.sys, "platform", "linux")
    monkeypatch.setattr(two_namespaces.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(two_namespaces.os, "geteuid", lambda: 0)
    made = subprocess.CompletedProcess([], 0, "", "")
    monkeypatch.setattr(two_namespaces.subprocess, "run", lambda *arguments, **named: made)


def test_what_is_missing_is_said(whole, monkeypatch):
    assert two_namespaces.what_is_missing() == ""
    refused = subprocess.CompletedProcess([], 1, "", "unshare: unshare failed: Operation not permitted\n")
    for where, name, value, said in (
        (
            two_namespaces.subprocess,
            "run",
            lambda *a, **k: refused,
            r"no network namespaces \(unshare: .* not permitted\)",
        ),
        (two_namespaces.os, "geteuid", lambda: 1000, "takes root; run it with sudo"),
        (two_namespaces.shutil, "which", lambda name: None, "ip and unshare and sysctl not found; install iproute2"),
        (two_namespaces.sys, "platform", "darwin", "network namespaces are Linux's"),
    ):
        monkeypatch.setattr(where, name, value)
        assert re.search(said, two_namespaces.what_is_missing())


def test_it_ends_with_2_before_anything_is_made(whole, monkeypatch, capsys):
    assert main(["parts=equal,nonsense"]) == 2
    assert capsys.readouterr().err == "two_hosts cannot run: parts=nonsense: there are equal, bytes, cut, resume\n"
    monkeypatch.setattr(two_namespaces.os, "geteuid", lambda: 1000)
    assert main([]) == 2
    assert "takes root" in capsys.readouterr().err


def test_two_hosts_leave_nothing_when_the_second_cannot_be_made(whole, monkeypatch, tmp_path):
    """Whatever was made is deleted; what failed is told."""
    there = set()

    def shell(*words):
        if words[:3] == ("ip", "netns", "add"):
            if there:
                raise subprocess.CalledProcessError(1, words)
            there.add(words[3])
        elif words[:2] == ("ip", "netns") and words[3] not in there:
            raise subprocess.CalledProcessError(1, words)
        elif words[:3] == ("ip", "netns", "delete"):
            there.remove(words[3])
        return ""

    monkeypatch.setattr(two_namespaces, "_shell", shell)
    with pytest.raises(subprocess.CalledProcessError), two_namespaces.two_hosts(tmp_path, 8):
        pass
    assert there == set()
