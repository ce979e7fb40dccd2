"""Objects have exactly the rows of their version, as the holder of the access key sees them."""

from __future__ import annotations

import datetime as dt
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import AddField, AgeOff, Aggregate, DropField, KeyRange, Latest, NotFoundError, RenameField, SetFilter
from lakebed.server.gateway.version_objects import VersionObjects
from lakebed.server.security import stored
from lakebed.server.security.access_keys import Share
from lakebed.server.security.roles import Permission, Role
from lakebed.testing.faults import Meanwhile
from lakebed.upkeep.retention.run import collect_garbage
from tests.processes.gateway.opened import BUCKET, body_of, keys_of, listed, opened, refusal_of, rows_of, wait_for_state
from tests.tables.cases import compact_partition
from tests.tables.retention.cases import on


def same_rows(client, table, prefix=None, at=None):
    """Whether the objects with the prefix have the rows of the table."""
    expected = (table if at is None else table.at(at)).scan().read_all()
    expected = expected.sort_by([(name, "ascending") for name in expected.column_names])
    found = rows_of(client, f"{table.name}/" if prefix is None else prefix)
    return found.to_pylist() == expected.to_pylist() and found.column_names == expected.column_names


def compact(table):
    """Every partition has one file."""
    for position in range(len(table.state().partitions)):
        compact_partition(table, position)


def are_whole(client, prefix):
    return ["part" not in key for key in keys_of(client, prefix)]


def test_files_with_all_of_their_rows_are_shown_as_they_are(flights, lake, gateway):
    client = gateway.client()
    assert are_whole(client, "flights/") == [True] * 3
    assert same_rows(client, flights)
    for file in flights.state().referenced().values():
        key = f"flights/v{flights.version}-{file.id}.parquet"
        path = lake.storage.folder / "tables" / flights.id / "data" / file.job / f"{file.id}.parquet"
        assert body_of(client, key) == path.read_bytes()


def test_a_file_of_which_a_partition_was_removed_is_written_anew(flights, gateway):
    flights.remove(KeyRange(("m",), None))
    client = gateway.client()
    # Of the files ab|z and ac, only the first loses rows; the file n, x is gone.
    assert are_whole(client, "flights/") == [True, False]
    assert same_rows(client, flights)


def test_a_removed_range_inside_of_a_partition_is_not_shown(flights, gateway):
    flights.remove(KeyRange(("a",), ("b",)))
    assert same_rows(gateway.client(), flights)


def test_the_rows_of_overlapping_files_are_merged(lake, gateway):
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}, {}, {"v": "string"}), merge=Latest())
    table.write(pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"]}))
    table.write(pa.table({"k": [2], "v": ["new"]}))
    table.write(pa.table({"k": [10, 11], "v": ["d", "e"]}))
    table.delete([(3,)])
    client = gateway.client()
    assert sorted(are_whole(client, "t/")) == [False, True]
    assert same_rows(client, table)
    assert same_rows(client, table, f"t@{table.version - 1}/", table.version - 1)


def test_aggregates_are_merged(lake, gateway):
    schema = lakebed.Schema({"k": "int64"}, {}, {"n": "int64"})
    table = lake.create_table("t", schema, merge=Aggregate({"n": "sum"}))
    for n in range(3):
        table.write(pa.table({"k": [1, n], "n": [1, 10]}))
    assert same_rows(gateway.client(), table)


def test_filtered_and_aged_rows_are_not_shown(lake, gateway):
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}, {"at": "timestamp[us, tz=UTC]"}, {"n": "int64"}))
    new, old = dt.datetime.now(dt.UTC), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    table.write(pa.table({"k": [1, 2], "at": [new, old], "n": [1, 2]}))
    table.write(pa.table({"k": [3], "at": [old], "n": [1]}))
    table.write(pa.table({"k": [4], "at": [new], "n": [5]}))
    client = gateway.client()
    table.alter(AgeOff("at", days=30))
    assert same_rows(client, table)
    table.alter(SetFilter("n < 5"))
    assert same_rows(client, table)


def test_files_with_the_columns_of_before_are_written_anew(flights, gateway):
    client = gateway.client()
    version = flights.version
    flights.alter(RenameField("delay", "late"))
    assert are_whole(client, "flights/") == [False, False]
    assert same_rows(client, flights)
    flights.alter(AddField("more", "int64"))
    assert same_rows(client, flights)
    assert same_rows(client, flights, f"flights@{version}/", version)
    compact(flights)
    assert all(are_whole(client, "flights/"))


def test_a_dropped_field_stays_dropped_when_another_gets_its_name(flights, gateway):
    flights.alter(DropField("crew"))
    flights.alter(AddField("crew", "string"))
    client = gateway.client()
    assert are_whole(client, "flights/") == [False, False]
    assert same_rows(client, flights)
    assert set(rows_of(client, "flights/")["crew"].to_pylist()) == {None}


def test_a_table_without_rows_has_a_file_without_rows(lake, gateway):
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}, {}, {"v": "string"}))
    assert same_rows(gateway.client(), table)


