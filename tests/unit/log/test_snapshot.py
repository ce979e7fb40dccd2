"""Snapshots: written while commits go on, in parts that are written once, and never needed."""

import threading
from datetime import timedelta

import pytest

from lakebed.errors import DamagedError
from lakebed.files import part_folder, snapshot_name
from lakebed.log import snapshot
from lakebed.log.outcomes import Committed
from lakebed.state import columns
from lakebed.state.columns import Columns
from lakebed.state.transactions import CreateTable
from lakebed.testing.faults import CountingStorage, Fault, FaultPlan, FaultyStorage, Rule
from lakebed.verification import verify
from tests.unit.log.cases import LOG, adding, created, log_on
from tests.unit.state.cases import SCHEMA


def test_a_failing_snapshot_does_not_fail_the_commit(store):
    """It is a short cut, nothing else."""
    plan = FaultPlan([Rule(Fault.FULL, "replace", "*/snapshots/*")])
    log = log_on(FaultyStorage(store, plan))
    assert log.commit(CreateTable("table-00", SCHEMA, {}, ())) == Committed(1)
    assert log_on(store).follow().number == 1


def test_opening_a_long_log_reads_few_entries(store):
    """The entries behind the snapshot are at most half its size, so opening costs the state, not the history."""
    log = created(store)
    for count in range(200):
        log.commit(adding(f"f{count}"))
        counting = CountingStorage(store)
    assert log_on(counting).follow() == log.head.state
    assert counting.calls["get"] < 100
    idle = counting.calls["get"]
    reader = log_on(counting)
    reader.follow()
    before = counting.calls["get"]
    reader.follow()
    assert counting.calls["get"] - before == 2
    assert idle > 1


@pytest.fixture
def large_parts(monkeypatch):
    """No part is small enough for the manifest."""
    monkeypatch.setattr(snapshot, "INLINE_BYTES", 0)


@pytest.mark.usefixtures("large_parts")
def test_a_snapshot_writes_what_changed_and_the_state_rests_on_it(store, monkeypatch):
    """Parts that no change touched are named again; a reader of the new snapshot has the same state."""
    monkeypatch.setattr(columns, "PART_ROWS", 8)
    log = created(store)
    for count in range(64):
        log.commit(adding(f"f{count:03d}"))
        before = {listed.name for listed in store.list(part_folder(LOG))}
    while {listed.name for listed in store.list(part_folder(LOG))} == before:
        log.commit(adding(f"g{log.head.number:03d}"))
        fresh = {listed.name for listed in store.list(part_folder(LOG))} - before
    held = log.head.state.files.base
    assert isinstance(held, Columns)
    assert 0 < len(fresh) < len(held.parts)
    assert log.head.state.files.changes == {}
    assert log_on(store).follow() == log.head.state


def test_a_small_snapshot_is_one_object(store):
    log = created(store)
    log.commit(adding("f1"))
    assert [listed.name for listed in store.list("tables/table-00/snapshots")] == [snapshot_name(LOG)]
    counting = CountingStorage(store)
    assert log_on(counting).follow() == log.head.state
    assert counting.calls["get"] <= 3
    assert not counting.calls["fetch"]


@pytest.mark.usefixtures("large_parts")
def test_a_missing_or_damaged_part_costs_only_time(store):
    log = created(store)
    log.commit(adding("f1"))
    for listed in list(store.list(part_folder(LOG))):
        data = store.get(listed.name)
        for changed in (None, data[:-9], data[:200] + b"!" + data[201:], b""):
            store.delete([listed.name])
            if changed is not None:
                assert changed != data
                store.replace(listed.name, changed)
            assert log_on(store).follow() == log.head.state
            assert [found.kind for found in verify(log_on(store), "table-00", "t", None).findings] == [
                "snapshot_damaged"
            ]
        store.replace(listed.name, data)


@pytest.mark.usefixtures("snapshots_later")
def test_commits_go_on_while_a_snapshot_is_written(store, monkeypatch):
    """The state then rests on the snapshot all the same, with what came meanwhile on top."""
    log = created(store)
    log.wait_for_snapshot()
    begun, go_on = threading.Event(), threading.Event()
    write = log.snapshots.write

    def slow(head):
        begun.set()
        assert go_on.wait(10)
        return write(head)

    monkeypatch.setattr(log.snapshots, "write", slow)
    count = 0
    while not begun.is_set():
        log.commit(adding(f"f{count}"))
        count += 1
    for more in range(5):
        assert isinstance(log.commit(adding(f"g{more}")), Committed)
    go_on.set()
    log.wait_for_snapshot()

    assert isinstance(log.head.state.files.base, Columns)
    assert len(log.head.state.files) == count + 5
    assert log_on(store).follow() == log.head.state


@pytest.mark.usefixtures("large_parts")
def test_parts_that_no_snapshot_names_are_swept_when_they_are_old(store, monkeypatch):
    log = created(store)
    for count in range(30):
        log.commit(adding(f"f{count}"))
        log.wait_for_snapshot()
    parts = len(list(store.list(part_folder(LOG))))
    assert log.snapshots.sweep() == 0
    monkeypatch.setattr(snapshot, "PART_AGE_MIN", timedelta(seconds=-60))

    assert 0 < log.snapshots.sweep() < parts
    assert log.snapshots.sweep() == 0
    assert log_on(store).follow() == log.head.state
    store.replace(snapshot_name(LOG), b"{}")
    with pytest.raises(DamagedError):
        log.snapshots.sweep()


def test_processes_that_commit_once_each_write_snapshots_too(store):
    """What they read when they open counts: else a table written from a shell would be read from its first entry."""
    created(store)
    for count in range(60):
        log_on(store).commit(adding(f"f{count}"))
    counting = CountingStorage(store)
    log_on(counting).follow()
    assert counting.calls["get"] < 35
