"""A collection that dies, or meets another, at any of its steps leaves what the next one finishes."""

import pytest

from lakebed.errors import Code
from lakebed.files.parquet.read_cache import READ_CACHE
from lakebed.log.log_limits import LIMITS
from lakebed.testing.faults import Fault, FaultPlan, FaultyStorage, Meanwhile, Rule
from lakebed.upkeep.retention.run import collect_garbage
from tests.clocks import set_clock
from tests.raising import raises
from tests.tables.cases import compact
from tests.tables.retention.cases import Killed, Mortal, letters, made, nothing_is_left_over, objects, on, pins, sound


@pytest.fixture
def table():
    """Three files of no reference, one of one."""
    found = made("ab", "cd", "ab")
    compact(found)
    return found


@pytest.mark.parametrize("after", [False, True], ids=["before it takes effect", "after it took effect"])
def test_a_collection_killed_at_any_change_is_finished_by_the_next(after):
    """The mark, the delete, the forgetting: killed at each; the run past the last change is not killed at all."""
    change = 0
    died = True
    while died:
        change += 1
        table = made("ab", "cd", "ab")
        compact(table)
        try:
            collect_garbage(on(table, Mortal(table.storage, change, after=after)))
            died = False
        except Killed:
            assert sound(table) == "aabbcd"
            collect_garbage(on(table))
        assert nothing_is_left_over(table)
        assert len(objects(table)) == 2
        assert sound(table) == "aabbcd"
    assert change > 3


@pytest.mark.parametrize("operation", ["get", "create", "list", "delete"])
def test_two_collections_at_once_do_no_harm(operation):
    """One is overtaken by all of another before each of its calls in turn."""
    call, overtaken = 0, True
    while overtaken:
        call += 1
        table = made("ab", "cd", "ab")
        compact(table)
        first = on(table, Meanwhile(table.storage, operation, "tables/*", lambda t=table: collect_garbage(on(t)), call))
        collect_garbage(first)
        overtaken = first.storage.happened
        assert nothing_is_left_over(table)
        assert sound(table) == "aabbcd"
    assert call > 1


def test_what_a_pin_holds_waits_and_the_rest_goes():
    table = made("ab", "cd")
    with table.pin() as snapshot:
        compact(on(table))
        on(table).write(snapshot.scan())
        compact(on(table))
        dry = collect_garbage(on(table), dry_run=True)
        assert (dry.files, dry.pinned) == (2, 2)
        assert len(objects(table)) == 10
        report = collect_garbage(on(table))
        assert (report.files, report.pinned, report.waiting) == (2, 2, 0)
        assert letters(snapshot) == "abcd"
        assert collect_garbage(on(table)).files == 0
    assert pins(table) == []
    assert collect_garbage(table).files == 2
    assert nothing_is_left_over(table)


def test_after_an_unknown_outcome_nothing_is_deleted(table, monkeypatch):
    set_clock(monkeypatch, sleep=lambda _seconds: None)
    lost = Rule(Fault.FAIL_AFTER, "create", "*/log/*", calls=range(1, LIMITS.settle_puts + 1))
    with raises(Code.COMMIT_UNKNOWN):
        collect_garbage(on(table, FaultyStorage(table.storage, FaultPlan([lost]))))
    assert len(objects(table)) == 8
    assert collect_garbage(on(table)).files == 3


def test_files_are_marked_and_deleted_in_batches(table):
    report = collect_garbage(table, batch_files=2)
    assert report.files == 3
    types = [row.type for row in table.history_rows(4)]
    assert types == ["purge_files", "purge_files", "retire_files", "retire_files"]
    assert nothing_is_left_over(table)


def test_what_is_kept_of_deleted_files_goes_with_them(tmp_path):
    table = made("ab", "cd", "ab", url=str(tmp_path))
    assert letters(table) == "aabbcd"
    names = set(table.state().files)
    compact(table)
    assert kept_of(names) == names
    collect_garbage(table)
    assert not kept_of(names)


def kept_of(ids):
    cached = str(list(READ_CACHE._entries))
    return {name for name in ids if name in cached}
