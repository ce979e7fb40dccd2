"""What becomes of the files of a write that fails: deleted if they are certainly in no entry, never otherwise."""

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from lakebed import clock
from lakebed.errors import Code, ContentionError, RejectedError, StorageError, UnknownOutcomeError
from lakebed.log.log_limits import LIMITS
from lakebed.log.outcomes import Committed
from lakebed.model.keys import EncodedRange
from lakebed.model.state.transactions import CloseJob, ProposeFiles, RaiseWatermark, Watermark
from lakebed.testing.faults import Fault, FaultPlan, FaultyStorage, Rule
from lakebed.upkeep.compaction import merge_jobs
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task
from lakebed.write.run import FileTarget, commit_files, write_files
from tests.clocks import set_clock
from tests.tables.retention.cases import letters, made, objects, on, rows


@pytest.fixture(autouse=True)
def no_waits(monkeypatch):
    set_clock(monkeypatch, sleep=lambda _: None)


def faulty(table, fault, operation, name, *calls):
    return on(table, FaultyStorage(table.storage, FaultPlan([Rule(fault, operation, name, calls=set(calls))])))


def wide(count):
    """Rows of 400 letters by chance: 5,000 make a file of 1 MiB."""
    chance = random.Random(1)
    return pa.table({"k": [chance.randbytes(200).hex() for _ in range(count)], "v": pa.array(range(count), pa.int64())})


@pytest.mark.parametrize(
    ("operation", "name", "call"), [("send", "*.parquet", 2), ("create", "*.summary", 1), ("create", "*/log/*", 1)]
)
def test_a_write_that_the_store_refuses_leaves_nothing(operation, name, call):
    """Not even the files that were sent before the one that failed."""
    table = made("ab", file_bytes=1024 * 1024)
    before = objects(table)
    with pytest.raises(StorageError, match="full"):
        faulty(table, Fault.FULL, operation, name, call).write(wide(12_000))
    assert objects(table) == before
    assert letters(on(table)) == "ab"


def test_a_refused_write_leaves_nothing():
    """A sweep may delete files as old as these."""
    table = made("ab")
    table.commit(RaiseWatermark(Watermark.ORPHAN_CUTOFF, 2**53 - 1))
    before = objects(table)
    with pytest.raises(RejectedError) as raised:
        table.write(rows("c"))
    assert raised.value.code is Code.FILE_TOO_OLD
    assert objects(table) == before


def test_a_write_that_is_held_back_leaves_nothing():
    table = made("a", "b", "c", runs_max=2)
    before = objects(table)
    with pytest.raises(ContentionError, match="runs_max"):
        table.write(rows("d"))
    assert objects(table) == before


def test_a_write_that_loses_every_race_leaves_nothing(monkeypatch):
    table = made("a")
    now = iter(range(0, 10_000, int(LIMITS.losing_s)))
    loser = on(table, FaultyStorage(table.storage, FaultPlan([])))
    loser.state()
    table.write(rows("b"))
    before = objects(table)
    set_clock(monkeypatch, monotonic_s=lambda: float(next(now)))
    with pytest.raises(ContentionError, match="other writers won"):
        loser.write(rows("c"))
    assert objects(table) == before


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.LATE])
def test_after_an_unknown_outcome_the_files_stay(fault):
    """Whether the entry is there or not, or comes later: its rows can be read then."""
    table = made("ab")
    storage = FaultyStorage(
        table.storage, FaultPlan([Rule(fault, "create", "*/log/*", calls=range(1, LIMITS.settle_puts + 1))])
    )
    with pytest.raises(UnknownOutcomeError) as raised:
        on(table, storage).write(rows("c"))
    assert raised.value.code is Code.COMMIT_UNKNOWN
    storage.settle()
    assert len(objects(table)) == 2
    assert letters(on(table)) == ("ab" if fault is Fault.FAIL_BEFORE else "abc")


def test_a_deletion_that_fails_hides_nothing():
    """The caller gets the error of the write."""
    table = made("ab")
    rules = [Rule(Fault.FULL, "create", "*/log/*", calls={1}), Rule(Fault.FAIL_BEFORE, "delete", calls={1})]
    with pytest.raises(StorageError, match="full"):
        on(table, FaultyStorage(table.storage, FaultPlan(rules))).write(rows("c"))
    assert len(objects(table)) == 2


def test_files_that_are_proposed_twice_stay():
    """The second time they are rejected, because the table has them."""
    table = made("ab")
    target = FileTarget(table.storage, table.id, clock.new_id())
    sent = write_files(rows("c").to_batches(), table.layout(), target, memory_limit_bytes=2**28, cuts=())
    assert commit_files(table, ProposeFiles(sent)) == Committed(table.version)
    assert "in the table already" in commit_files(table, ProposeFiles(sent)).reason
    assert letters(on(table)) == "abc"
    assert on(table).verify(files=True).sound


def test_a_store_that_does_not_answer_is_not_asked_to_delete():
    """Each request may take a minute there."""
    table = made("ab")
    rules = [Rule(Fault.FAIL_BEFORE, "send", calls={1}), Rule(Fault.FAIL_BEFORE, "delete")]
    storage = FaultyStorage(table.storage, FaultPlan(rules))
    with pytest.raises(StorageError) as raised:
        on(table, storage).write(rows("c"))
    assert raised.value.code is Code.STORE_UNAVAILABLE
    assert storage.fired[Fault.FAIL_BEFORE] == 1


def test_a_repeated_write_leaves_what_it_made_to_the_sweep():
    """Whether an earlier proposal of its own, with these files, was the one that counts, it cannot tell."""
    table = made("ab")
    other = on(table)
    other.state()
    proposal = ProposeFiles((), "once", table.version)
    version = table.write(rows("c"), commit_id="once")
    assert commit_files(other, proposal).version == version
    assert letters(on(table)) == "abc"


def test_a_compaction_that_fails_leaves_nothing(tmp_path, monkeypatch):
    """Its job is closed before it commits, or one of its tasks fails while another has sent its files."""
    table = made("ab", "cd")
    before = objects(table)

    def closed(tasks):
        results = [run_merge_task(task, table.storage, tmp_path) for task in tasks]
        for task in tasks:
            table.commit(CloseJob(task.job, "closed by hand"))
        return results

    def failed(tasks):
        (task,) = tasks
        low, high = (replace(task, slices=(EncodedRange(*bounds),)) for bounds in ((b"", b"c"), (b"c", None)))
        monkeypatch.setattr(merge_jobs, "_failure", lambda *_: Code.STORE_UNAVAILABLE("the other task"))
        return [run_merge_task(low, table.storage, tmp_path) + run_merge_task(high, table.storage, tmp_path)]

    assert compact(table, prepare(table, "full"), closed, cores=1).skipped
    assert objects(table) == before
    assert compact(table, prepare(table, "full"), failed, cores=1).failed
    assert objects(table) == before
