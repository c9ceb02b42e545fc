"""Events on their way home: in order, heard before a rank ends, and of no consequence when home is gone."""

from __future__ import annotations

import json
import queue
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client

import numpy as np
import pytest

from visiontrain.errors import ConfigError, Interrupted, OutOfMemory
from visiontrain.record import wire
from visiontrain.record.events import Counters, EpochEnded, Notice, Pictures
from visiontrain.record.wire import HOME, Came, Ended, Home, home, told_home


@pytest.fixture(autouse=True)
def no_home():
    home.cache_clear()
    yield
    home.cache_clear()


@pytest.fixture
def launched(monkeypatch):
    """A home, and this process as a rank of its launch; what arrives."""
    arrived: queue.SimpleQueue = queue.SimpleQueue()
    with Home("this launch", arrived.put) as house:
        for name, value in house.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "this launch")
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
        yield arrived


def test_events_arrive_in_order_and_whole(launched):
    counters = Counters(updates_attempted=3)
    sent = [
        Notice("one"),
        EpochEnded(1, 2.5, counters, {"box_loss": 0.1 + 0.2}, {}, 1e-3, False, 3.0, 7),
        Pictures("p", (np.zeros((2, 2, 3), np.uint8),), (np.zeros((0, 4)),), (np.zeros(0),), None, ("sun",)),
    ]
    for event in sent:
        home()(event)
    assert home().end(result={"ap": 1.0})
    assert launched.get(timeout=10) == Came(0, 1)
    assert [launched.get(timeout=10), launched.get(timeout=10)] == sent[:2]
    assert launched.get(timeout=10).images[0].shape == (2, 2, 3)
    assert launched.get(timeout=10) == Ended(0, 1, {"ap": 1.0})
    assert launched.empty()


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConfigError("batch=3"), 2), (OutOfMemory("too large", 4), 5), (Interrupted("SIGTERM"), 130)],
)
def test_an_error_for_people_is_told_at_home_and_ends_the_process_with_its_code(launched, error, code):
    error.told_by = 0
    with pytest.raises(SystemExit) as ended, told_home():
        raise error
    assert ended.value.code == code
    assert launched.get(timeout=10) == Came(0, 1)
    told = launched.get(timeout=10)
    assert type(told.error) is type(error) and str(told.error) == str(error) and told.error.told_by == 0
    assert getattr(told.error, "largest", None) == getattr(error, "largest", None) and not told.trace


def test_any_other_error_is_told_as_its_traceback(launched):
    with pytest.raises(SystemExit) as ended, told_home():
        raise ZeroDivisionError("planted")
    assert ended.value.code == 1
    launched.get(timeout=10)
    told = launched.get(timeout=10)
    assert told.error is None and "ZeroDivisionError: planted" in told.trace and "test_wire.py" in told.trace


def test_insisting_is_told_as_an_interruption(launched):
    with pytest.raises(SystemExit) as ended, told_home():
        raise KeyboardInterrupt
    assert ended.value.code == 130


def test_the_result_is_rank_0_s(launched, monkeypatch):
    with told_home() as tell:
        tell("result")
    launched.get(timeout=10)
    assert launched.get(timeout=10).result == "result"
    monkeypatch.setenv("RANK", "1")
    with told_home() as tell:
        tell("another")
    assert launched.empty()


def test_without_a_home_errors_go_their_way():
    assert home() is None
    with pytest.raises(ConfigError), told_home() as tell:
        tell("nobody hears")
        raise ConfigError("x")
    with pytest.raises(ZeroDivisionError), told_home():
        raise ZeroDivisionError


def test_a_process_that_a_callback_starts_is_no_rank(launched, monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")  # it inherits the rest
    assert home() is None


def test_strangers_stay_outside(launched):
    host, port, key, _ = json.loads(__import__("os").environ[HOME])
    with pytest.raises(AuthenticationError):
        Client((host, port), authkey=b"guessed")
    assert home() is not None  # the door still opens for a rank
    assert launched.get(timeout=10) == Came(0, 1)
    assert len(bytes.fromhex(key)) == 32


def test_when_home_is_gone_the_error_goes_its_way(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    with Home("x", lambda message: None) as house:
        monkeypatch.setenv(HOME, house.environment[HOME])
    assert home() is None  # nobody answers any more
    with pytest.raises(ConfigError), told_home():
        raise ConfigError("x")
    assert wire.home() is None
