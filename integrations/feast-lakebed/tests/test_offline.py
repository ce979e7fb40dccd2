"""Point-in-time joins give what a search through all rows gives."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pandas as pd
import pyarrow as pa
import pytest
from feast import Entity, FeatureView, Field
from feast.errors import SavedDatasetLocationAlreadyExists
from feast.types import Int64
from feast.value_type import ValueType
from feast_lakebed import LakebedSource, SavedDatasetLakebedStorage
from feast_lakebed.source import value_type

import lakebed

T = datetime(2026, 1, 31, tzinfo=UTC)
USER = Entity(name="user", join_keys=["user_id"], value_type=ValueType.INT64)
TTL = timedelta(hours=30)


def hours(count):
    return T + timedelta(hours=count)


def rows_of(seed):
    chance = random.Random(seed)
    return [
        {"user_id": chance.randrange(6), "at": hours(chance.randrange(48)), "made": hours(chance.randrange(60)), "n": n}
        for n in range(120)
    ]


def expected(rows, user, at, by_creation):
    """The newest row that was there in time, or None."""
    there = [
        row
        for row in rows
        if row["user_id"] == user and at - TTL <= row["at"] <= at and (row["made"] <= at or not by_creation)
    ]
    return max(there, key=lambda row: (row["at"], row["made"]), default=None)


def feature_view(source, name="stats"):
    fields = [Field(name="user_id", dtype=Int64), Field(name="n", dtype=Int64)]
    return FeatureView(name=name, entities=[USER], schema=fields, source=source, ttl=TTL)


def table_of(lake, rows, key):
    """A table of these rows, whose times have no zone."""
    types = {"user_id": "int64", "at": "timestamp[us]", "made": "timestamp[us, tz=UTC]", "n": "int64"}
    table = lake.create_table("rows", lakebed.Schema(row_key={key: types.pop(key)}, values=types))
    table.write([row | {"at": row["at"].replace(tzinfo=None)} for row in rows])
    return table


@pytest.mark.parametrize("by_creation", [False, True])
@pytest.mark.parametrize("key", ["user_id", "n"])
@pytest.mark.parametrize("seed", range(3))
def test_a_join_finds_the_newest_row_of_its_time(store, lake, seed, key, by_creation):
    """By key where the entity is the row key, and by a scan elsewhere."""
    rows = rows_of(seed)
    unique = list({(row["user_id"], row["at"], row["made"]): row for row in rows}.values())
    table_of(lake, unique, key)
    source = LakebedSource(table="rows", timestamp_field="at", created_timestamp_column="made")
    store.apply([USER, feature_view(source)])
    chance = random.Random(seed)
    asked = [(chance.randrange(8), hours(chance.randrange(90))) for _ in range(60)]
    frame = pd.DataFrame({"user_id": [user for user, _ in asked], "event_timestamp": [at for _, at in asked]})
    job = store.get_historical_features(frame, ["stats:n"], filter_by_created_timestamp=by_creation)
    found = [expected(unique, user, at, by_creation) for user, at in asked]
    assert job.to_arrow()["n"].to_pylist() == [None if row is None else row["n"] for row in found]
    assert job.to_reader().read_all().num_rows == 60


def test_a_version_and_a_query_are_sources(store, lake):
    table = table_of(lake, [{"user_id": 1, "at": T, "made": T, "n": 1}], "user_id")
    table.tag("then")
    table.write(pa.table({"user_id": [1], "at": [hours(1).replace(tzinfo=None)], "made": [T], "n": [2]}))
    then = LakebedSource(table="rows", at="then", name="then", timestamp_field="at")
    double = LakebedSource(query="SELECT user_id, at, n * 2 AS n FROM rows", name="double", timestamp_field="at")
    store.apply([USER, feature_view(then, "then"), feature_view(double, "double")])
    frame = "SELECT user_id, timestamp '2026-01-31 05:00:00' AS event_timestamp FROM rows LIMIT 1"
    job = store.get_historical_features(frame, ["then:n", "double:n"], full_feature_names=True)
    assert job.to_df()[["then__n", "double__n"]].to_numpy().tolist() == [[1, 4]]


def test_materialized_rows_are_read_online(store, lake):
    table_of(lake, [{"user_id": 1, "at": hours(n), "made": T, "n": n} for n in range(5)], "user_id")
    source = LakebedSource(table="rows", timestamp_field="at", created_timestamp_column="made")
    store.apply([USER, feature_view(source)])
    store.materialize(T, hours(3))
    assert store.get_online_features(["stats:n"], [{"user_id": 1}]).to_dict()["n"] == [3]


def test_a_dataset_is_saved_once_unless_it_may_be_replaced(store, lake):
    table_of(lake, [{"user_id": 1, "at": T, "made": T, "n": 1}], "user_id")
    store.apply([USER, feature_view(LakebedSource(table="rows", timestamp_field="at"))])
    frame = pd.DataFrame({"user_id": [1, 2], "event_timestamp": [T, T]})
    job = store.get_historical_features(frame, ["stats:n"])
    job.persist(SavedDatasetLakebedStorage("saved"))
    with pytest.raises(SavedDatasetLocationAlreadyExists):
        job.persist(SavedDatasetLakebedStorage("saved"))
    job.persist(SavedDatasetLakebedStorage("saved"), allow_overwrite=True)
    assert lake.table("saved").scan(columns=["user_id", "n"]).read_all().to_pylist() == [
        {"user_id": 1, "n": 1},
        {"user_id": 2, "n": None},
    ]
    assert sorted(lake.tables()) == ["rows", "saved", "shop_stats"]


def test_entities_that_cannot_be_joined_are_refused(store, lake):
    table_of(lake, [], "user_id")
    store.apply([USER, feature_view(LakebedSource(table="rows", timestamp_field="at"))])
    for frame in [
        pd.DataFrame({"user_id": [], "event_timestamp": []}),
        pd.DataFrame({"user_id": [1], "event_timestamp": [None]}),
    ]:
        with pytest.raises(lakebed.UsageError, match="entity_df has"):
            store.get_historical_features(frame, ["stats:n"])


@pytest.mark.parametrize(
    "options",
    [{}, {"table": "a", "query": "SELECT 1"}, {"query": "SELECT 1"}, {"query": "SELECT 1", "name": "q", "at": 1}],
)
def test_a_source_is_a_table_or_a_query(options):
    with pytest.raises(lakebed.UsageError):
        LakebedSource(**options)


def test_a_source_without_its_column_is_refused(store, lake):
    table_of(lake, [], "user_id")
    with pytest.raises(lakebed.UsageError, match="has no column when; it has at, made, n, user_id"):
        LakebedSource(table="rows", timestamp_field="when").validate(store.config)


TYPES = {
    pa.int8(): "INT32",
    pa.uint32(): "INT64",
    pa.date32(): "UNIX_TIMESTAMP",
    pa.large_string(): "STRING",
    pa.list_(pa.float32()): "FLOAT_LIST",
    pa.list_(pa.int16()): "INT32_LIST",
    pa.decimal128(5): "UNKNOWN",
}


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_types_of_features_follow_from_those_of_columns(kind):
    assert value_type(str(kind)) is ValueType[TYPES[kind]]
