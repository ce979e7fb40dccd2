"""What a service knows of one table that it follows."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Schema, clock
from lakebed.server.service.follower import Follower
from lakebed.server.service.plan import ServiceLimits
from lakebed.server.service.watch import Watch
from tests.clocks import set_clock


@pytest.mark.parametrize("ahead_s", [-7200, 7200])
def test_a_request_is_as_old_as_the_store_says_whatever_the_clock_of_the_service_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", Schema({"k": "string"}), settings={"ingest_age_s": 3600})
    pq.write_table(pa.table({"k": ["a"]}), tmp_path / "rows.parquet")
    table.submit(tmp_path / "rows.parquet")
    (found,) = lake.catalog().tables.values()
    real = clock.now
    set_clock(monkeypatch, now=lambda: real() + timedelta(seconds=ahead_s))

    watch = Watch(found, lake.log_of(table.id), 0.0, 0.0)
    assert watch.follow(lake)
    begun_s = clock.monotonic_s()
    watch.plan(begun_s, ServiceLimits(), 0)
    assert "ingest" not in [one.operation for one in watch.waiting]
    oldest_s = watch.status().backlog.oldest_s
    assert oldest_s is not None
    assert 0 <= oldest_s < 3600
    watch.plan(begun_s + 3601, ServiceLimits(), 0)
    assert "ingest" in [one.operation for one in watch.waiting]


@pytest.mark.parametrize(("publish", "changing_s"), [("none", 1.0), ("iceberg", 0.5)])
def test_a_published_table_is_checked_twice_as_often_while_it_changes(
    tmp_path: Path, publish: str, changing_s: float
) -> None:
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", Schema({"k": "string"}), settings={"publish": publish})
    follower = Follower(lake, ServiceLimits(follow_s=1.0, follow_max_s=60.0), print)
    try:
        follower.look()
        follower.follow_closely(frozenset({table.id}), clock.monotonic_s())
        (watch,) = follower.watches.values()
        for idle_s, expected_s in ((0.0, changing_s), (3600.0, 1.0)):
            now_s = watch.changed_s + idle_s
            follower.plan(watch, now_s)
            assert watch.follow_at_s - now_s == pytest.approx(expected_s)
    finally:
        follower.close()


def test_a_table_whose_summary_takes_long_leaves_the_service_time_for_others(tmp_path: Path) -> None:
    """At most a tenth of it goes to one table, however often it changes."""
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", Schema({"k": "string"}))
    (found,) = lake.catalog().tables.values()
    watch = Watch(found, lake.log_of(table.id), 0.0, 0.0)
    assert watch.follow(lake)
    assert watch.took_s > 0
    limits, now_s = ServiceLimits(follow_s=1.0, follow_max_s=60.0), watch.changed_s
    for took_s, expected_s in ((0.001, 1.0), (12.0, 108.0)):
        watch.took_s = took_s
        watch.plan(now_s, limits, 0)
        assert watch.follow_at_s - now_s == pytest.approx(expected_s)
