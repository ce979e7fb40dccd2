"""What IceDB's tests and examples assert, as tests of Lakebed's public API; and what IceDB gets wrong, as regressions.

The story is that of its integration test: three events, of which user ``a`` has two in June and user ``b`` one in
February, are inserted again and again; files are merged, deleted, removed by partition and rewritten. A partition of
IceDB is a prefix of the key here.

Where Lakebed differs on purpose: one insert makes one file over all partitions, and a merge is of files of like size,
so the numbers of files are not IceDB's. No proxy lists the live files, because reads list nothing: `files()` and the
adapters hand them over (behaviour 12). Crashes after each request of the store and concurrent operations, which it
wants tests of, are those of tests/adversarial/test_kills.py and tests/model.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import lakebed
from lakebed import Aggregate, KeyRange, Latest, Schema
from lakebed.errors import Code
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task
from lakebed.upkeep.retention.run import collect_garbage
from tests.raising import raises
from tests.tables.cases import rewritten

SCHEMA = Schema({"d": "string", "ts": "int64"}, values={"event": "string", "user_id": "string", "properties": "string"})
JUNE, FEBRUARY = "2023-06-07", "2023-02-11"


def events(number):
    """The three events of an insert; timestamps differ, so that every row is one of its own."""
    ts = 10 * number
    return pa.table(
        {
            "d": [JUNE, JUNE, FEBRUARY],
            "ts": [ts, ts + 1, ts + 2],
            "event": ["page_load", "click", "page_load"],
            "user_id": ["a", "a", "b"],
            "properties": ["{}", None, '{"x": 1}'],
        }
    )


@pytest.fixture
def table(memory_lake):
    return memory_lake.create_table("events", SCHEMA, split_points=[(JUNE,)])


def merge(table, strategy="full"):
    """The report of a compaction in this process."""

    def execute(tasks):
        with tempfile.TemporaryDirectory() as scratch:
            return [run_merge_task(task, table.storage, Path(scratch)) for task in tasks]

    return compact(table, prepare(table, strategy), execute, cores=1)


def clean(table):
    """Delete everything that the latest version does not need."""
    table.set(history_s=0)
    collect_garbage(table)


def users(table):
    return dict(sorted(Counter(table.to_arrow(columns=["user_id"]).column("user_id").to_pylist()).items()))


def live_files(table):
    return set(table.files().column("file_id").to_pylist())


def test_the_story_of_the_integration_test(table):
    # 1. The schema is that of the rows, in its order.
    table.write(events(0))
    assert table.to_arrow().column_names == ["d", "ts", "event", "user_id", "properties"]
    # 2. Counts after each insert; reading needs no merge.
    assert users(table) == {"a": 2, "b": 1}
    for number in (1, 2):
        table.write(events(number))
        assert users(table) == {"a": 2 * (number + 1), "b": number + 1}
    # 3. A merge leaves fewer files, and the same rows; what it replaced was inserted before.
    inserted = live_files(table)
    table.set(compaction_batch_runs=2)
    assert merge(table, "basic").jobs
    assert len(table.files()) < 6
    assert inserted - live_files(table) <= inserted
    assert users(table) == {"a": 6, "b": 3}
    # 4. A cleanup leaves no dead file, and the same rows.
    clean(table)
    assert all(one.retired is False and one.references for one in table.state().files.values())
    assert users(table) == {"a": 6, "b": 3}
    # 5. A hundred inserts more.
    for number in range(3, 103):
        table.write(events(number))
    assert users(table) == {"a": 206, "b": 103}
    # 6. One merge of everything: a run for each partition.
    while merge(table).jobs:
        pass
    assert len(table.files()) == 2
    assert users(table) == {"a": 206, "b": 103}
    # 7. Further merges have nothing to do, and commit nothing.
    version = table.version
    assert [merge(table).jobs for _ in range(4)] == [0] * 4
    assert table.version == version
    # 8. A cleanup leaves the two files alone.
    clean(table)
    assert len(table.state().files) == 2
    assert users(table) == {"a": 206, "b": 103}
    # 9. February goes by its prefix, which the caller chooses from those that there are.
    table.remove(choose=lambda found: [d == FEBRUARY for d in found.column("d").to_pylist()], depth=1)
    assert users(table) == {"a": 206}
    assert len(table.files()) == 1
    # 10. June is rewritten without its page loads.
    rewritten(table, KeyRange.prefix(JUNE), delete_where="event = 'page_load'")
    assert users(table) == {"a": 103}
    assert len(table.files()) == 1


def test_the_log_may_lie_in_another_place_than_the_data(tmp_path):
    """Behaviour 11: two buckets there, two folders here."""
    lake = lakebed.create(str(tmp_path / "data"), log_url=str(tmp_path / "log"))
    lake.create_table("events", SCHEMA).write(events(0))
    again = lakebed.open(str(tmp_path / "data"), log_url=str(tmp_path / "log"))
    assert users(again.table("events")) == {"a": 2, "b": 1}
    assert any((tmp_path / "log").rglob("log/*.ndjson"))
    assert not any((tmp_path / "data").rglob("log/*.ndjson"))
    assert not any((tmp_path / "log").rglob("*.parquet"))


def test_another_engine_counts_the_same_rows(table):
    """Behaviour 12, which is disabled there: the proxy gave DuckDB a listing of the live files."""
    for number in range(5):
        table.write(events(number))
    merge(table)
    with duckdb.connect() as connection:
        found = table.to_duckdb(connection=connection).aggregate("user_id, count(*)").order("user_id")
        assert found.fetchall() == [("a", 10), ("b", 5)]


# -- its other tests and examples ---------------------------------------------------------------------------------


def test_a_new_column_is_accepted_once_and_another_type_is_refused_before_the_write(table):
    """`schema_test.py` and `verify-schema.py`; there a conflicting insert makes the table unreadable."""
    table.set(schema_growth="add")
    wider = events(0).append_column("price", [[1.5, None, 2.5]])
    table.write(wider)
    schemas = len(table.state().schemas)
    table.write(events(1).append_column("price", [[None, None, 3.5]]))
    assert len(table.state().schemas) == schemas
    version = table.version
    with raises(Code.COLUMN_TYPE_MISMATCH):
        table.write(events(2).append_column("price", [["much", "too", "much"]]))
    assert table.version == version
    assert table.to_arrow().column("price").null_count == 3


def test_insert_query_merge_and_cleanup_go_round_for_thirty_rounds(table):
    """`continuous-merge-and-tombstone.py`, where data vanished."""
    for number in range(30):
        table.write(events(number))
        assert users(table) == {"a": 2 * (number + 1), "b": number + 1}
        merge(table, "size-ratio")
        clean(table)
    assert users(table) == {"a": 60, "b": 30}


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [(Aggregate({"n": "sum", "seen": "max"}), ("a", 20, 19)), (Latest(), ("a", 1, 19))],
    ids=["aggregating", "replacing"],
)
def test_a_merge_by_rows_shrinks_files_and_changes_no_answer(memory_lake, mode, wanted):
    """`custom-merge-*`: there every query has to repeat the reduction; here each read has merged rows."""
    table = memory_lake.create_table(
        "sums", Schema({"k": "string"}, values={"n": "int64", "seen": "int64"}), merge=mode
    )
    for number in range(20):
        table.write(pa.table({"k": ["a", f"b{number}"], "n": [1, 1], "seen": [number, number]}))
    before = table.to_arrow().to_pylist()
    assert tuple(table.get("a").to_pylist()[0].values()) == wanted
    merge(table)
    assert table.to_arrow().to_pylist() == before
    assert sum(table.files().column("rows").to_pylist()) == 21
    assert merge(table).jobs == 0


# -- what IceDB gets wrong ----------------------------------------------------------------------------------------


def test_a_merge_keeps_the_order_and_the_columns(table):
    for number in range(5, 0, -1):
        table.write(events(number))
    merge(table)
    rows = table.to_arrow()
    assert rows.schema.names == list(SCHEMA.names)
    keys = list(zip(rows.column("d").to_pylist(), rows.column("ts").to_pylist(), strict=True))
    assert keys == sorted(keys)


def test_a_merge_of_files_with_different_columns_keeps_them_all(table):
    table.set(schema_growth="add")
    table.write(events(0))
    table.write(events(1).append_column("extra", [["x", "y", "z"]]))
    merge(table)
    assert sorted(filter(None, table.to_arrow().column("extra").to_pylist())) == ["x", "y", "z"]


def test_rows_whose_later_batches_have_other_columns_keep_them(table):
    """There the columns of a batch are those of its first row."""
    table.set(schema_growth="add")
    rows = pa.Table.from_pylist([*events(0).to_pylist(), events(1).to_pylist()[0] | {"extra": "late"}])
    mixed = pa.Table.from_pylist([*events(2).to_pylist()])
    table.write(pa.concat_tables([mixed, rows], promote_options="default"))
    table.write(pa.table({"d": [JUNE], "ts": [999], "extra": ["late"]}))
    assert "late" in table.to_arrow().column("extra").to_pylist()


def test_a_file_at_its_target_size_is_not_merged_with_a_tiny_one(table):
    table.write(pa.concat_tables([events(number) for number in range(500)]))
    merge(table)
    large = live_files(table)
    for number in range(500, 520):
        table.write(events(number))
    merge(table, "size-ratio")
    assert large <= live_files(table)


def test_an_insert_of_nothing_and_a_cleanup_of_nothing_write_nothing(table):
    table.write(events(0))
    version = table.version
    table.write(events(0).slice(0, 0))
    assert table.version == version
    collect_garbage(table)
    assert table.state().version == version


def test_all_of_fifteen_hundred_references_are_listed_and_read(memory_lake):
    """There a listing ends after a thousand."""
    schema = Schema({"k": "int64"})
    table = memory_lake.create_table("many", schema, split_points=[(k,) for k in range(1, 1_500)])
    table.write(pa.table({"k": range(1_500)}))
    assert len(table.files()) == 1_500
    assert table.count(exact=True).rows == table.to_arrow().num_rows == 1_500


def test_an_old_version_has_the_same_rows_before_and_after_a_cleanup(table):
    table.write(events(0))
    version = table.version
    rows = table.to_arrow()
    for number in range(1, 5):
        table.write(events(number))
    merge(table)
    table.remove(prefix=JUNE)
    collect_garbage(table)
    assert table.at(version=version).to_arrow() == rows


def test_removed_rows_do_not_come_back(table):
    for number in range(4):
        table.write(events(number))
    merge(table)
    table.remove(prefix=FEBRUARY)
    table.write(events(4))
    merge(table)
    clean(table)
    assert users(table) == {"a": 10, "b": 1}
    with raises(Code.ARGUMENT_MISSING):
        table.remove()