def test_an_object_that_is_written_keeps_its_size_and_tag(flights, gateway):
    flights.remove(KeyRange(("m",), None))
    client = gateway.client()
    (one,) = [one for one in listed(client, "flights/") if "part" in one["Key"]]
    head = client.head_object(Bucket=BUCKET, Key=one["Key"])
    assert (head["ContentLength"], head["ETag"]) == (one["Size"], one["ETag"])
    with opened(gateway.instance) as another:
        # Another process writes the same bytes.
        found = another.client().head_object(Bucket=BUCKET, Key=one["Key"])
        assert (found["ContentLength"], found["ETag"]) == (one["Size"], one["ETag"])


def test_a_key_stays_as_long_as_its_version_is_retained(flights, gateway):
    client = gateway.client()
    whole = keys_of(client, "flights/")
    flights.remove(KeyRange(("m",), None))
    written = keys_of(client, "flights/")
    assert not set(whole) & set(written)
    before = {key: body_of(client, key) for key in (*whole, *written)}
    flights.set(history_s=3600)
    compact(flights)
    collect_garbage(flights)
    wait_for_state()
    assert {key: body_of(client, key) for key in before} == before
    flights.set(history_s=0)
    collect_garbage(flights)
    wait_for_state()
    for key in before:
        assert refusal_of(client.get_object, Key=key) == ("NoSuchKey", 404)
    assert same_rows(client, flights)


def test_a_file_that_was_deleted_in_the_meantime_is_said_to_be(flights, lake, gateway):
    client = gateway.client()
    (key, *_) = keys_of(client, "flights/")
    for file in (lake.storage.folder / "tables" / flights.id / "data").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(client.exceptions.NoSuchKey, match="history_s"):
        client.get_object(Bucket=BUCKET, Key=key)


def test_a_renamed_dropped_and_new_table_has_other_keys(flights, lake, gateway):
    client = gateway.client()
    (key, *_) = keys_of(client, "flights/")
    lake.rename_table("flights", "trips")
    wait_for_state()
    assert refusal_of(client.get_object, Key=key) == ("NoSuchKey", 404)
    assert keys_of(client, "flights/") == []
    assert body_of(client, key.replace("flights", "trips"))
    lake.drop_table("trips")
    wait_for_state()
    assert refusal_of(client.get_object, Key=key.replace("flights", "trips")) == ("NoSuchKey", 404)
    made_anew = lake.create_table("trips", lakebed.Schema({"k": "int64"}))
    made_anew.write(pa.table({"k": [1]}))
    assert refusal_of(client.get_object, Key=key.replace("flights", "trips")) == ("NoSuchKey", 404)
    assert same_rows(client, made_anew)


def overtaken(table, lost, won):
    """Two writers add columns at once: the file of ``lost`` is of the newest version, and lacks a column of it."""
    storage = Meanwhile(table.storage, "create", "*/log/*", lambda: on(table).write(pa.table(won)))
    slow = on(table, storage)
    slow.state()
    slow.write(pa.table(lost))


def test_a_file_that_lacks_a_column_of_its_version_is_written_anew(lake, gateway):
    table = lake.create_table("grown", lakebed.Schema({"k": "string"}), settings={"schema_growth": "add"})
    overtaken(table, {"k": ["a", "b"], "x": [1, 2]}, {"k": ["c"], "y": [3]})
    table.write(pa.table({"k": ["d"], "x": [4], "y": [5]}))
    client = gateway.client()
    assert are_whole(client, "grown/") == [True, False]
    assert same_rows(client, table)
    compact(table)
    assert are_whole(client, "grown/") == [True]
    assert same_rows(client, table)


def test_the_columns_of_a_file_are_looked_at_once(lake):
    table = lake.create_table("grown", lakebed.Schema({"k": "string"}), settings={"schema_growth": "add"})
    for k in "ab":
        table.write(pa.table({"k": [k], "x": [1]}))
    first = VersionObjects.of("grown", table.at(table.version), None, None)
    assert len(first.objects) == 2
    table.tag("another-version-of-the-same-files")
    data = lake.storage.folder / "tables" / table.id / "data"
    data.rename(data.with_name("elsewhere"))
    assert len(VersionObjects.of("grown", table.at(table.version), None, None, [first]).objects) == 2
    with pytest.raises(NotFoundError, match="missing"):
        VersionObjects.of("grown", table.at(table.version), None, None)


def test_more_than_the_cache_may_have_is_refused_with_the_remedy(flights, lake):
    flights.alter(RenameField("delay", "late"))
    with opened(lake, cache_bytes=100) as small:
        client = small.client()
        with pytest.raises(client.exceptions.ClientError, match=r"compact the table .* or raise --s3-cache"):
            client.list_objects_v2(Bucket=BUCKET, Prefix="flights/")
        assert client.list_objects_v2(Bucket=BUCKET, Delimiter="/")["KeyCount"] == 1
        compact(flights)
        assert same_rows(client, flights)


def test_copies_make_room_for_others(flights, lake):
    flights.alter(RenameField("delay", "late"))
    with opened(lake, cache_bytes=6_000) as small:
        client = small.client()
        sizes = [one["Size"] for one in listed(client, "flights/")]
        assert 3_000 < sum(sizes) < 6_000
        for n in range(4):
            flights.alter(RenameField("late" if n == 0 else f"late{n - 1}", f"late{n}"))
            assert same_rows(client, flights)


