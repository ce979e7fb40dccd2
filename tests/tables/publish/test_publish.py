"""A published version has exactly the rows of the table, for readers of Apache Iceberg."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import lakebed
from lakebed.model.files import metadata_folder, metadata_name
from lakebed.testing.faults import Fault, FaultPlan, FaultyStorage, Meanwhile, Rule
from lakebed.upkeep.publish import run
from lakebed.upkeep.publish.run import current, publish
from tests.tables.retention.cases import on

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = lakebed.Schema({"k": "int64"}, values={"v": "string", "at": "timestamp[us]"})
METADATA = "*.metadata.json"


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


def test_a_publication_of_another_process_is_read_once(table: lakebed.Table) -> None:
    table.write(rows(0, 10))
    publish(table)
    run._known.clear()
    first = current(table)
    assert first is not None
    assert publish(table).idle
    again = current(table)
    assert again is not None
    assert again.metadata is first.metadata


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


def test_a_tag_is_a_reference_to_the_rows_of_its_version(table: lakebed.Table) -> None:
    """Of a version that was published, one that was not, and one that was overtaken."""
    table.write(rows(0, 10))
    table.tag("first")
    table.write(rows(10, 10))
    publish(table)
    skipped = table.write(rows(20, 10))
    table.write(rows(30, 10))
    publish(table)
    table.tag("skipped", skipped)
    table.tag("main")
    publish(table)
    found = current(table)
    assert found is not None
    iceberg = StaticTable.from_metadata(found.metadata_location)
    refs = iceberg.metadata.refs
    counts = {name: iceberg.scan(snapshot_id=ref.snapshot_id).to_arrow().num_rows for name, ref in refs.items()}
    assert counts == {"first": 10, "skipped": 30, "tag.main": 40, "main": 40}
    table.untag("first")
    publish(table)
    found = current(table)
    assert found is not None
    assert "first" not in StaticTable.from_metadata(found.metadata_location).metadata.refs


def test_schema_changes_are_followed_by_field_ids(table: lakebed.Table) -> None:
    table.write(rows(0, 10))
    publish(table)
    table.alter(lakebed.RenameField("v", "w"), lakebed.AddField("n", "int8"))
    table.write([{"k": 10, "w": "x", "at": None, "n": 7}])
    publish(table)
    table.alter(lakebed.WidenField("n", "int64"), lakebed.DropField("w"), lakebed.AddField("v", "string"))
    table.write([{"k": 11, "v": "new", "at": None, "n": 2**40}])
    publish(table)
    assert read(table) == pa.table(table.scan()).to_pylist()
    assert read(table)[0]["v"] is None
    assert [row["n"] for row in read(table, row_filter="n > 5")] == [7, 2**40]


def test_files_are_skipped_by_bounds(table: lakebed.Table) -> None:
    for start in range(0, 50, 10):
        table.write(rows(start, 10))
    publish(table)
    found = current(table)
    assert found is not None
    scan = StaticTable.from_metadata(found.metadata_location).scan(row_filter="k = 25")
    assert len(list(scan.plan_files())) == 1
    assert scan.to_arrow().num_rows == 1


def test_of_two_publishers_the_loser_goes_on_from_the_winner(table: lakebed.Table) -> None:
    other = lakebed.open(table.storage.url).table("t")
    table.write(rows(0, 10))

    def beaten() -> None:
        run._known.clear()
        other.write(rows(10, 10))
        publish(other)

    assert (
        publish(on(table, Meanwhile(table.storage, "create", METADATA, beaten))).number == 1
        or current(table).number == 1
    )  # type: ignore[union-attr]
    assert len(read(table)) == 20


def test_a_lost_answer_of_the_commit_is_no_second_publication(table: lakebed.Table) -> None:
    """The first put of the metadata takes effect, and its answer is lost."""
    table.write(rows(0, 10))
    forgetful = FaultyStorage(table.storage, FaultPlan([Rule(Fault.FAIL_AFTER, "create", METADATA, calls={1})]))
    assert publish(on(table, forgetful)).number == 1
    assert forgetful.fired
    assert len(read(table)) == 10


def test_a_publisher_that_died_before_the_metadata_left_nothing_that_counts(table: lakebed.Table) -> None:
    table.write(rows(0, 10))
    publish(table)
    table.write(rows(10, 10))
    with pytest.raises(ZeroDivisionError):
        publish(on(table, Meanwhile(table.storage, "create", METADATA, lambda: 1 / 0)))
    assert len(read(table)) == 10
    run._known.clear()
    publish(table)
    assert len(read(table)) == 20


def test_a_publisher_that_slept_takes_no_number_that_is_free_again(table: lakebed.Table) -> None:
    """It wakes up when eleven later metadata files exist, and that with its number was deleted."""
    other = lakebed.open(table.storage.url).table("t")
    table.write(rows(0, 10))

    def slept() -> None:
        for start in range(10, 140, 10):
            other.write(rows(start, 10))
            publish(other)

    report = publish(on(table, Meanwhile(table.storage, "create", METADATA, slept)))
    assert report.number >= 13
    assert len(read(table)) == 140


def test_an_instance_that_was_moved_is_published_anew(table: lakebed.Table, tmp_path: Path) -> None:
    table.write(rows(0, 10))
    publish(table)
    (tmp_path / "lake").rename(tmp_path / "moved")
    moved = lakebed.open(str(tmp_path / "moved")).table("t")
    # Its metadata name files at the old place, which a service neither shows nor counts as published.
    assert current(moved) is None
    publish(moved)
    found = current(moved)
    assert found is not None
    assert "moved" in found.metadata_location
    assert len(read(moved)) == 10


def test_other_metadata_files_in_the_folder_are_refused(table: lakebed.Table) -> None:
    """As those of a catalog of another engine that committed to the table."""
    table.write(rows(0, 10))
    publish(table)
    table.storage.create(f"{metadata_folder(table.id)}/00001-{'a' * 8}.metadata.json", b"{}")
    with pytest.raises(lakebed.DamagedError, match="not written by Lakebed"):
        current(table)


def test_many_publications_leave_few_manifests(table: lakebed.Table) -> None:
    for start in range(40):
        table.write(rows(start, 1))
        publish(table)
    found = current(table)
    assert found is not None
    iceberg = StaticTable.from_metadata(found.metadata_location)
    manifests = iceberg.current_snapshot().manifests(iceberg.io)  # type: ignore[union-attr]
    assert len(manifests) <= 6
    assert len(read(table)) == 40


def test_raw_rows_are_all_that_are_stored_and_stay_so_until_it_is_said_otherwise(tmp_path: Path) -> None:
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", SCHEMA, settings={"publish": "iceberg"}, merge=lakebed.Latest())
    table.write(rows(0, 10))
    table.write(rows(5, 10))
    publish(table)
    assert len(read(table)) == 15
    publish(table, raw=True)
    assert len(read(table)) == 20
    table.write(rows(0, 2))
    publish(table)
    assert len(read(table)) == 22
    run._known.clear()
    table.write(rows(0, 1))
    publish(table)
    assert len(read(table)) == 23
    publish(table, raw=False)
    assert read(table) == pa.table(table.scan()).to_pylist()


def test_polars_reads_the_rows_of_a_table_with_deletes(tmp_path: Path) -> None:
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", SCHEMA, settings={"publish": "iceberg"}, merge=lakebed.Latest())
    table.write(rows(0, 50))
    table.write(rows(25, 50))
    table.delete([10, 60])
    publish(table)
    found = current(table)
    assert found is not None
    frame = pl.scan_iceberg(found.metadata_location).sort("k").collect()
    assert frame.to_dicts() == pa.table(table.scan()).to_pylist()
    assert frame.height == 73
