"""The log start of a log: its bytes, what a raise costs, and what becomes of one whose answer is lost."""

import pytest

from lakebed.clock import random_token
from lakebed.errors import DamagedError, StorageError, UnsupportedFormatError
from lakebed.log.backends.objects import ObjectLog
from lakebed.storage import connect
from lakebed.storage.retries import ATTEMPTS_MAX
from lakebed.testing.faults import CountingStorage, Fault, FaultPlan, FaultyStorage, Rule
from tests.clocks import set_clock

NAME = "tables/t/log/log-start.ndjson"


@pytest.fixture
def store():
    return connect(f"memory://{random_token()}")


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """No wait between two puts takes time here."""
    waited = []
    set_clock(monkeypatch, sleep=waited.append)
    return waited


def log_on(storage):
    return ObjectLog(storage, "tables/t")


def faulty(store, fault, **rule):
    """The log over a store that spoils puts of the log start, of either kind."""
    return log_on(FaultyStorage(store, FaultPlan([Rule(fault, operation, NAME, **rule) for operation in PUTS])))


PUTS = ("create", "replace_if")


def test_the_bytes_are_those_of_the_specification(store):
    log_on(store).advance_log_start(0, 41)
    assert store.get(NAME) == (
        b'{"format":2,"features":[],"digest":"7f726b5541e47206f5a8d5cac5fe3f0d","log_start":41}\n'
    )


def test_a_look_is_one_request_and_a_raise_two(store):
    counting = CountingStorage(store)
    log = log_on(counting)
    assert log.log_start() == 0
    assert counting.calls == {"get": 1}
    counting.clear()
    log.advance_log_start(0, 1)
    assert counting.calls == {"get": 1, "create": 1}
    counting.clear()
    log.advance_log_start(1, 2)
    assert counting.calls == {"get": 1, "replace_if": 1}
    counting.clear()
    assert not log.advance_log_start(1, 3)
    assert counting.calls == {"get": 1}


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.LATE, Fault.CONFLICT])
def test_a_raise_whose_answer_is_lost_is_settled(store, fault):
    """Whether it took effect or not; the first raise, which creates, and the next."""
    log = faulty(store, fault, calls={1})
    assert log.advance_log_start(0, 3)
    assert log.log_start() == 3
    assert log.advance_log_start(3, 5)
    assert log.log_start() == 5
    assert log.storage.fired == {fault: 2}


@pytest.mark.parametrize(("log_start", "rival"), [(0, 3), (2, 3)])
def test_a_lost_answer_does_not_hide_a_rival(store, log_start, rival):
    """No answer, and nothing stored; before the second put another raises it elsewhere."""
    other = log_on(store)
    if log_start:
        other.advance_log_start(0, log_start)

    class Overtaken(FaultyStorage):
        def _next(self, operation, name):
            if operation in PUTS and self.fired:
                other.advance_log_start(log_start, rival)
            return super()._next(operation, name)

    rules = [Rule(Fault.FAIL_BEFORE, operation, NAME, calls={1}) for operation in PUTS]
    log = log_on(Overtaken(store, FaultPlan(rules)))
    # The rival is asked by the raise that follows the fault: the answer must not be that it won.
    assert not log.advance_log_start(log_start, 9)
    assert log.log_start() == rival


@pytest.mark.parametrize("log_start", [0, 2])
def test_a_raise_without_any_answer_ends(store, log_start, waits):
    if log_start:
        log_on(store).advance_log_start(0, log_start)
    log = faulty(store, Fault.FAIL_BEFORE)
    with pytest.raises(StorageError, match="no clear answer") as failure:
        log.advance_log_start(log_start, 9)
    assert failure.value.transient
    assert sum(log.storage.fired.values()) == len(waits) + 1 == ATTEMPTS_MAX
    assert log.log_start() == log_start


@pytest.mark.parametrize("fault", [Fault.FLIPPED, Fault.SHORT])
def test_a_damaged_log_start_is_not_believed(store, fault):
    log_on(store).advance_log_start(0, 41)
    log = log_on(FaultyStorage(store, FaultPlan([Rule(fault, "get")])))
    for call in (log.log_start, lambda: log.advance_log_start(41, 42)):
        with pytest.raises(DamagedError, match="the log start of tables/t"):
            call()
    assert log_on(store).log_start() == 41


def test_a_log_start_that_a_newer_lakebed_wrote_is_refused(store):
    store.replace(NAME, b'{"format":3,"features":[],"digest":""}\n{}\n')
    for call in (log_on(store).log_start, lambda: log_on(store).advance_log_start(0, 42)):
        with pytest.raises(UnsupportedFormatError, match="upgrade"):
            call()


def test_the_log_start_is_not_foreign_and_what_looks_like_it_is(store):
    log = log_on(store)
    log.create(1, b"x")
    log.advance_log_start(0, 1)
    store.create("tables/t/log/log-start", b"")
    store.create("tables/t/log/deep/log-start.ndjson", b"")
    assert sorted(log.foreign()) == ["tables/t/log/deep/log-start.ndjson", "tables/t/log/log-start"]
    assert list(log.versions()) == [1]
