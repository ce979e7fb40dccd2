"""A service publishes each version of the tables with the setting, and says how far it is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import lakebed
from lakebed.errors import Code
from lakebed.model.files import metadata_name
from lakebed.server.service.plan import ServiceLimits, default_periods
from lakebed.server.service.service import Service
from lakebed.server.service.store_status import next_steps
from lakebed.upkeep.publish.run import current
from tests.raising import raises
from tests.tables.publish.test_publish import SCHEMA, read, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def wait_for(done: Callable[[], object], limit_s: float = 20.0) -> float:
    """Wait, and return the seconds that it took."""
    began = time.monotonic()
    while not done():
        assert time.monotonic() - began < limit_s
        time.sleep(0.02)
    return time.monotonic() - began


def published(table: lakebed.Table) -> int:
    found = current(table)
    return 0 if found is None else found.version


def lake_that_waits_for_a_compaction(folder: Path) -> lakebed.Instance:
    """Return an instance whose table t cannot be published before a compaction, which is paused."""
    lake = lakebed.create(str(folder / "lake"))
    merge = lakebed.Aggregate({"v": "max", "at": "max"})
    table = lake.create_table("t", SCHEMA, settings={"publish": "iceberg"}, merge=merge)
    lake.pause("t", "compaction")
    for start in (0, 5):
        table.write(rows(start, 10))
    return lake


@pytest.mark.parametrize("late", [False, True])
def test_a_service_publishes_each_version(tmp_path: Path, late: bool) -> None:
    """Also of a table that gets the setting while it runs."""
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", SCHEMA, settings={} if late else {"publish": "iceberg"})
    lake.create_table("other", SCHEMA)
    with Service(lake) as service:
        table.write(rows(0, 10))
        if late:
            table.set(publish="iceberg")
        wait_for(lambda: published(table) == table.version)
        table.write(rows(10, 10))
        wait_for(lambda: published(table) == table.version)
        assert len(read(table)) == 20
        wait_for(lambda: service.status().table("t").published_lag == 0)  # type: ignore[union-attr]
        assert service.status().table("other").published is None  # type: ignore[union-attr]


def test_a_table_that_cannot_be_published_says_why(tmp_path: Path) -> None:
    lake = lakebed.create(str(tmp_path / "lake"))
    merge = lakebed.Aggregate({"v": "max", "at": "max"})
    table = lake.create_table("t", SCHEMA, settings={"publish": "iceberg"}, merge=merge)
    lake.set_online("t", online=False)
    table.write(rows(0, 10))
    table.write(rows(5, 10))
    with Service(lake) as service:
        wait_for(lambda: service.status().table("t").publication_error)  # type: ignore[union-attr]
        found = service.status().table("t")
        assert found is not None
        assert "compact" in str(found.publication_error)
        assert found.published_lag == found.version
    with lakebed.Pipeline(lake, launcher="this-thread") as pipeline:
        with pytest.raises(lakebed.RejectedError, match="compact"):
            pipeline.publish("t")
        report = pipeline.publish("t", compact=True)
    assert (report.version, len(read(table))) == (table.version, 15)
    assert lakebed.status(lake).tables[0].published == table.version


def test_a_call_publishes_unless_that_is_paused(tmp_path: Path) -> None:
    """An instance without a service; the status says what is due."""
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", SCHEMA, settings={"publish": "iceberg"})
    lake.create_table("other", SCHEMA)
    table.write(rows(0, 10))
    assert "publication: other engines read no version yet" in next_steps(lakebed.status(lake).tables[1])
    lake.pause("t", "publication")
    with lakebed.Pipeline(lake, launcher="this-thread") as pipeline:
        assert pipeline.maintain("t").others == ()
        assert published(table) == 0
        lake.resume("t", "publication")
        (report,) = pipeline.maintain("t").others
        assert report.version == published(table) == table.version
        assert pipeline.maintain("t").others == ()
        assert pipeline.maintain("other").others == ()
        table.write(rows(10, 10))
        assert "publication: other engines read version 2" in next_steps(lakebed.status(lake).tables[1])
        # Files that replace others while a publication refers to them are kept.
        pipeline.maintain("t")
    assert len(read(table)) == 20


def test_a_call_leaves_a_version_that_cannot_be_published_to_a_later_one(tmp_path: Path) -> None:
    lake = lake_that_waits_for_a_compaction(tmp_path)
    table = lake.table("t")
    with lakebed.Pipeline(lake, launcher="this-thread") as pipeline:
        (report,) = pipeline.maintain("t").others
        assert "not published" in report.summary
        assert report.refused.code is Code.ROWS_NOT_MERGED
        pipeline.compact("t", strategy="full")
        pipeline.maintain("t")
        assert published(table) == table.version
        table.storage.create(metadata_name(table.id, 2), b'{"properties": {}}')
        with raises(Code.PUBLICATION_FOREIGN):
            pipeline.maintain("t")


def test_a_service_leaves_the_publication_of_a_table_that_is_paused(tmp_path: Path) -> None:
    lake = lakebed.create(str(tmp_path / "lake"))
    for name in ("t", "paused"):
        lake.create_table(name, SCHEMA, settings={"publish": "iceberg"}).write(rows(0, 10))
    lake.pause("paused", "publication")
    with Service(lake):
        wait_for(lambda: published(lake["t"]))
        assert published(lake["paused"]) == 0
        lake.resume("paused", "publication")
        wait_for(lambda: published(lake["paused"]))


def test_a_service_publishes_at_most_once_in_its_period(tmp_path: Path) -> None:
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", SCHEMA, settings={"publish": "iceberg"})
    table.write(rows(0, 10))
    periods = {**default_periods(), "publication": 3600.0}
    with Service(lake, limits=ServiceLimits(periods=periods)) as service:
        wait_for(lambda: published(table) == table.version)
        table.write(rows(10, 10))
        wait_for(lambda: service.status().table("t").version == table.version)  # type: ignore[union-attr]
        wait_for(lambda: service.status().table("t").published_lag == 1)  # type: ignore[union-attr]
        assert published(table) == table.version - 1


def test_an_index_is_not_published(tmp_path: Path) -> None:
    """It has the setting of its instance; engines would read entries of rows that are gone."""
    lake = lakebed.create(str(tmp_path / "lake"))
    lake.set(publish="iceberg")
    table = lake.create_table("t", SCHEMA)
    table.write(rows(0, 10))
    index = lake.create_index("i", table="t", on=["v"])
    with lakebed.Pipeline(lake, launcher="this-thread") as pipeline:
        pipeline.refresh("i")
        assert pipeline.maintain("i").others == ()
        assert [one.name for one in lakebed.status(lake).tables if one.published is not None] == ["t"]
        with raises(Code.INDEX_NOT_READ):
            pipeline.publish("i")
    with Service(lake) as service:
        wait_for(lambda: published(table) == table.version)
        assert service.published() == {table.id}
    assert published(index) == 0


def test_a_publication_that_fails_is_tried_again_within_its_period(tmp_path: Path) -> None:
    lake = lake_that_waits_for_a_compaction(tmp_path)
    table = lake.table("t")
    periods = {**default_periods(), "publication": 3600.0}
    with Service(lake, limits=ServiceLimits(periods=periods)) as service:
        wait_for(lambda: service.status().table("t").publication_error)  # type: ignore[union-attr]
        with lakebed.Pipeline(lake, launcher="this-thread") as pipeline:
            pipeline.compact("t", strategy="full")
        wait_for(lambda: published(table) == table.version)
