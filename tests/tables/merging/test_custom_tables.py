"""Tables with the merge mode Custom: writes, compactions, changes, and functions that fail."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import Custom, Schema, UsageError
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task
from tests.processes.merging.test_custom import POINTS, package  # noqa: F401 - a fixture

SCORES = Schema({"user": "string"}, {"score": "int64"}, {"game": "string"})


def rows(*found):
    users, scores, games = zip(*found, strict=True)
    return pa.table({"user": users, "score": scores, "game": games}, schema=SCHEMA)


SCHEMA = SCORES.arrow
WRITES = [
    rows(("a", 1, "x"), ("a", 2, "x"), ("a", 3, "x"), ("b", 7, "x")),
    rows(("a", 2, "y"), ("a", 5, "y"), ("a", 5, "z")),
    rows(("a", 4, "w"), ("c", 1, "w"), ("b", 7, "w")),
]
WANTED = [("a", 4, "w"), ("a", 5, "z"), ("b", 7, "w"), ("c", 1, "w")]


def run_tasks(table, tasks):
    """As an executor does: an error is a result."""

    def result(task, scratch):
        try:
            return run_merge_task(task, table.storage, Path(scratch))
        except lakebed.Error as error:
            return error

    with tempfile.TemporaryDirectory() as scratch:
        return [result(task, scratch) for task in tasks]


def compacted(table):
    return compact(table, prepare(table, "full"), partial(run_tasks, table), cores=1)


def contents(table):
    return [tuple(row.values()) for row in table.scan().read_all().to_pylist()]


@pytest.fixture
def table(tmp_path, package):  # noqa: F811
    made = lakebed.create(tmp_path / "lake").create_table("t", SCORES, merge=Custom("top_two"))
    for one in WRITES:
        made.write(one)
    return made


def test_a_write_merges_its_own_rows(table):
    # Of the second write the newer row of a score, and of the first one the two highest scores.
    assert table.scan(raw=True).read_all().num_rows == 3 + 2 + 3


def test_readers_see_the_same_rows_before_and_after_a_compaction(table):
    assert contents(table) == WANTED
    assert compacted(table).jobs == 1
    assert contents(table) == WANTED
    assert table.scan(raw=True).read_all().num_rows == len(WANTED)
    assert table.count(exact=True).rows == len(WANTED)


def test_changes_are_those_of_merged_rows(table):
    version = table.version
    compacted(table)
    table.write(rows(("a", 6, "new"), ("c", 1, "new")))
    found = [
        (row["user"], row["score"], row["game"], row["_change"])
        for row in table.changes(version).read_all().to_pylist()
    ]
    assert sorted(found) == [
        ("a", 4, "w", "delete"),
        ("a", 6, "new", "insert"),
        ("c", 1, "new", "update_after"),
        ("c", 1, "w", "update_before"),
    ]


def test_a_function_that_fails_fails_the_compaction_and_leaves_the_table(table, package):  # noqa: F811
    version = table.version
    package("[lakebed.merge_functions]\ntop_two = scores_package:without_b\n")
    report = compacted(table)
    assert not report.jobs
    (failure,) = report.failed
    assert failure.error.code == "merge_function_failed"
    assert "'top_two' raised ValueError (no b) for key {'user': 'b'}" in str(failure.error)
    with pytest.raises(UsageError, match="no b"):
        table.write(rows(("b", 1, "x"), ("b", 2, "x")))
    package(POINTS)
    assert contents(table) == WANTED
    assert {job.id for job in table.state().jobs.values()} == set()
    assert table.version >= version


def test_a_process_without_the_function_neither_reads_nor_writes_nor_compacts(table, package):  # noqa: F811
    version = table.version
    package("")
    for ask in (lambda: contents(table), lambda: table.get("a"), lambda: table.write(WRITES[0])):
        with pytest.raises(UsageError, match="on Spark workers as well") as caught:
            ask()
        assert caught.value.code == "merge_function_missing"
    (failure,) = compacted(table).failed
    assert failure.error.code == "merge_function_missing"
    package(POINTS)
    assert contents(table) == WANTED
    assert table.version >= version
