"""Splits and joins of real tables: how many commits they take, and that every row stays where it is found."""

import pyarrow as pa
import pytest

import lakebed
from lakebed.log.log_limits import LogLimits
from lakebed.model.state.transactions import ProposeSplit
from lakebed.testing.faults import Meanwhile
from lakebed.upkeep.splitting.run import join, split
from tests.tables.retention.cases import on

SCHEMA = lakebed.Schema({"k": "int64"}, values={"v": "int64"})
SMALL = {"split_rows": 100, "join_share": 0.5}


@pytest.fixture
def table(tmp_path):
    """Two partitions, [..., 1000) and [1000, ...), of 400 rows each."""
    made = lakebed.create(tmp_path / "lake").create_table("t", SCHEMA, split_points=[(1000,)], settings=SMALL)
    made.write(rows(range(600, 1400, 2)))
    made.write(rows(range(601, 1400, 2)))
    return made


def rows(numbers):
    return pa.table({"k": list(numbers), "v": list(numbers)}, schema=SCHEMA.arrow)


def held(table):
    return table.scan().read_all().column("k").to_pylist()


def partition_rows(table):
    return table.partitions().column("rows").to_pylist()


def test_several_partitions_are_split_by_one_commit(table):
    before = table.version
    report = split(table)
    assert ([cut.partition for cut in report.split], report.not_split) == ([1, 2], ())
    assert (report.version, table.version) == (before + 1, before + 1)
    assert max(partition_rows(table)) <= 100
    assert held(table) == list(range(600, 1400))


def test_a_commit_takes_as_many_partitions_as_it_should(table):
    before = table.version
    assert len(split(table, references_at_once=12).split) == 2
    assert table.version == before + 2


def test_a_partition_that_is_gone_does_not_hold_the_others_up(table):
    """Another process cuts it after the plan was made."""
    key = SCHEMA.codec.encode_key((700,))
    late = on(table, Meanwhile(table.storage, "create", "*/log/*", lambda: table.commit(ProposeSplit({1: (key,)}))))
    late.log.limits = LogLimits(turn_wait_s=0.0)
    report = split(late)
    assert [cut.partition for cut in report.split] == [2]
    assert [(one.partition, "gone" in one.reason) for one in report.not_split] == [(1, True)]
    assert held(table) == list(range(600, 1400))


def test_what_was_split_for_a_lower_limit_is_joined_for_a_higher_one(table):
    split(table)
    table.set(split_rows=10_000)
    report = join(table)
    assert (len(report.joined), report.not_joined) == (1, ())
    assert partition_rows(table) == [800]
    assert held(table) == list(range(600, 1400))
    assert join(table).version is None
