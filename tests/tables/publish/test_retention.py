"""What a published table names is kept: its data files, manifests and deletes; the rest is deleted."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import lakebed
from lakebed import clock
from lakebed.errors import Code
from lakebed.model.files import iceberg_folder
from lakebed.testing.faults import Meanwhile
from lakebed.upkeep.publish import run
from lakebed.upkeep.publish.run import current, publish
from lakebed.upkeep.retention.run import gc
from tests.clocks import set_clock
from tests.raising import raises
from tests.soaked import each_once, few
from tests.tables.publish.test_publish import FORMATS, METADATA, SCHEMA, read, rows
from tests.tables.retention.cases import on


@pytest.fixture(params=few(FORMATS, 1))
def table(lake: lakebed.Instance, request: pytest.FixtureRequest) -> lakebed.Table:
    settings = {"publish": request.param, "history_s": 0, "orphan_age_s": 0}
    return lake.create_table("t", SCHEMA, settings=settings)


def compact(lake: lakebed.Instance) -> None:
    with lakebed.Pipeline(lake, launcher="this-thread") as pipeline:
        pipeline.compact("t", strategy="full")


def objects(table: lakebed.Table) -> list[str]:
    return sorted(one.name.rpartition("/")[2] for one in table.storage.list(iceberg_folder(table.id)))


def test_a_published_version_keeps_its_files_while_the_publisher_is_away(
    lake: lakebed.Instance, table: lakebed.Table
) -> None:
    """Each write has a file; a compaction replaces all, and without history they would be deleted."""
    for start in (0, 10, 20):
        table.write(rows(start, 10))
    publish(table)
    expected = read(table)
    compact(lake)
    report = gc(lake)
    assert report.collections[0].pinned == 3
    assert read(table) == expected
    publish(table)
    assert gc(lake).collections[0].files == 3
    assert read(table) == expected


def test_without_the_setting_files_and_metadata_are_deleted(lake: lakebed.Instance, table: lakebed.Table) -> None:
    for start in (0, 10, 20):
        table.write(rows(start, 10))
    publish(table)
    compact(lake)
    table.set(publish=None)
    assert gc(lake).collections[0].files == 3
    assert current(table) is None
    gc(lake)
    assert objects(table) == ["v2.metadata.json"]
    with pytest.raises(Exception, match=r"format-version|metadata"):
        StaticTable.from_metadata(table.storage.object_url(f"{iceberg_folder(table.id)}/metadata/v2.metadata.json"))
    table.set(publish="iceberg")
    assert publish(table).number == 3
    assert len(read(table)) == 30


def test_old_manifests_are_deleted_and_those_of_listed_snapshots_are_not(
    lake: lakebed.Instance, table: lakebed.Table
) -> None:
    counts = []
    for number in range(30):
        table.write(rows(10 * number, 10))
        publish(table)
        if number % 5 == 4:
            gc(lake)
            counts.append(len(objects(table)))
            assert len(read(table)) == 10 * (number + 1)
    assert counts[-1] <= counts[1] + 8


@pytest.mark.parametrize("kind", FORMATS)
def test_deletes_that_later_ones_took_in_are_deleted(lake: lakebed.Instance, kind: str) -> None:
    table = lake.create_table("t", SCHEMA, settings={"publish": kind, "history_s": 0, "orphan_age_s": 0})
    table.write(rows(0, 30))
    for k in range(8):
        table.remove(lakebed.KeyRange((2 * k,), (2 * k + 1,)))
        publish(table)
    before = [name for name in objects(table) if name.endswith((".parquet", ".puffin"))]
    gc(lake)
    left = [name for name in objects(table) if name.endswith((".parquet", ".puffin"))]
    assert len(before) == 8
    assert left == before[-1:]
    assert [row["k"] for row in read(table)] == [*range(1, 16, 2), *range(16, 30)]


def test_snapshots_of_the_history_stay_readable(lake: lakebed.Instance) -> None:
    table = lake.create_table("t", SCHEMA, settings={"publish": "iceberg"})
    for number in range(12):
        table.write(rows(10 * number, 10))
        publish(table)
    compact(lake)
    publish(table)
    gc(lake)
    found = current(table)
    assert found is not None
    iceberg = StaticTable.from_metadata(found.metadata_location)
    counts = [iceberg.scan(snapshot_id=one.snapshot_id).to_arrow().num_rows for one in iceberg.metadata.snapshots]
    assert counts == [*range(10, 130, 10), 120]


def test_a_snapshot_is_listed_until_history_has_passed_since_another_was_published(
    lake: lakebed.Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 3 is committed at once, and published two days later: until then engines read version 2."""
    table = lake.create_table("t", SCHEMA, settings={"publish": "iceberg", "history_s": 86_400})
    begin, listed = clock.now(), []
    table.write(rows(0, 1))
    for hours in (0.0, 48.0, 71.9, 72.1):
        set_clock(monkeypatch, now=lambda hours=hours: begin + timedelta(hours=hours))
        publish(table)
        table.write(rows(0, 1))
        found = current(table)
        assert found is not None
        listed.append(StaticTable.from_metadata(found.metadata_location).metadata.snapshots)
    versions = [[int(str(one.summary["lakebed.version"])) for one in snapshots] for snapshots in listed]  # type: ignore[index]
    assert versions == [[2], [2, 3], [2, 3, 4], [3, 4, 5]]


