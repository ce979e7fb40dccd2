"""Headers: which process wrote an entry, and when the one before it was stored; and what learning that costs."""

import json
import os

import pytest

import lakebed
from lakebed.errors import Code, DamagedError
from lakebed.log import entry as entries
from lakebed.log.last_modified_times import to_us
from lakebed.log.log_limits import LIMITS
from lakebed.model.files import checkpoint_name, entry_name
from lakebed.storage import LocalStorage
from lakebed.testing.faults import CountingStorage, Fault, FaultPlan, FaultyStorage, Rule
from tests.clocks import set_clock
from tests.documents import rewritten
from tests.raising import raises
from tests.tables.log.cases import LOG, adding, created, log_on

MANY = 40
"""Commits until checkpoints are rare."""


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """A second passes whenever the clock is read; set the step to change that."""
    step = [1.0]
    now = [0.0]

    def look():
        now[0] += step[0]
        return now[0]

    set_clock(monkeypatch, monotonic_s=look)
    return step


def header(store, version):
    return json.loads(store.get(entry_name(LOG, version)).partition(b"\n")[0])


def fill(log):
    for count in range(MANY):
        log.commit(adding(f"{log.head.version}-{count}"))
    return log


def filled(store):
    return fill(created(store))


def last_modified_us(store, version):
    return to_us(store.last_modified(entry_name(LOG, version)))


def test_an_entry_carries_the_stores_last_modified_of_the_one_before(tmp_path):
    """On local disk always: a look costs no request."""
    store = LocalStorage(tmp_path, durability="none")
    log = created(store)
    for count in range(9):
        log.commit(adding(f"f{count}"))
    assert header(store, 1)["last_modified_us"] is None
    assert [header(store, n)["last_modified_us"] for n in range(2, 11)] == [
        last_modified_us(store, n) for n in range(1, 10)
    ]


def test_an_entry_names_its_writer(store):
    created(store)
    assert header(store, 1)["writer"].startswith(f"lakebed {lakebed.__version__} on ")
    assert header(store, 1)["writer"].endswith(f", pid {os.getpid()}")


def test_on_a_store_the_last_modified_costs_one_request_or_the_checkpoint_does(store):
    """Never both: null where a checkpoint goes with the entry."""
    counting = CountingStorage(store)
    log = created(counting)
    asked = 0
    for count in range(MANY):
        counting.clear()
        log.commit(adding(f"f{count}"))
        assert counting.calls["last_modified"] + counting.calls["replace"] <= 1
        written = header(store, log.head.version)["last_modified_us"]
        assert written == (last_modified_us(store, log.head.version - 1) if counting.calls["last_modified"] else None)
        asked += counting.calls["last_modified"]
    assert asked > MANY // 2


def test_in_haste_no_last_modified_is_asked_for(store, unhurried):
    """An entry hard behind another would take twice as long."""
    counting = CountingStorage(store)
    filled(counting)
    log = log_on(counting)
    log.follow()
    counting.clear()
    unhurried[0] = LIMITS.last_modified_pause_s / 100
    fill(log)
    assert counting.calls["last_modified"] == 0
    unhurried[0] = 1.0
    fill(log)
    assert counting.calls["last_modified"] > MANY // 2


def test_a_last_modified_that_is_known_is_not_asked_for_again(store):
    """A refused commit asked already."""
    filled(store)
    full = FaultyStorage(store, FaultPlan([Rule(Fault.FULL, "create", "*/log/*", calls={1, 2})]))
    counting = CountingStorage(full)
    log = log_on(counting)
    for _ in range(3):
        with pytest.raises(lakebed.StorageError) as raised:
            log.commit(adding("f"))
        assert raised.value.code is Code.STORE_FULL
        if full.fired[Fault.FULL] == 2:
            break
    assert counting.calls["last_modified"] == 1


def test_between_a_lost_race_and_the_next_try_nothing_is_asked(store):
    """A wait there would lose the next race as well."""
    one = filled(store)
    counting = CountingStorage(store)
    two = log_on(counting)
    two.follow()
    one.commit(adding("theirs"))
    counting.clear()
    two.commit(adding("ours"))
    assert counting.names["create"] == [entry_name(LOG, MANY + 2), entry_name(LOG, MANY + 3)]
    assert counting.calls["last_modified"] == 1
    assert header(store, MANY + 3)["last_modified_us"] is None


def test_a_last_modified_that_cannot_be_had_fails_no_commit(store):
    filled(store)
    faulty = FaultyStorage(store, FaultPlan([Rule(Fault.FAIL_BEFORE, "last_modified")]))
    log = log_on(faulty)
    version = MANY + 1
    while not faulty.fired[Fault.FAIL_BEFORE]:
        version += 1
        assert log.commit(adding(f"g{version}")).version == version
    assert header(store, version)["last_modified_us"] is None


def test_a_reader_of_the_next_entry_asks_for_no_last_modified(store):
    """The newest one's is asked of the store, once."""
    filled(store)
    store.delete([checkpoint_name(LOG)])
    counting = CountingStorage(store)
    reader = log_on(counting)
    reader.follow()
    for version in range(1, MANY + 2):
        assert to_us(reader.entry_last_modified(version)) == last_modified_us(store, version)
    reader.entry_last_modified(MANY + 1)
    untold = sum(header(store, n)["last_modified_us"] is None for n in range(2, MANY + 2))
    assert counting.calls["last_modified"] == untold + 1


def test_the_last_modified_of_an_entry_that_is_gone_is_an_error_and_nothing_follows_it(store):
    """A commit after it would part the log."""
    log = filled(store)
    store.delete([entry_name(LOG, MANY + 1)])
    with pytest.raises(DamagedError, match="is missing"):
        fill(log)


@pytest.mark.parametrize(
    ("version", "changes"),
    [
        (2, {"writer": None}),
        (2, {"id": 1}),
        (2, {"time": None}),
        (2, {"last_modified_us": "5"}),
        (2, {"last_modified_us": -1}),
        (2, {"last_modified_us": True}),
        (2, {"last_modified_us": 1.5}),
        (1, {"last_modified_us": 5}),
    ],
)
def test_a_header_that_makes_no_sense_is_damage(version, changes):
    entry = entries.Entry(version, "00", "now", "w", None if version == 1 else 5, "", "", ())
    data = entries.encode("log", entry, b"")
    entries.decode(data, "log", version, "")
    with pytest.raises(DamagedError, match="invalid"):
        entries.decode(rewritten(data, **changes), "log", version, "")


def test_a_header_without_a_field_is_damage():
    line = json.loads(entries.encode("log", entries.Entry(2, "00", "now", "w", 5, "", "", ()), b""))
    for field in line:
        cut = {name: value for name, value in line.items() if name != field}
        with raises(Code.DOCUMENT_DAMAGED, Code.ENTRY_DAMAGED):
            entries.decode(entries.dump(cut) + b"\n", "log", 2, "")
