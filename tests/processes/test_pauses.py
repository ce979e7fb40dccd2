"""Switches of the operations of a table."""

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema, UsageError
from lakebed.model.operations import OPERATIONS
from tests.workers import in_process

SCHEMA = Schema({"key": "string"}, values={"value": "int64"})


@pytest.fixture
def instance(tmp_path: Path) -> lakebed.Instance:
    made = lakebed.create(str(tmp_path / "lake"))
    made.create_table("flights", SCHEMA)
    return made


def test_a_pause_is_seen_by_every_process_until_it_is_ended(instance: lakebed.Instance) -> None:
    other = lakebed.open(instance.url)
    instance.pause("flights", "compaction", "gc")
    assert other.paused("flights") == {"compaction", "gc"}
    other.resume("flights", "gc")
    assert instance.paused("flights") == {"compaction"}
    other.pause("flights")
    assert instance.paused("flights") == set(OPERATIONS)
    other.resume("flights")
    assert not instance.paused("flights")


def test_an_unknown_operation_is_refused(instance: lakebed.Instance) -> None:
    with pytest.raises(UsageError, match="unknown operation 'vacuum'; operations: ingest, compaction"):
        instance.pause("flights", "vacuum")


def test_maintenance_leaves_out_what_is_paused(instance: lakebed.Instance) -> None:
    table = instance.table("flights")
    for _ in range(5):
        table.write(pa.table({"key": ["a", "b"], "value": [1, 2]}))
    instance.pause("flights")
    with in_process(instance) as pipeline:
        report = pipeline.maintain("flights")
        assert report.paused == tuple(sorted(OPERATIONS))
        assert not report.compactions
        instance.resume("flights", "compaction")
        assert pipeline.maintain("flights").compactions
    assert table.count().rows == 10
