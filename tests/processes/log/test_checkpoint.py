"""Checkpoints: written while commits go on, in parts that are written once, and never needed."""

import subprocess
import sys
import threading
from datetime import timedelta

import pytest
from msgspec.structs import replace

from lakebed import clock
from lakebed.errors import Code, DamagedError, NotRetainedError, StorageError, UsageError
from lakebed.log import checkpoint
from lakebed.log.checkpoint import CheckpointLocation
from lakebed.log.log_limits import LIMITS, LogLimits
from lakebed.log.outcomes import Committed
from lakebed.log.segments import STATE_CACHE, SegmentCache, SegmentStore, set_state_cache_bytes
from lakebed.model.files import checkpoint_name, entry_name, segment_folder
from lakebed.model.state import partition_files
from lakebed.model.state.columnar_codecs import REFERENCES
from lakebed.model.state.columns import Columns
from lakebed.model.state.invariants import check_invariants
from lakebed.model.state.transactions import CreateTable, ProposeSplit
from lakebed.read.inspect.verification import verify
from lakebed.testing.faults import CountingStorage, Fault, FaultPlan, FaultyStorage, Meanwhile, Rule
from tests.clocks import set_clock
from tests.pure.state.cases import SCHEMA, key
from tests.tables.log.cases import LOG, adding, created, log_on


def test_a_failing_checkpoint_does_not_fail_the_commit(store):
    """It is a short cut, nothing else."""
    plan = FaultPlan([Rule(Fault.FULL, "replace", "*/checkpoints/*")])
    log = log_on(FaultyStorage(store, plan))
    assert log.commit(CreateTable("table-00", SCHEMA, {}, ())) == Committed(1)
    assert log_on(store).follow().version == 1


def test_no_checkpoint_is_written_of_a_state_that_breaks_an_invariant(store):
    log = created(store)
    before, head = store.get(checkpoint_name(LOG)), log.tail.head
    for tagged, written in ((99, False), (1, True)):
        state = replace(head.state, version=2, tags={"audited": tagged})
        assert (log.tail.checkpoints.write(replace(head, version=2, state=state)) is not None) is written
        assert (store.get(checkpoint_name(LOG)) != before) is written


