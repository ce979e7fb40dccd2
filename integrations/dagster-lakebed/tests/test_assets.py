"""Assets are tables, and their partitions key ranges that are replaced as a whole."""

import datetime as dt

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dagster import (
    DailyPartitionsDefinition,
    StaticPartitionsDefinition,
    asset,
    materialize,
)
from dagster_lakebed import LakebedIOManager, freshness_check, quality_check, row_count_check

import lakebed

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-05")
SHOPS = StaticPartitionsDefinition(["bern", "rome"])


@pytest.fixture
def manager(tmp_path):
    return LakebedIOManager(url=str(tmp_path / "lake"))


def made(manager, *assets, **more):
    return materialize(list(assets), resources={"io_manager": manager}, **more)


def rows_of(manager, name):
    return manager.lake.table(name).scan().read_all().to_pylist()


def users(rows, **more):
    @asset(name="users", metadata={"key": "id"} | more)
    def the_asset():
        return rows

    return the_asset


FORMS = [pa.Table.from_pylist, pd.DataFrame, pl.DataFrame, list]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(("kind", "count"), [(pa.Table, "num_rows"), (pd.DataFrame, "size"), (pl.DataFrame, "height")])
def test_each_kind_of_frame_is_stored_and_loaded(manager, form, kind, count):
    seen = []

    @asset
    def report(users: kind) -> None:
        seen.append(users)

    made(manager, users(form([{"id": 2, "n": 1}, {"id": 1, "n": 3}])), report)
    assert rows_of(manager, "users") == [{"id": 1, "n": 3}, {"id": 2, "n": 1}]
    assert isinstance(seen[0], kind)
    assert getattr(seen[0], count) in (2, 4)


def test_a_materialization_replaces_all_rows_in_one_version(manager):
    made(manager, users([{"id": 1, "n": 1}, {"id": 2, "n": 2}]))
    before = manager.lake.table("users").snapshot().version
    result = made(manager, users([{"id": 2, "n": 5}, {"id": 3, "n": 3}]))
    assert rows_of(manager, "users") == [{"id": 2, "n": 5}, {"id": 3, "n": 3}]
    assert manager.lake.table("users").snapshot().version == before + 1
    metadata = result.asset_materializations_for_node("users")[0].metadata
    assert (metadata["dagster/row_count"].value, metadata["version"].value) == (2, before + 1)


def test_a_run_that_is_repeated_gives_the_same_rows(manager):
    for _ in range(3):
        made(manager, users([{"id": 1, "n": 1}]))
        assert rows_of(manager, "users") == [{"id": 1, "n": 1}]
    made(manager, users(pa.table({"id": pa.array([], pa.int64()), "n": pa.array([], pa.int64())})))
    assert rows_of(manager, "users") == []


def by_shop(rows):
    @asset(name="sales", partitions_def=SHOPS, metadata={"partition_by": "shop", "key": ["id"]})
    def sales(context):
        return [row | {"shop": context.partition_key} for row in rows]

    return sales


def test_a_partition_is_replaced_and_the_others_stay(manager):
    for shop in SHOPS.get_partition_keys():
        made(manager, by_shop([{"id": 1, "n": 1}, {"id": 2, "n": 2}]), partition_key=shop)
    made(manager, by_shop([{"id": 2, "n": 7}]), partition_key="rome")
    shown = [(row["shop"], row["id"], row["n"]) for row in rows_of(manager, "sales")]
    assert shown == [("bern", 1, 1), ("bern", 2, 2), ("rome", 2, 7)]


@pytest.mark.parametrize("of", [dt.date, dt.datetime], ids=["date", "timestamp"])
def test_a_day_is_a_range_of_times(manager, of):
    loaded = {}

    @asset(name="days", partitions_def=DAYS, metadata={"partition_by": "at", "key": ["id"]})
    def days(context):
        at = context.partition_time_window.start
        return pa.table({"at": [at.date() if of is dt.date else at + dt.timedelta(hours=5)], "id": [1]})

    @asset(partitions_def=DAYS)
    def report(context, days: pa.Table) -> None:
        loaded[context.partition_key] = days["at"].to_pylist()

    for day in ("2026-01-01", "2026-01-02", "2026-01-01"):
        made(manager, days, report, partition_key=day)
    assert len(rows_of(manager, "days")) == 2
    assert {day: len(rows) for day, rows in loaded.items()} == {"2026-01-01": 1, "2026-01-02": 1}
    assert loaded["2026-01-02"][0].day == 2


def test_a_row_of_another_partition_is_refused_whole(manager):
    @asset(name="sales", partitions_def=SHOPS, metadata={"partition_by": "shop", "key": ["id"]})
    def sales():
        return [{"shop": "bern", "id": 1}, {"shop": "oslo", "id": 2}]

    with pytest.raises(lakebed.BadKeyError, match="1 rows lie outside of the partition, the first with shop = 'oslo'"):
        made(manager, sales, partition_key="bern")
    assert rows_of(manager, "sales") == []


def test_metadata_that_is_missing_is_named(manager):
    @asset(partitions_def=SHOPS)
    def parts():
        return [{"id": 1}]

    @asset
    def keyless():
        return [{"id": 1}]

    @asset(metadata={"key": "id"})
    def number():
        return 5

    for one, message in ((parts, "partition_by"), (keyless, 'metadata={"key"'), (number, "cannot store a int")):
        with pytest.raises(lakebed.UsageError, match=message):
            made(manager, one, partition_key="bern" if one is parts else None)


def test_checks_of_rows_quality_and_freshness(manager):
    one = users([{"id": 1, "n": 1}, {"id": 2, "n": -1}])
    hour = dt.timedelta(hours=1)
    checks = [
        row_count_check(one, rows_min=2),
        quality_check(one, "positive", "n > 0"),
        quality_check(one, "has_id", "id IS NOT NULL"),
        freshness_check(one, age_max=hour),
    ]
    result = made(manager, one, *checks)
    found = {check.check_name: check for check in result.get_asset_check_evaluations()}
    assert {name: check.passed for name, check in found.items()} == {
        "row_count": True,
        "positive": False,
        "has_id": True,
        "freshness": True,
    }
    assert found["positive"].metadata["wrong_rows"].value == 1


def test_old_rows_and_empty_tables_are_not_fresh(manager):
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    one = users(pa.table({"id": [1], "at": [at]}))
    check = freshness_check(one, age_max=dt.timedelta(hours=1), column="at")
    assert not made(manager, one, check).get_asset_check_evaluations()[0].passed
    empty = users(pa.table({"id": pa.array([], pa.int64()), "at": pa.array([], pa.timestamp("us", "UTC"))}))
    assert not made(manager, empty, check).get_asset_check_evaluations()[0].passed
