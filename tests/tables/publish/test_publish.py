"""A published version has exactly the rows of the table, for readers of Apache Iceberg."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable
from pyiceberg.table.metadata import TableMetadataV3

import lakebed
from lakebed.model.files import metadata_folder, metadata_name
from lakebed.testing.faults import Fault, FaultPlan, FaultyStorage, Meanwhile, Rule
from lakebed.upkeep.publish import run
from lakebed.upkeep.publish.manifests import read_entries, read_list
from lakebed.upkeep.publish.run import current, publish
from lakebed.upkeep.publish.storage_io import StorageIO
from tests.tables.retention.cases import on

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = lakebed.Schema({"k": "int64"}, values={"v": "string", "at": "timestamp[us]"})
METADATA = "*.metadata.json"


FORMATS = ["iceberg", "iceberg-3"]


@pytest.fixture(params=FORMATS)
def table(tmp_path: Path, request: pytest.FixtureRequest) -> lakebed.Table:
    return lakebed.create(str(tmp_path / "lake")).create_table("t", SCHEMA, settings={"publish": request.param})


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


@pytest.fixture(params=FORMATS)
def latest(tmp_path: Path, request: pytest.FixtureRequest) -> lakebed.Table:
    """A table in which rows are replaced."""
    lake = lakebed.create(str(tmp_path / "latest"))
    return lake.create_table("t", SCHEMA, settings={"publish": request.param}, merge=lakebed.Latest())


def deletes_of(table: lakebed.Table) -> dict[str, set[str]]:
    """The objects with deletes that the current snapshot names, by the data files to which PyIceberg applies them."""
    found = current(table)
    assert found is not None
    tasks = StaticTable.from_metadata(found.metadata_location).scan().plan_files()
    return {task.file.file_path: {one.file_path for one in task.delete_files} for task in tasks}


def test_raw_rows_are_all_that_are_stored_and_stay_so_until_it_is_said_otherwise(latest: lakebed.Table) -> None:
    table = latest
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


def test_polars_reads_the_rows_of_a_table_with_deletes(latest: lakebed.Table) -> None:
    table = latest
    table.write(rows(0, 50))
    table.write(rows(25, 50))
    table.delete([10, 60])
    publish(table)
    found = current(table)
    assert found is not None
    frame = pl.scan_iceberg(found.metadata_location).sort("k").collect()
    assert frame.to_dicts() == pa.table(table.scan()).to_pylist()
    assert frame.height == 73


def test_a_publication_writes_one_object_with_deletes_for_all_files(latest: lakebed.Table) -> None:
    for start in range(0, 60, 10):
        latest.write(rows(start, 10))
    publish(latest)
    latest.write([row for start in range(0, 60, 10) for row in rows(start, 2)])
    assert publish(latest).deletes_written in {1, 6}
    objects = set.union(*deletes_of(latest).values())
    assert len(objects) == 1
    assert read(latest) == pa.table(latest.scan()).to_pylist()


def test_many_publications_leave_few_objects_with_deletes(latest: lakebed.Table) -> None:
    """Some rows of every file are replaced by each write, and a new publisher goes on from what is stored."""
    latest.write(rows(0, 100))
    for number in range(40):
        latest.write([{"k": k, "v": f"{number}", "at": None} for k in range(number, 100, 20)])
        publish(latest)
        if number % 10 == 9:
            run._known.clear()
    assert read(latest) == pa.table(latest.scan()).to_pylist()
    assert len(set.union(*deletes_of(latest).values())) <= 8


@pytest.mark.parametrize("is_known", [True, False], ids=["same process", "another process"])
def test_rows_that_are_shown_again_have_no_deletes_left(latest: lakebed.Table, *, is_known: bool) -> None:
    """Also not in an object that another file has its deletes in."""
    latest.write(rows(0, 10))
    latest.write(rows(10, 10))
    version = latest.write(rows(20, 10))
    publish(latest)
    latest.write([*rows(0, 2), *rows(10, 2)])
    publish(latest)
    latest.write(rows(20, 2))
    publish(latest)
    latest.restore(version)
    if not is_known:
        run._known.clear()
    publish(latest)
    assert read(latest) == pa.table(latest.scan()).to_pylist()
    assert len(read(latest)) == 30
    latest.write(rows(10, 1))
    publish(latest)
    assert read(latest) == pa.table(latest.scan()).to_pylist()


@pytest.mark.parametrize("is_known", [True, False], ids=["same process", "another process"])
@pytest.mark.parametrize("formats", [FORMATS, FORMATS[::-1]], ids=["2 to 3", "3 to 2"])
def test_a_table_goes_from_one_format_to_the_other(tmp_path: Path, formats: list[str], *, is_known: bool) -> None:
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", SCHEMA, settings={"publish": formats[0]}, merge=lakebed.Latest())
    for start in (0, 5, 10):
        table.write(rows(start, 10))
        tagged = publish(table).version
    table.tag("then", tagged)
    table.set(publish=formats[1])
    if not is_known:
        run._known.clear()
    for start in (15, 7):
        publish(table)
        found = current(table)
        assert found is not None
        iceberg = StaticTable.from_metadata(found.metadata_location)
        assert f"iceberg-{iceberg.metadata.format_version}".removesuffix("-2") == formats[1]
        for snapshot in iceberg.metadata.snapshots:
            version = int(snapshot.summary["lakebed.version"])  # type: ignore[index,arg-type]
            assert len(iceberg.scan(snapshot_id=snapshot.snapshot_id).to_arrow()) == len(
                pa.table(table.at(version).scan())
            )
        assert read(table) == pa.table(table.scan()).to_pylist()
        assert "then" in iceberg.metadata.refs
        if formats[1] == "iceberg-3":
            assert len(iceberg.metadata.snapshots) >= 3
        table.write(rows(start, 10))


def test_rows_of_format_3_have_ids_of_their_own(tmp_path: Path) -> None:
    """Also those that were published in format 2."""
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", SCHEMA, settings={"publish": "iceberg"})
    for start in (0, 10, 20):
        table.write(rows(start, 10))
        publish(table)
    table.set(publish="iceberg-3")
    for start in (30, 40, 50):
        table.write(rows(start, 10))
        publish(table)
        run._known.clear()
    found = current(table)
    assert found is not None
    metadata = StaticTable.from_metadata(found.metadata_location).metadata
    assert isinstance(metadata, TableMetadataV3)
    assert [one.first_row_id for one in metadata.snapshots] == [None] * 3 + [0, 40, 50]
    assert [one.added_rows for one in metadata.snapshots] == [None] * 3 + [40, 10, 10]
    assert metadata.next_row_id == 60
    io = StorageIO(table.storage)
    manifests = read_list(io, metadata.snapshots[-1].manifest_list)
    named = [entry.data_file[16] for manifest in manifests for entry in read_entries(io, manifest)]
    assert sorted(named) == list(range(0, 60, 10))


def test_a_tag_without_rows_of_its_own_shares_the_manifests_of_the_snapshot_before(latest: lakebed.Table) -> None:
    for start in (0, 5):
        latest.write(rows(start, 10))
        publish(latest)
    latest.set(history_s=7200)
    publish(latest)
    latest.tag("quiet")
    latest.write(rows(20, 10))
    publish(latest)
    found = current(latest)
    assert found is not None
    iceberg = StaticTable.from_metadata(found.metadata_location)
    tagged = iceberg.snapshot_by_name("quiet")
    assert tagged is not None
    before = iceberg.snapshot_by_id(tagged.parent_snapshot_id)  # type: ignore[arg-type]
    assert before is not None
    assert {one.manifest_path for one in tagged.manifests(iceberg.io)} == {
        one.manifest_path for one in before.manifests(iceberg.io)
    }
    assert iceberg.scan(snapshot_id=tagged.snapshot_id).to_arrow().num_rows == 15
