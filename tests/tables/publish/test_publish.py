"""A published version has exactly the rows of the table, for readers of Apache Iceberg."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import lakebed
from lakebed.model.files import metadata_name
from lakebed.upkeep.publish.run import current, publish

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = lakebed.Schema({"k": "int64"}, values={"v": "string", "at": "timestamp[ms]"})


@pytest.fixture
def table(tmp_path: Path) -> lakebed.Table:
    return lakebed.create(str(tmp_path / "lake")).create_table("t", SCHEMA, settings={"publish": "iceberg"})


def rows(start: int, count: int) -> list[dict[str, Any]]:
    return [{"k": k, "v": f"v{k}", "at": dt.datetime(2026, 1, 1)} for k in range(start, start + count)]  # noqa: DTZ001


def read(table: lakebed.Table, **scan: Any) -> list[dict[str, Any]]:
    """The rows that PyIceberg reads, by key."""
    found = current(table)
    assert found is not None
    return StaticTable.from_metadata(found.metadata_location).scan(**scan).to_arrow().sort_by("k").to_pylist()


def test_each_version_is_a_snapshot_with_its_rows(table: lakebed.Table) -> None:
    versions = []
    for start in range(0, 30, 10):
        table.write(rows(start, 10))
        versions.append(publish(table).version)
    found = current(table)
    assert found is not None
    iceberg = StaticTable.from_metadata(found.metadata_location)
    snapshots = {int(one.summary["lakebed.version"]): one.snapshot_id for one in iceberg.metadata.snapshots}
    assert list(snapshots) == versions
    for version, snapshot in snapshots.items():
        assert read(table, snapshot_id=snapshot) == pa.table(table.at(version).scan()).to_pylist()


def test_a_version_is_published_once(table: lakebed.Table) -> None:
    table.write(rows(0, 10))
    first = publish(table)
    again = publish(table)
    assert (again.number, again.idle) == (first.number, True)


def test_a_table_without_the_setting_is_not_published(table: lakebed.Table) -> None:
    table.set(publish=None)
    with pytest.raises(lakebed.UsageError, match="set publish=iceberg first"):
        publish(table)


def test_metadata_of_another_writer_is_refused(table: lakebed.Table) -> None:
    table.write(rows(0, 10))
    publish(table)
    table.storage.create(metadata_name(table.id, 2), b'{"properties": {}}')
    table.write(rows(10, 10))
    with pytest.raises(lakebed.DamagedError, match="not written by Lakebed"):
        publish(table)


@pytest.mark.parametrize("kind", ["uint32", "uint64", "halffloat", "null", "list<int64>", "json", "time32[s]"])
def test_a_type_that_iceberg_lacks_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}, values={"v": kind}))
    with pytest.raises(lakebed.RejectedError, match="field v is"):
        table.set(publish="iceberg")
    with pytest.raises(lakebed.UsageError, match="field v is"):
        lake.create_table("u", table.schema, settings={"publish": "iceberg"})
    plain = lake.create_table("p", SCHEMA, settings={"publish": "iceberg"})
    with pytest.raises(lakebed.RejectedError, match="field v2 is"):
        plain.alter(lakebed.AddField("v2", kind))