# -- roles and shares ------------------------------------------------------------------------------------------------


def test_a_role_with_a_row_filter_hidden_and_masked_columns_sees_its_rows_alone(flights, lake, gateway):
    role = Role(
        "part", Permission.READ, frozenset(["flights"]), "tail < 'n'", frozenset(["crew"]), (("delay", "NULL"),)
    )
    stored.create_role(lake.storage, role)
    client = gateway.client(gateway.key("part"))
    found = rows_of(client, "flights/")
    assert found.column_names == ["tail", "at", "delay"]
    assert found["tail"].to_pylist() == ["a", "a", "b", "c"]
    assert found["delay"].null_count == 4
    assert not any(are_whole(client, "flights/"))
    for key in keys_of(client, "flights/"):
        assert b"ann" not in body_of(client, key)
    # Files are of all rows.
    for key in keys_of(gateway.client(), "flights/"):
        assert refusal_of(client.get_object, Key=key) == ("NoSuchKey", 404)


def test_a_role_that_does_not_fit_shows_nothing(flights, lake, gateway):
    role = Role("part", Permission.READ, frozenset(["flights"]), "delay > 0")
    stored.create_role(lake.storage, role)
    client = gateway.client(gateway.key("part"))
    flights.alter(RenameField("delay", "late"))
    assert refusal_of(client.list_objects_v2, Prefix="flights/") == ("AccessDenied", 403)


def test_an_access_key_is_for_its_tables(flights, lake, gateway):
    lake.create_table("secret", lakebed.Schema({"k": "int64"})).write(pa.table({"k": [1]}))
    (foreign,) = keys_of(gateway.client(), "secret/")
    client = gateway.client(gateway.key(tables=["flights"]))
    page = client.list_objects_v2(Bucket=BUCKET, Delimiter="/")
    assert [one["Prefix"] for one in page["CommonPrefixes"]] == ["flights/"]
    assert {key.partition("/")[0] for key in keys_of(client)} == {"flights"}
    for call, options in ((client.get_object, {"Key": foreign}), (client.list_objects_v2, {"Prefix": "secret/"})):
        assert refusal_of(call, **options) == ("AccessDenied", 403)
    assert refusal_of(client.head_object, Key=foreign) == ("403", 403)


def test_a_share_of_a_version_shows_no_other(flights, gateway):
    client = gateway.client()
    version = flights.version
    (old, *_), (older, *_) = keys_of(client, "flights/"), keys_of(client, f"flights@{version - 1}/")
    shared = gateway.client(gateway.key(tables=["flights"], share=Share(flights.id, version, None, "")))
    flights.write(pa.table({"tail": ["q"], "at": [9], "delay": [1.0], "crew": ["bob"]}))
    assert [key.replace("/", f"@{version}/") for key in keys_of(shared)] == keys_of(client, f"flights@{version}/")
    assert same_rows(shared, flights, "flights/", version)
    assert body_of(shared, old)
    (new, *_) = keys_of(client, "flights/")
    for key in (new, older, older.replace(f"@{version - 1}", "")):
        assert refusal_of(shared.get_object, Key=key) == ("NoSuchKey", 404)
    assert refusal_of(shared.list_objects_v2, Prefix=f"flights@{version - 1}/") == ("NoSuchKey", 404)


def test_a_share_of_keys_shows_no_others(flights, lake, gateway):
    ranges = flights.schema.codec.encode_ranges([KeyRange.prefix("a"), KeyRange.prefix("n")])
    share = Share(flights.id, None, tuple((keys.min, keys.max) for keys in ranges), "--prefix a --prefix n")
    client = gateway.client(gateway.key(tables=["flights"], share=share))
    assert rows_of(client, "flights/")["tail"].to_pylist() == ["a", "a", "n"]
    for key in keys_of(client, "flights/"):
        assert b"z" not in pq.read_table(io.BytesIO(body_of(client, key)))["tail"].to_pylist()
    for key in keys_of(gateway.client(), "flights/"):
        assert refusal_of(client.get_object, Key=key) == ("NoSuchKey", 404)
    lake.drop_table("flights")
    schema = lakebed.Schema({"tail": "string"})
    lake.create_table("flights", schema).write(pa.table({"tail": ["a"]}))
    wait_for_state()
    assert refusal_of(client.list_objects_v2, Prefix="flights/") == ("AccessDenied", 403)


def test_a_share_of_whole_files_shows_them_as_they_are(lake, gateway):
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}))
    table.write(pa.table({"k": [1, 2]}))
    table.write(pa.table({"k": [8, 9]}))
    share = Share(table.id, None, tuple((r.min, r.max) for r in table.schema.codec.encode_ranges([KeyRange((5,))])), "")
    client = gateway.client(gateway.key(tables=["t"], share=share))
    assert are_whole(client, "t/") == [True]
    assert rows_of(client, "t/")["k"].to_pylist() == [8, 9]