def test_a_process_that_ends_writes_its_checkpoint_first(tmp_path):
    """An interpreter that ends waits for the thread of a checkpoint, but pools of threads take no work any more."""
    ending = f"""
import threading
import lakebed, pyarrow as pa
lake = lakebed.create({str(tmp_path / "lake")!r})
table = lake.create_table("t", lakebed.Schema({{"k": "int64"}}), split_points=range(1, 9000))
table.write(pa.table({{"k": range(9000)}}))
table.log.wait_for_checkpoint()
write = table.log.tail.checkpoints.write

def write_late(head):
    threading.main_thread().join()
    print("written" if write(head) else "not written")

table.log.tail.checkpoints.write = write_late
table.write(pa.table({{"k": range(9000)}}))
table.log.tail.start_checkpoint()
"""
    done = subprocess.run([sys.executable, "-c", ending], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("written\n", "")


def test_opening_a_long_log_reads_few_entries(store):
    """The entries behind the checkpoint are at most half its size, so opening costs the state, not the history."""
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


def with_checkpoint(storage, limits=LIMITS):
    """A log whose checkpoint is of its head."""
    log = log_on(storage, limits=limits)
    log.follow()
    log.tail.start_checkpoint()
    return log


IN_SEGMENTS = LogLimits(inline_bytes=0)
"""No part is small enough for the manifest."""
SMALL_SEGMENTS = LogLimits(inline_bytes=0, segment_bytes=512)


def test_a_checkpoint_writes_what_changed_and_the_state_rests_on_it(store):
    """Parts that no change touched are named again; a reader of the new checkpoint has the same state."""
    log = created(store, SMALL_SEGMENTS)
    for count in range(64):
        log.commit(adding(f"f{count:03d}"))
        before = {listed.name for listed in store.list(segment_folder(LOG))}
    while {listed.name for listed in store.list(segment_folder(LOG))} == before:
        log.commit(adding(f"g{log.head.version:03d}"))
        fresh = {listed.name for listed in store.list(segment_folder(LOG))} - before
    held = log.head.state.files.base
    assert isinstance(held, Columns)
    assert 0 < len(fresh) < len(held.segments)
    assert log.head.state.files.changes == {}
    assert log_on(store, limits=SMALL_SEGMENTS).follow() == log.head.state


def test_a_small_checkpoint_is_one_object(store):
    log = created(store)
    log.commit(adding("f1"))
    assert [listed.name for listed in store.list("tables/table-00/checkpoints")] == [checkpoint_name(LOG)]
    counting = CountingStorage(store)
    assert log_on(counting).follow() == log.head.state
    assert counting.calls["get"] <= 3
    assert not counting.calls["fetch"]


def test_a_reader_of_one_partition_fetches_the_one_segment_that_it_lies_in(store):
    """And to add files, or to ask for one that is not there, fetches none."""
    log = created(store, SMALL_SEGMENTS)
    log.commit(ProposeSplit({1: tuple(map(key, "bcdefgh"))}))
    for count in range(40):
        log.commit(adding(f"f{count:03d}", f"r{count:03d}"))
    log = with_checkpoint(store, SMALL_SEGMENTS)
    counting = CountingStorage(store)
    reader = log_on(counting)
    state = reader.follow()
    assert len(state.references.base.segments) > 3
    assert not counting.calls["fetch"]

    assert "g000" not in state.files
    assert reader.commit(adding("g000")) == Committed(state.version + 1)
    assert not counting.calls["fetch"]

    partition = state.partitions.ids[-1]
    assert [file.id for file in state.files_of(partition)] == [file.id for file in log.head.state.files_of(partition)]
    assert counting.calls["fetch"] == 1
    assert reader.follow().files_of(partition)[-1].id == "g000"
    assert counting.calls["fetch"] == 1


def test_tables_share_a_cache_of_so_many_bytes(store, monkeypatch):
    """What was not used for longest goes, and is fetched again, where nothing of it is at hand."""
    monkeypatch.setattr(partition_files._Cache, "keep", lambda *_: None)
    log = created(store, SMALL_SEGMENTS)
    log.commit(ProposeSplit({1: tuple(map(key, "bcdefgh"))}))
    for count in range(40):
        log.commit(adding(f"f{count:03d}"))
    with_checkpoint(store, SMALL_SEGMENTS)
    counting = CountingStorage(store)
    cache = SegmentCache(0)
    one, other = log_on(counting, cache).follow(), log_on(counting, cache).follow()
    partition, sizes = one.partitions.ids[-1], [segment.size_bytes for segment in one.references.base.segments]
    held = log.head.state.held_by(partition)

    for state in (one, one, other):
        assert state.held_by(partition) == held
    assert (counting.calls["fetch"], cache.size_bytes) == (3, 0)
    cache.limit(max(sizes))
    for state in (one, one, other):
        assert state.held_by(partition) == held
    assert (counting.calls["fetch"], cache.size_bytes) == (4, sizes[-1])
    assert one == other == log.head.state
    assert 0 < cache.size_bytes <= max(sizes)
    cache.limit(0)
    assert cache.size_bytes == 0


@pytest.mark.parametrize("size_bytes", [-1, 1.5, "1", True])
def test_the_bound_of_the_cache_is_a_number_of_bytes(size_bytes):
    before = STATE_CACHE.bytes_max
    with pytest.raises(UsageError, match="size_bytes"):
        set_state_cache_bytes(size_bytes)
    assert STATE_CACHE.bytes_max == before


def test_the_bound_of_the_cache_can_be_set():
    before = STATE_CACHE.bytes_max
    try:
        set_state_cache_bytes(5)
        assert STATE_CACHE.bytes_max == 5
    finally:
        set_state_cache_bytes(before)


@pytest.mark.parametrize("fault", ["gone", "damaged"])
def test_a_segment_lost_under_an_open_state_is_made_again_from_the_log(store, fault):
    """Once for all of them; and the next checkpoint is whole."""
    log = created(store, IN_SEGMENTS)
    for count in range(9):
        log.commit(adding(f"f{count}", f"r{count}"))
    log = with_checkpoint(store, IN_SEGMENTS)
    expected = log.head.state
    counting = CountingStorage(store)
    reader = log_on(counting)
    state = reader.follow()
    names = [listed.name for listed in store.list(segment_folder(LOG))]
    for name in names:
        data = store.get(name)
        store.delete([name])
        if fault == "damaged":
            store.replace(name, data[:-9])
    counting.clear()

    assert state == expected
    assert counting.calls["get"] == state.version + 1, "the entries, and the log start"
    check_invariants(state)
    reader.commit(adding("g"))
    assert verify(log_on(store, limits=IN_SEGMENTS), "table-00", "t", None).findings == ()
    assert log_on(store, limits=IN_SEGMENTS).checkpoints.read().version == state.version + 1


def test_a_segment_lost_with_the_entries_is_an_error_that_names_the_entry(store):
    log = created(store, IN_SEGMENTS)
    for count in range(9):
        log.commit(adding(f"f{count}"))
    with_checkpoint(store, IN_SEGMENTS)
    state = log_on(store, limits=IN_SEGMENTS).follow()
    store.delete([listed.name for listed in store.list(segment_folder(LOG))])
    store.delete([entry_name(LOG, 2)])
    with pytest.raises(DamagedError, match="2"):
        state.held_by(1)


def test_a_segment_lost_behind_the_floor_is_made_again_from_a_kept_snapshot(store):
    """Without one it is not retained, which is no damage; and a kept one that lost a part itself is as good as none."""
    log = created(store, IN_SEGMENTS)
    for count in range(9):
        log.commit(adding(f"f{count}"))
    retained = log.retain_checkpoint()
    log.commit(adding("g"))
    with_checkpoint(store, IN_SEGMENTS)
    state = log_on(store, limits=IN_SEGMENTS).follow()
    log.truncate(retained - 1)
    store.delete([listed.name for listed in store.list(segment_folder(LOG))])
    assert state == log.head.state

    held = log_on(store, limits=IN_SEGMENTS).past.at(retained).state
    store.delete([next(iter(store.list(segment_folder(LOG, retained)))).name])
    with pytest.raises(NotRetainedError, match=f"version {retained} of"):
        check_invariants(held)


def test_a_reader_moves_on_when_the_log_is_truncated_beyond_its_checkpoint(store, monkeypatch):
    """However little was committed since: a part that is swept could not be made again any more."""
    log = created(store, IN_SEGMENTS)
    for count in range(20):
        log.commit(adding(f"f{count}"))
    with_checkpoint(store, IN_SEGMENTS)
    reader = log_on(store, limits=IN_SEGMENTS)
    reader.follow()
    log.commit(adding("g"))
    log.truncate(log.retain_checkpoint() - 1)
    now_s = clock.monotonic_s() + checkpoint.CHECK_INTERVAL_S
    set_clock(monkeypatch, monotonic_s=lambda: now_s)
    assert not reader.checkpoints.due()

    assert reader.follow() == log.head.state
    assert reader.head.state.files.changes == {}


def test_a_store_that_fails_under_an_open_state_is_reported_and_tried_again(store):
    """It is no damage: the part may be there in a moment."""
    log = created(store, IN_SEGMENTS)
    for count in range(9):
        log.commit(adding(f"f{count}"))
    with_checkpoint(store, IN_SEGMENTS)
    failing = FaultyStorage(store, FaultPlan([Rule(Fault.FAIL_BEFORE, "fetch", calls=[1])]))
    state = log_on(failing).follow()
    with pytest.raises(StorageError) as raised:
        state.held_by(1)
    assert raised.value.code is Code.STORE_UNAVAILABLE
    assert state.held_by(1) == log.head.state.held_by(1)


def test_a_segment_that_is_not_as_its_manifest_says_is_damage(store):
    log = created(store, IN_SEGMENTS)
    log.commit(adding("f1"))
    segment = with_checkpoint(store, IN_SEGMENTS).head.state.references.base.segments[0].stored
    segments = SegmentStore(store, CheckpointLocation(store, LOG).segment, SegmentCache(0))
    assert segments.fetched(REFERENCES, segment).batch.num_rows == segment.count == 1
    for wrong in (replace(segment, count=2), replace(segment, first=0), replace(segment, last=2)):
        with pytest.raises(DamagedError, match="describes"):
            segments.fetched(REFERENCES, wrong)


def test_a_reader_moves_on_to_the_checkpoints_of_others(store, monkeypatch):
    """Else what was committed since it opened would stay in its memory, and its own checkpoint's parts be swept."""
    log = created(store, IN_SEGMENTS)
    reader = log_on(store, limits=IN_SEGMENTS)
    reader.follow()
    for count in range(20):
        log.commit(adding(f"f{count}"))
    with_checkpoint(store, IN_SEGMENTS)
    log.commit(adding("g"))
    assert len(reader.follow().references.changes) == 1
    now_s = clock.monotonic_s() + checkpoint.CHECK_INTERVAL_S
    set_clock(monkeypatch, monotonic_s=lambda: now_s)

    assert reader.follow() == log.head.state
    assert isinstance(reader.head.state.files.base, Columns)
    assert set(reader.head.state.files.changes) == {"g"}
    counting = CountingStorage(store)
    reader.checkpoints._storage = counting
    reader.follow()
    assert not counting.calls


def test_a_missing_or_damaged_segment_costs_only_time(store):
    log = created(store, IN_SEGMENTS)
    log.commit(adding("f1"))
    for listed in list(store.list(segment_folder(LOG))):
        data = store.get(listed.name)
        for changed in (None, data[:-9], data[:200] + b"!" + data[201:], b""):
            store.delete([listed.name])
            if changed is not None:
                assert changed != data
                store.replace(listed.name, changed)
            assert log_on(store, limits=IN_SEGMENTS).follow() == log.head.state
            assert [
                found.kind for found in verify(log_on(store, limits=IN_SEGMENTS), "table-00", "t", None).findings
            ] == ["checkpoint_damaged"]
        store.replace(listed.name, data)


@pytest.mark.usefixtures("checkpoints_later")
def test_commits_go_on_while_a_checkpoint_is_written(store):
    """The state then rests on the checkpoint all the same, with what came meanwhile on top."""
    begun, go_on = threading.Event(), threading.Event()

    def slow():
        begun.set()
        assert go_on.wait(120)

    log = created(Meanwhile(store, "replace", "*/checkpoints/*", slow, call=2))
    log.wait_for_checkpoint()
    count = 0
    while not begun.is_set():
        log.commit(adding(f"f{count}"))
        count += 1
    for more in range(5):
        assert isinstance(log.commit(adding(f"g{more}")), Committed)
    go_on.set()
    log.wait_for_checkpoint()

    assert isinstance(log.head.state.files.base, Columns)
    assert len(log.head.state.files.changes) == log.head.version - log.checkpoints.read().version
    assert len(log.head.state.files) == count + 5
    assert log_on(store).follow() == log.head.state


def test_segments_that_no_snapshot_names_are_swept_when_they_are_old(store):
    log = created(store, IN_SEGMENTS)
    for count in range(30):
        log.commit(adding(f"f{count}"))
        log.wait_for_checkpoint()
    segments = len(list(store.list(segment_folder(LOG))))
    assert log.checkpoints.delete_unnamed(timedelta()) == 0
    log.limits = LogLimits(inline_bytes=0, segment_age=timedelta(seconds=-60))

    assert 0 < log.checkpoints.delete_unnamed(timedelta()) < segments
    assert log.checkpoints.delete_unnamed(timedelta()) == 0
    assert log_on(store, limits=IN_SEGMENTS).follow() == log.head.state
    store.replace(checkpoint_name(LOG), b"{}")
    with pytest.raises(DamagedError) as raised:
        log.checkpoints.delete_unnamed(timedelta())
    assert raised.value.code is Code.DOCUMENT_DAMAGED


def test_processes_that_commit_once_each_write_checkpoints_too(store):
    """What they read when they open counts: else a table written from a shell would be read from its first entry."""
    created(store)
    for count in range(60):
        log_on(store).commit(adding(f"f{count}"))
    counting = CountingStorage(store)
    log_on(counting).follow()
    assert counting.calls["get"] < 35
