"""Tables given the rows of an older version back."""

import datetime as dt

import pyarrow as pa
import pytest

import lakebed
from lakebed import AddField, DropField, KeyRange, NotRetainedError, Schema, WidenField, clock
from lakebed.errors import Code
from lakebed.testing.faults import CountingStorage, Meanwhile
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task
from lakebed.upkeep.retention.run import collect_garbage
from tests.raising import raises
from tests.tables.retention.cases import on

SCHEMA = Schema({"k": "string"}, {}, {"v": "int32", "w": "string"})


def rows(keys, value=1):
    return pa.table({"k": list(keys), "v": pa.array([value] * len(keys), pa.int32()), "w": [f"{value}"] * len(keys)})


@pytest.fixture
def table():
    lake = lakebed.create(f"memory://{clock.random_token()}")
    table = lake.create_table("t", SCHEMA, split_points=["h", "p"], settings={"history_s": 0})
    table.write(rows("abhiqz"))
    return table


def test_rows_that_were_removed_are_back_and_rows_written_since_are_gone(table):
    before, then = table.version, table.to_arrow()
    table.write(rows("bjz", 2))
    table.remove(KeyRange("b", "q"))
    newest, now = table.version, table.to_arrow()
    assert table.restore(version=before) == newest + 1
    assert table.to_arrow() == then
    assert table.count() == table.at(version=before).count()
    assert table.at(version=newest).to_arrow() == now
    # Undone by another one.
    assert table.restore(version=newest) == newest + 2
    assert table.to_arrow() == now
    assert table.restore(version=newest) == newest + 2


def test_a_version_is_named_by_tag_or_time(table):
    table.tag("audited")
    then = table.to_arrow()
    table.remove(KeyRange())
    table.restore(tag="audited")
    assert table.to_arrow() == then
    time = table.log.entry_last_modified(table.version)
    table.write(rows("x"))
    assert table.count().rows == 7
    table.restore(time=time)
    assert table.to_arrow() == then


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ({}, Code.ARGUMENTS_CONFLICT),
        ({"version": 1, "tag": "a"}, Code.ARGUMENTS_CONFLICT),
        ({"version": "1"}, Code.ARGUMENT_INVALID),
        ({"version": 99}, Code.VERSION_NOT_FOUND),
        ({"tag": "nothing"}, Code.TAG_NOT_FOUND),
        ({"time": dt.datetime(1990, 1, 1, tzinfo=dt.UTC)}, Code.VERSION_NOT_FOUND),
    ],
)
def test_a_version_that_there_is_not_is_refused(table, named, code):
    before = table.version
    with raises(code):
        table.restore(**named)
    assert table.snapshot().version == before


def test_a_write_that_was_undone_is_still_a_repeat(table):
    """By a caller that did not get the answer: it was committed, and has been undone by another since."""
    before = table.version
    written = table.write(rows("x"), commit_id="monday")
    table.restore(version=before)
    assert table.write(rows("x"), commit_id="monday") == written
    assert table.outcome("monday") == written
    assert table.count().rows == 6


def test_the_schema_stays_the_newest(table, tmp_path):
    """Fields that were dropped since are not shown; rows of before have nulls in those that were added."""
    before = table.version
    table.remove(KeyRange(None, "i"))
    table.alter(DropField("w"), AddField("later", "string"), WidenField("v", "int64"))
    table.restore(version=before)
    assert table.schema.names == ("k", "v", "later")
    assert table.get("a").to_pylist() == [{"k": "a", "v": 1, "later": None}]
    assert table.at(version=before).get("a").to_pylist() == [{"k": "a", "v": 1, "w": "1"}]
    compact_each(table, tmp_path)
    assert table.get("a").to_pylist() == [{"k": "a", "v": 1, "later": None}]


def compact_each(table, tmp_path, then=lambda: None):
    """All partitions merged, in this process; ``then`` runs before the commits."""

    def execute(tasks):
        done = [run_merge_task(task, table.storage, tmp_path) for task in tasks]
        then()
        return done

    return compact(table, prepare(table, "full"), execute, cores=1)


def test_files_that_are_deleted_are_named_and_a_tag_keeps_them(table):
    before, then = table.version, table.to_arrow()
    table.tag("kept")
    table.remove(KeyRange())
    collect_garbage(table)
    table.restore(tag="kept")
    assert table.to_arrow() == then
    table.untag("kept")
    table.remove(KeyRange())
    collect_garbage(table)
    with pytest.raises(NotRetainedError, match="tag"):
        table.restore(version=before)
    assert table.count().rows == 0


def test_files_that_go_between_the_look_and_the_commit_are_named(table):
    """The proposal is judged by the state that it is committed to."""
    before = table.version
    table.remove(KeyRange())
    late = on(table, Meanwhile(table.storage, "create", "*/log/*", lambda: collect_garbage(table)))
    with pytest.raises(NotRetainedError, match="tag a version"):
        late.restore(version=before)


def test_restored_files_are_not_collected(table):
    """Their references went before the delay of the collection, and are back."""
    before, then = table.version, table.to_arrow()
    table.remove(KeyRange())
    table.restore(version=before)
    collect_garbage(table)
    assert table.to_arrow() == then
    assert not table.verify(files=True, deep=True).findings


def test_a_compaction_that_is_overtaken_commits_nothing(table, tmp_path):
    before, then = table.version, table.to_arrow()
    table.write(rows("bcz", 2))
    compact_each(table, tmp_path, lambda: table.restore(version=before))
    assert table.to_arrow() == then
    assert not table.state().jobs


def test_rows_from_before_a_compaction_come_back_in_its_place(table, tmp_path):
    table.write(rows("abz", 2))
    before, then = table.version, table.to_arrow().sort_by([("k", "ascending"), ("v", "ascending")])
    compact_each(table, tmp_path)
    table.write(rows("abz", 3))
    compact_each(table, tmp_path)
    table.restore(version=before)
    assert table.to_arrow().sort_by([("k", "ascending"), ("v", "ascending")]) == then


def test_a_removal_of_whole_partitions_and_a_restore_read_no_data(table):
    """Nor key summaries: both are metadata alone."""
    before, then = table.version, table.to_arrow()
    other = lakebed.open(table.storage.url).table("t")
    other.storage = other.versions.storage = counting = CountingStorage(other.storage)
    removed = other.remove(KeyRange("h"))
    assert other.restore(version=before) == removed + 1
    assert not [name for names in counting.names.values() for name in names if "/data/" in name]
    assert other.to_arrow() == then
    assert [name for names in counting.names.values() for name in names if "/data/" in name]
