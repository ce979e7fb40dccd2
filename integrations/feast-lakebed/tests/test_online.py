"""The online store keeps the newest row of each entity, with every value as Feast has it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest
from feast import Entity, FeatureView, Field
from feast.feature_view import DUMMY_ENTITY_ID, DUMMY_ENTITY_VAL
from feast.protos.feast.types import Value_pb2 as protos
from feast.protos.feast.types.EntityKey_pb2 import EntityKey
from feast.protos.feast.types.Value_pb2 import Value
from feast.types import Array, Float32, Int32, Int64, Map, String, UnixTimestamp, from_value_type
from feast.value_type import ValueType
from feast_lakebed import LakebedOnlineStore, LakebedSource
from feast_lakebed.values import LISTS, SCALARS
from stores import store_at

import lakebed

T = datetime(2026, 1, 31, 12, tzinfo=UTC)
USER = Entity(name="user", join_keys=["user_id"], value_type=ValueType.INT64)
SAMPLES = {
    "bytes": b"\x00\xff",
    "string": "ö",
    "int32": -(2**31),
    "int64": 2**63 - 1,
    "double": 0.1,
    "float": 0.5,
    "bool": True,
    "unix_timestamp": -1,
}


def view(*fields, name="profile", entities=(USER,), **more):
    keys = [Field(name=key, dtype=Int64) for entity in entities for key in [entity.join_key]]
    source = LakebedSource(table="events", timestamp_field="at")
    return FeatureView(
        name=name, entities=list(entities), schema=[*keys, *fields], source=source, ttl=timedelta(days=1), **more
    )


def events(lake):
    schema = lakebed.Schema(row_key={"user_id": "int64"}, sort_key={"at": "timestamp[us, tz=UTC]"})
    return lake.create_table("events", schema)


def key(value):
    return EntityKey(join_keys=["user_id"], entity_values=[Value(int64_val=value)])


def row(user, at=T, created=None, **values):
    return key(user), values, at, created


def write(store, target, *rows):
    store._get_provider().online_write_batch(store.config, target, list(rows), None)


def read(store, target, *users, names=None):
    return store._get_provider().online_read(store.config, target, [key(one) for one in users], names)


def visits(found):
    return [None if values is None else values["visits"].int64_val for _, values in found]


@pytest.fixture
def applied(store, lake):
    events(lake)
    target = view(Field(name="visits", dtype=Int64), Field(name="city", dtype=String))
    store.apply([USER, target])
    return target


def test_rows_come_in_the_order_of_the_keys_and_missing_ones_are_none(store, applied):
    write(store, applied, row(1, visits=Value(int64_val=10)), row(2, visits=Value(int64_val=20)))
    found = read(store, applied, 2, 7, 1, 2)
    assert visits(found) == [20, None, 10, 20]
    assert [at for at, _ in found] == [T, None, T, T]
    assert not found[0][1]["city"].HasField("string_val")
    assert set(read(store, applied, 1, names=["city"])[0][1]) == {"city"}


def test_an_older_event_never_replaces_a_newer_one(store, applied):
    write(store, applied, row(1, T, visits=Value(int64_val=2)))
    write(store, applied, row(1, T - timedelta(hours=1), visits=Value(int64_val=1)))
    assert visits(read(store, applied, 1)) == [2]
    write(store, applied, row(1, T + timedelta(hours=1), visits=Value(int64_val=3)))
    assert visits(read(store, applied, 1)) == [3]


def test_of_two_rows_with_one_time_the_one_created_later_wins(store, applied):
    later = row(1, T, T + timedelta(minutes=2), visits=Value(int64_val=2))
    write(store, applied, later, row(1, T, T + timedelta(minutes=1), visits=Value(int64_val=1)))
    assert visits(read(store, applied, 1)) == [2]


def test_an_entity_without_a_value_has_no_row(store, applied):
    nameless = EntityKey(join_keys=["user_id"], entity_values=[Value()])
    assert store._get_provider().online_read(store.config, applied, [nameless]) == [(None, None)]


@pytest.mark.parametrize("kind", [*SCALARS, *LISTS], ids=lambda kind: kind.name)
def test_every_value_comes_back_as_it_was(store, lake, kind):
    name, _ = SCALARS.get(kind) or LISTS[kind]
    sample = SAMPLES.get(name, "12")
    field = f"{name}_list_val" if kind in LISTS else f"{name}_val"
    made = type(getattr(Value(), field))(val=[sample, sample]) if kind in LISTS else sample
    events(lake)
    target = view(Field(name="value", dtype=from_value_type(kind)))
    store.apply([USER, target])
    write(store, target, row(1, value=Value(**{field: made})), row(2, value=Value(null_val=0)), row(3))
    assert [values["value"] for _, values in read(store, target, 1, 2, 3)] == [Value(**{field: made}), Value(), Value()]


def test_maps_are_stored_in_the_encoding_of_feast(store, lake):
    value = Value(map_val=protos.Map(val={"a": Value(int32_val=1)}))
    events(lake)
    target = view(Field(name="value", dtype=Map))
    store.apply([USER, target])
    write(store, target, row(1, value=value))
    assert read(store, target, 1)[0][1]["value"] == value


def test_columns_have_the_types_of_the_features(store, lake):
    events(lake)
    target = view(Field(name="seen", dtype=UnixTimestamp), Field(name="parts", dtype=Array(Float32)))
    store.apply([USER, target])
    write(store, target, row(5, seen=Value(unix_timestamp_val=60)))
    assert lake.sql("SELECT user_id, seen FROM shop_profile").read_all().to_pylist() == [
        {"user_id": 5, "seen": datetime(1970, 1, 1, 0, 1, tzinfo=UTC)}
    ]


def test_a_value_of_another_type_is_refused_whole(store, applied):
    with pytest.raises(lakebed.SchemaMismatchError, match="column visits is int64"):
        write(store, applied, row(1, visits=Value(int64_val=1)), row(2, visits=Value(string_val="many")))
    assert visits(read(store, applied, 1)) == [None]


def test_views_without_entities_have_one_row(store, lake):
    events(lake)
    target = view(Field(name="visits", dtype=Int64), entities=())
    store.apply([target])
    store.write_to_online_store("profile", pd.DataFrame({"visits": [3], "at": [T]}))
    dummy = EntityKey(join_keys=[DUMMY_ENTITY_ID], entity_values=[Value(string_val=DUMMY_ENTITY_VAL)])
    assert visits(store._get_provider().online_read(store.config, target, [dummy])) == [3]


def test_features_are_added_and_removed_with_the_view(store, lake, applied):
    write(store, applied, row(1, visits=Value(int64_val=1), city=Value(string_val="Bern")))
    other = view(Field(name="visits", dtype=Int64), Field(name="age", dtype=Int32))
    store.apply([other])
    write(store, other, row(2, visits=Value(int64_val=2), age=Value(int32_val=30)))
    assert [values["age"].int32_val for _, values in read(store, other, 1, 2)] == [0, 30]
    assert "city" not in lake.table("shop_profile").schema.arrow.names


def test_a_feature_of_another_type_is_refused_and_can_be_replaced(store, lake, applied):
    write(store, applied, row(1, visits=Value(int64_val=1)))
    with pytest.raises(lakebed.UsageError, match="feature visits of view profile is now string, but int64"):
        store._get_provider().online_store.update(
            store.config, [], [view(Field(name="visits", dtype=String))], [], [], partial=True
        )
    assert visits(read(store, applied, 1)) == [1]
    for fields in ([Field(name="city", dtype=String)], [Field(name="visits", dtype=String)]):
        target = view(*fields)
        store._get_provider().online_store.update(store.config, [], [target], [], [], partial=True)
    write(store, target, row(1, T + timedelta(1), visits=Value(string_val="many")))
    assert read(store, target, 1)[0][1]["visits"].string_val == "many"


def test_a_table_that_was_dropped_and_made_again_is_found(store, tmp_path, applied):
    write(store, applied, row(1, visits=Value(int64_val=1)))
    other = LakebedOnlineStore()
    other.teardown(store.config, [applied], [])
    other.teardown(store.config, [applied], [])
    with pytest.raises(lakebed.NotFoundError):
        read(store, applied, 1)
    other.update(store.config, [], [applied], [], [], partial=False)
    assert visits(read(store, applied, 1)) == [None]


def test_rows_beyond_the_ttl_expire_if_the_store_says_so(tmp_path, lake):
    store = store_at(tmp_path, expire=True)
    events(lake)
    target = view(Field(name="visits", dtype=Int64))
    store.apply([USER, target])
    now = datetime.now(UTC)
    write(store, target, row(1, now - timedelta(days=3), visits=Value(int64_val=1)), row(2, now))
    assert visits(read(store, target, 1, 2)) == [None, 0]


def test_reads_and_writes_of_an_event_loop(store, applied):
    async def both():
        online = store._get_provider().online_store
        await online.online_write_batch_async(store.config, applied, [row(1, visits=Value(int64_val=4))], None)
        return await online.online_read_async(store.config, applied, [key(1)])

    assert visits(asyncio.run(both())) == [4]


def test_the_same_through_a_service(tmp_path, lake, service):
    store = store_at(tmp_path, url=service)
    events(lake)
    target = view(Field(name="visits", dtype=Int64))
    store.apply([USER, target])
    write(store, target, row(1, visits=Value(int64_val=1)))
    assert visits(read(store, target, 1, 2)) == [1, None]
