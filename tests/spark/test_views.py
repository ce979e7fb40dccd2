"""Views that Spark feeds with all rows of a large source."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pytest

from lakebed import Aggregate, Schema
from lakebed.jobs.bulk_import.importer import Importer
from lakebed.jobs.bulk_import.view_backfill import BackfillLimits, backfill
from lakebed.jobs.executor import Root, TableCall
from lakebed.spark.spark_executor import SparkExecutor
from lakebed.upkeep.view_feed import refresh

SCHEMA = Schema({"id": "int64"}, values={"origin": "string", "delay": "int64"})
QUERY = "SELECT origin, count(*) AS n, sum(delay) AS delay FROM source GROUP BY origin"


LIMITS = BackfillLimits(bytes_min=1, share_bytes=4_000)


@pytest.fixture
def flights(lake):
    table = lake.create_table("flights", SCHEMA, split_points=[1_000, 2_000])
    origins = ["EWR", "JFK", "LGA"]
    for first in (0, 1_500):
        ids = range(first, first + 1_500)
        rows = {"id": ids, "origin": [origins[n % 3] for n in ids], "delay": [n % 7 for n in ids]}
        table.write(pa.table(rows, schema=SCHEMA.arrow))
    return table


@pytest.fixture
def refreshed(spark, lake, flights):
    """Refreshes a view of the flights, with all of them on Spark; ``refreshed.shares`` has the tasks of each time."""

    class Noting(Importer):
        def staged(self, tasks, rows):
            run.shares.append(len(tasks))
            return super().staged(tasks, rows)

    def run(view, **how):
        importer = Noting(SparkExecutor(lambda: spark), TableCall(view, Root(lake.url)))
        return refresh(view, flights, backfill=partial(backfill, importer, flights, limits=LIMITS), **how)

    run.shares = []
    return run


def test_a_view_is_fed_with_all_rows_on_spark_and_goes_on_from_there(lake, flights, refreshed):
    merge = Aggregate({"n": "sum", "delay": "sum"})
    view = lake.create_view_table("totals", source="flights", select=QUERY, row_key=["origin"], merge=merge)
    report = refreshed(view)
    assert refreshed.shares[0] > 1
    assert (report.rows_read, report.until) == (3_000, flights.version)
    counts = {row["origin"]: row["n"] for row in view.scan().read_all().to_pylist()}
    assert counts == {"EWR": 1_000, "JFK": 1_000, "LGA": 1_000}
    flights.write(pa.table({"id": [9_999], "origin": ["EWR"], "delay": [1]}, schema=SCHEMA.arrow))
    assert refreshed(view).rows_read == 1
    assert view.get("EWR").column("n").to_pylist() == [1_001]
    assert refreshed(view, anew=True).rows_read == 3_001
    assert view.get("EWR").column("n").to_pylist() == [1_001]
    delays = sum(n % 7 for n in range(3_000)) + 1
    assert sum(view.scan().read_all().column("delay").to_pylist()) == delays
    assert len(refreshed.shares) == 2


def test_results_without_a_key_are_left_out(lake, flights, refreshed):
    select = "SELECT nullif(origin, 'LGA') AS origin, id FROM source"
    view = lake.create_view_table("v", source="flights", select=select, row_key=["origin"], sort_key=["id"])
    assert refreshed(view).rows_without_key is None, "tasks of Spark do not count them"
    assert (view.state().view.version, view.count().rows) == (flights.version, 2_000)
