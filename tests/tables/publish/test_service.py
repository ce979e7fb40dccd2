"""A service publishes each version of the tables with the setting, and says how far it is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import lakebed
from lakebed.server.service.service import Service
from lakebed.upkeep.publish.run import current
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
    with lakebed.Pipeline(lake, launcher=lakebed.InProcess()) as pipeline:
        with pytest.raises(lakebed.RejectedError, match="compact"):
            pipeline.publish("t")
        report = pipeline.publish("t", compact=True)
    assert (report.version, len(read(table))) == (table.version, 15)
    assert lakebed.status(lake).tables[0].published == table.version
