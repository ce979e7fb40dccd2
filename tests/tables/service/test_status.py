"""The status of a service: what its tables hold, and what waits in them."""

from __future__ import annotations

import pyarrow as pa

import lakebed
from lakebed import Schema
from lakebed.server.service.service import Service
from lakebed.server.service.status import SparkState

SCHEMA = Schema({"key": "string"}, values={"value": "int64"})


def test_the_status_has_what_a_table_holds_and_what_is_due(lake: lakebed.Instance) -> None:
    table = lake.create_table("flights", SCHEMA, split_points=["m"])
    for _ in range(5):
        table.write(pa.table({"key": ["a", "b"], "value": [1, 2]}))
    with Service(lake) as service:
        status = service.status()
    found = status.table("flights")
    assert found is not None
    assert (found.version, found.rows, found.partitions, found.files) == (6, 10, 2, 5)
    assert (found.files_per_partition_mean, found.files_per_partition_max) == (2.5, 5)
    assert found.backlog.runs_due == 5
    assert status.spark is SparkState.NONE
    assert status.table("fares") is None


def test_the_status_has_the_files_without_references(lake: lakebed.Instance) -> None:
    table = lake.create_table("flights", SCHEMA)
    for _ in range(2):
        table.write(pa.table({"key": ["a", "b"], "value": [1, 2]}))
    size = sum(file.size_bytes for file in table.state().referenced().values())
    lakebed.Pipeline(lake, launcher="this-thread").compact(table, strategy="full")
    with Service(lake) as service:
        found = service.status().table("flights")
    assert found is not None
    assert (found.files, found.unreferenced_files, found.unreferenced_bytes) == (1, 2, size)
    status = lakebed.status(lake)
    assert status.to_arrow().column("unreferenced_bytes").to_pylist() == [size]


def test_nothing_is_due_to_compaction_in_a_table_that_is_offline(lake: lakebed.Instance) -> None:
    table = lake.create_table("flights", SCHEMA, online=False)
    for _ in range(3):
        table.write(pa.table({"key": ["a", "b"], "value": [1, 2]}))
    with Service(lake) as service:
        found = service.status().table("flights")
    assert found is not None
    assert not found.online
    assert found.backlog.runs_due == 0
