"""A write by tasks of other processes is one commit, whatever becomes of its tasks and its driver."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pyarrow as pa
import pytest

import lakebed
from lakebed import DistributedWrite, SentRows
from lakebed.errors import Code
from tests.raising import raises

SCHEMA = lakebed.Schema({"k": "int64"}, values={"v": "string"})

TASK = """
import pickle, sys
import pyarrow as pa
write, rows = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(pickle.dumps(write.send(rows.to_batches(max_chunksize=3))))
"""


@pytest.fixture
def table(lake):
    return lake.create_table("t", SCHEMA, split_points=[(5,)], merge=lakebed.Latest())


def rows_of(keys, value):
    return pa.table({"k": list(keys), "v": [value] * len(keys)}, SCHEMA.arrow)


def sent(write, rows):
    """What a task answers that runs in another process."""
    given = pickle.dumps((write, rows))
    return pickle.loads(
        subprocess.run([sys.executable, "-c", TASK], input=given, capture_output=True, check=True).stdout
    )


def send(write, rows):
    return pickle.loads(pickle.dumps(write)).send(rows.to_batches())


def found(table):
    return {row["k"]: row["v"] for row in table.scan().read_all().to_pylist()}


def test_the_rows_of_all_tasks_are_one_commit_in_the_order_of_their_answers(table):
    before = table.version
    write = DistributedWrite.of(table, SCHEMA.arrow)
    parts = [sent(write, rows_of(range(8), "first")), send(write, rows_of(range(4, 12), "second"))]
    assert found(table) == {}
    assert [(part.rows, part.size_bytes > 0) for part in parts] == [(8, True), (8, True)]
    assert write.commit(table, parts) == before + 1 == table.version
    assert found(table) == {k: "first" if k < 4 else "second" for k in range(12)}


def test_a_task_that_failed_or_ran_twice_adds_its_rows_once(table):
    write = DistributedWrite.of(table)

    def failing():
        yield from rows_of(range(3), "lost").to_batches()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write.send(failing())
    # Its answer did not arrive, so it ran again.
    send(write, rows_of(range(3), "twice"))
    write.commit(table, [send(write, rows_of(range(3), "once"))])
    assert found(table) == dict.fromkeys(range(3), "once")


def test_a_driver_that_is_killed_leaves_the_table_and_its_repeat_adds_once(table):
    """The first driver ended before its commit, the second one after it."""
    version = table.version
    send(DistributedWrite.of(table, commit_id="monday"), rows_of(range(3), "lost"))
    assert (table.version, found(table)) == (version, {})
    second = DistributedWrite.of(table, commit_id="monday")
    third = DistributedWrite.of(table, commit_id="monday")
    committed = second.commit(table, [send(second, rows_of(range(3), "second"))])
    # It began before the second one had committed, and has sent its rows.
    late = send(third, rows_of(range(3), "third"))
    assert third.commit(table, [late]) == committed
    # It begins later, and its tasks send nothing.
    fourth = DistributedWrite.of(table, commit_id="monday")
    assert fourth.committed == committed
    unsent = send(fourth, rows_of(range(3), "fourth"))
    assert unsent == SentRows()
    assert fourth.commit(table, [unsent]) == committed
    assert found(table) == dict.fromkeys(range(3), "second")
    assert table.version == committed


def test_a_write_without_rows_makes_an_entry_only_with_a_commit_id(table):
    version = table.version
    assert DistributedWrite.of(table).commit(table, [SentRows()]) == version
    assert DistributedWrite.of(table, commit_id="empty").commit(table, []) == version + 1
    assert DistributedWrite.of(table, commit_id="empty").committed == version + 1


def test_columns_are_checked_before_a_task_begins_and_values_by_it(table):
    with raises(Code.COLUMN_UNEXPECTED):
        DistributedWrite.of(table, pa.schema({"k": pa.int64(), "nonsense": pa.int64()}))
    write = DistributedWrite.of(table)
    with raises(Code.COLUMN_UNEXPECTED):
        send(write, pa.table({"k": [1], "nonsense": [1]}))
    with raises(Code.VALUE_NULL):
        send(write, pa.table({"k": [1, 2, None], "v": ["a", "b", "c"]}))


def test_new_columns_become_fields_if_the_table_grows(table):
    table.set(schema_growth="add")
    rows = pa.table({"k": [1], "v": ["a"], "new": [7]})
    write = DistributedWrite.of(table, rows.schema)
    write.commit(table, [send(write, rows)])
    assert table.scan().read_all().to_pylist() == [{"k": 1, "v": "a", "new": 7}]


def test_partial_rows_and_row_kinds_are_those_of_a_write(table):
    table.write(rows_of(range(3), "old"))
    write = DistributedWrite.of(table, row_kind="op")
    write.commit(table, [send(write, pa.table({"op": ["d", "u"], "k": [0, 1], "v": [None, "new"]}))])
    assert found(table) == {1: "new", 2: "old"}


def test_tables_that_tasks_cannot_open_are_refused(table, memory_lake):
    with raises(Code.INSTANCE_IN_MEMORY):
        DistributedWrite.of(memory_lake.create_table("t", SCHEMA))
    with raises(Code.ARGUMENT_INVALID):
        DistributedWrite.of(table.snapshot())
    other = lakebed.open(table.storage.url).create_table("other", SCHEMA)
    with raises(Code.ARGUMENT_INVALID):
        DistributedWrite.of(table).commit(other, [])


@pytest.mark.parametrize(
    ("value", "literal"), [("it's", "'it''s'"), (None, "NULL"), (b"\x01", "X'01'"), (True, "true"), (7, "7")]
)
def test_a_literal_is_its_value(table, value, literal):
    assert lakebed.sql_literal(value).lower() == literal.lower()