def test_a_dropped_table_takes_its_metadata_along(lake: lakebed.Instance, table: lakebed.Table) -> None:
    table.write(rows(0, 10))
    publish(table)
    lake.drop_table("t")
    gc(lake)
    assert not objects(table)
    with raises(Code.TABLE_NOT_FOUND):
        publish(table)
    anew = lake.create_table("t", SCHEMA, settings={"publish": "iceberg"})
    anew.write(rows(0, 5))
    publish(anew)
    assert len(read(anew)) == 5


def test_a_publisher_whose_files_were_collected_meanwhile_publishes_the_next_version(
    lake: lakebed.Instance, table: lakebed.Table
) -> None:
    """The collector reads the metadata before the publication, and deletes what it is about to name."""
    for start in (0, 10, 20):
        table.write(rows(start, 10))

    def late() -> None:
        compact(lake)
        gc(lake)

    assert publish(on(table, Meanwhile(table.storage, "create", METADATA, late))).number == 2
    assert len(read(table)) == 30
    found = current(table)
    assert found is not None
    assert len(StaticTable.from_metadata(found.metadata_location).metadata.snapshots) == 1


def test_an_erasure_report_counts_manifests_with_bounds(lake: lakebed.Instance, table: lakebed.Table) -> None:
    table.write(rows(0, 10))
    with lakebed.Pipeline(lake, launcher="this-thread") as pipeline:
        before = pipeline.erase_report("t", where="k = 3").not_searched
        publish(table)
        after = pipeline.erase_report("t", where="k = 3").not_searched
    (text,) = set(after) - set(before)
    assert text.startswith("2 objects of the published table")


@each_once(is_known=[True, False], is_tagged=[True, False])
def test_a_publisher_goes_on_after_the_log_was_truncated(
    lake: lakebed.Instance, table: lakebed.Table, *, is_known: bool, is_tagged: bool
) -> None:
    """The entries after the published version are gone, although a tag keeps its state."""
    table.set(log_s=0)
    for start in (0, 10, 20):
        table.write(rows(start, 10))
    version = publish(table).version
    if is_tagged:
        table.tag("then", version)
    for start in range(30, 90, 10):
        table.write(rows(start, 10))
        gc(lake)
    assert (table.log.backend.log_start() or 0) > version
    if not is_known:
        run._known.clear()
    assert publish(table).version == table.version
    assert read(table) == pa.table(table.scan()).to_pylist()
