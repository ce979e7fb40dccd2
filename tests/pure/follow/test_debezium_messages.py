"""Messages of Debezium are the same rows in JSON with and without schemas, and in Avro."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.model import types
from lakebed.upkeep.follow.connect_values import connect_type, field_type, inferred_type
from lakebed.upkeep.follow.debezium_messages import PLACEHOLDER, Effect, ForeignMessageError, Format, MessageDecoder
from lakebed.upkeep.follow.row_buffer import UNCHANGED, column
from tests.debezium import VARIABLE, AvroWriter, JsonWriter, Registered, Table, decimal_schema, unscaled

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - times without a zone
DAY_US = 86_400_000_000


def named(kind, name):
    return {"type": kind, "name": name, "version": 1}


def since_epoch(moment, unit_us):
    return (moment - EPOCH) // dt.timedelta(microseconds=unit_us)


def of_day(time):
    return ((time.hour * 60 + time.minute) * 60 + time.second) * 1_000_000 + time.microsecond


times = st.datetimes(dt.datetime(1678, 1, 1), dt.datetime(2262, 1, 1))  # noqa: DTZ001 - what nanoseconds hold
to_ms = {"microsecond": 0}
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(lambda one: one != PLACEHOLDER)
decimals = st.integers(-(10**9), 10**9).map(lambda digits: Decimal(digits).scaleb(-2))

VALUES = {
    "int8": ({"type": "int8"}, "int8", st.integers(-(2**7), 2**7 - 1), None),
    "int16": ({"type": "int16"}, "int16", st.integers(-(2**15), 2**15 - 1), None),
    "int32": ({"type": "int32"}, "int32", st.integers(-(2**31), 2**31 - 1), None),
    "int64": ({"type": "int64"}, "int64", st.integers(-(2**63), 2**63 - 1), None),
    "double": ({"type": "double"}, "double", st.floats(allow_nan=False, allow_infinity=False), None),
    "float": ({"type": "float"}, "float32", st.floats(allow_nan=False, allow_infinity=False, width=32), None),
    "boolean": ({"type": "boolean"}, "bool", st.booleans(), None),
    "string": ({"type": "string"}, "string", texts, None),
    "bytes": ({"type": "bytes"}, "binary", st.binary(max_size=20), None),
    "decimal": (decimal_schema(12, 2), "decimal128(12, 2)", decimals, unscaled),
    "wide decimal": (
        decimal_schema(60, 0),
        "decimal256(60, 0)",
        st.integers(-(10**59), 10**59).map(Decimal),
        lambda one: unscaled(one, 0),
    ),
    "variable decimal": (
        VARIABLE,
        "string",
        st.integers(-(10**59), 10**59).map(lambda digits: format(Decimal(f"{digits}E-2"), "f")),
        lambda one: {"scale": 2, "value": unscaled(Decimal(one), 2)},
    ),
    "Date": (
        named("int32", "io.debezium.time.Date"),
        "date32",
        times.map(dt.datetime.date),
        lambda one: (one - EPOCH.date()).days,
    ),
    "Time": (
        named("int32", "io.debezium.time.Time"),
        "time64[us]",
        st.times().map(lambda one: one.replace(microsecond=one.microsecond // 1000 * 1000)),
        lambda one: of_day(one) // 1000,
    ),
    "MicroTime": (named("int64", "io.debezium.time.MicroTime"), "time64[us]", st.times(), of_day),
    "Timestamp": (
        named("int64", "io.debezium.time.Timestamp"),
        "timestamp[us]",
        times.map(lambda one: one.replace(microsecond=5_000)),
        lambda one: since_epoch(one, 1000),
    ),
    "MicroTimestamp": (
        named("int64", "io.debezium.time.MicroTimestamp"),
        "timestamp[us]",
        times,
        lambda one: since_epoch(one, 1),
    ),
    "NanoTimestamp": (
        named("int64", "io.debezium.time.NanoTimestamp"),
        "timestamp[ns]",
        times,
        lambda one: since_epoch(one, 1) * 1000,
    ),
    "ZonedTimestamp": (
        named("string", "io.debezium.time.ZonedTimestamp"),
        "timestamp[us, UTC]",
        times.map(lambda one: one.replace(tzinfo=dt.UTC)),
        lambda one: one.isoformat().replace("+00:00", "Z"),
    ),
    "IsoTimestamp": (
        named("string", "io.debezium.time.IsoTimestamp"),
        "timestamp[us]",
        times,
        lambda one: one.isoformat() + "Z",
    ),
    "connect Date": (
        named("int32", "org.apache.kafka.connect.data.Date"),
        "date32",
        times.map(dt.datetime.date),
        lambda one: (one - EPOCH.date()).days,
    ),
    "connect Timestamp": (
        named("int64", "org.apache.kafka.connect.data.Timestamp"),
        "timestamp[us]",
        times.map(lambda one: one.replace(microsecond=5_000)),
        lambda one: since_epoch(one, 1000),
    ),
    "Uuid": (named("string", "io.debezium.data.Uuid"), "uuid", st.uuids(), str),
    "Json": (
        named("string", "io.debezium.data.Json"),
        "json",
        st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)).map(json.dumps),
        None,
    ),
    "list": (
        {"type": "array", "items": {"type": "int32", "optional": True}},
        "list<int32>",
        st.lists(st.none() | st.integers(-9, 9), max_size=4),
        None,
    ),
}


def plain(array):
    """The values; nanoseconds as the microseconds of Python."""
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        array = array.cast(pa.timestamp("us"))
    return array.to_pylist()


def writers():
    registered = Registered()
    return registered, {
        "json with schemas": JsonWriter(schemas=True),
        "avro": AvroWriter(registered.register),
    }


@pytest.mark.parametrize("case", VALUES)
@given(data=st.data())
def test_a_value_is_the_one_of_the_database(case, data):
    schema, name, strategy, written = VALUES[case]
    wanted = data.draw(st.lists(st.none() | strategy, min_size=1, max_size=5))
    values = [one if one is None or written is None else written(one) for one in wanted]
    table = Table("shop.public.t", ("k",), {"k": {"type": "int32"}, "v": schema})
    registered, all_writers = writers()
    for writer in all_writers.values():
        decoder = MessageDecoder(Format.DEBEZIUM, (), registered.schema)
        changes = [
            decoder.decode(writer.key(table, {"k": at}), writer.envelope(table, "c", None, {"k": at, "v": one}))
            for at, one in enumerate(values)
        ]
        assert [(change.kind, change.key) for change in changes] == [
            (Effect.UPSERT, {"k": at}) for at in range(len(values))
        ]
        (kind,) = {change.shape.types["v"] for change in changes}
        found, wrong = column(kind, [change.row["v"] for change in changes])
        assert (kind.name, found.type if name != "json" else None) == (
            name,
            types.parse(name) if name != "json" else None,
        )
        assert (plain(found), wrong) == (wanted, {})


REFUSED = [
    ({"type": "int16"}, 70_000),
    ({"type": "int32"}, 10.5),
    ({"type": "int32"}, "7"),
    ({"type": "int32"}, True),
    ({"type": "string"}, 7),
    ({"type": "boolean"}, 1),
    ({"type": "bytes"}, "not base64!"),
    (decimal_schema(4, 2), unscaled(Decimal("123.45"))),
    (named("int32", "io.debezium.time.Time"), 86_400_000),
    (named("int64", "io.debezium.time.Timestamp"), 2**62),
    (named("string", "io.debezium.time.ZonedTimestamp"), "yesterday"),
    (named("string", "io.debezium.data.Uuid"), "not one"),
    (named("string", "io.debezium.data.Json"), "{"),
    (VARIABLE, {"scale": 1}),
    ({"type": "array", "items": {"type": "int32"}}, "no list"),
]


@pytest.mark.parametrize(("schema", "value"), REFUSED, ids=str)
def test_a_value_that_is_none_of_its_type_is_refused_alone(schema, value):
    kind = connect_type(schema)
    found, wrong = column(kind, [None, value, None])
    assert found.to_pylist() == [None, None, None]
    assert [*wrong] == [1]
    assert kind.name in wrong[1]


def test_a_decimal_without_a_precision_that_fits_is_text():
    kind = connect_type(decimal_schema(None, 80))
    assert kind.name == "string"
    assert column(kind, [unscaled(Decimal(7), 0)])[0].to_pylist() == ["0." + "0" * 79 + "7"]


def test_types_of_values_without_schemas_are_found_from_all_of_them():
    cases = {
        "int64": [1, None, 2],
        "double": [1, 2.5],
        "bool": [True],
        "string": ["a", None],
        "json": [{"a": 1}, [1]],
    }
    for name, values in cases.items():
        kind = inferred_type(values)
        found, wrong = column(kind, values)
        assert (kind.name, wrong) == (name, {})
        assert len(found) == len(values)
    assert inferred_type([None]) is None


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("decimal128(10, 2)", 12.5, Decimal("12.50")),
        ("decimal128(10, 2)", "12.5", Decimal("12.50")),
        ("date32", "2026-01-31", dt.date(2026, 1, 31)),
        ("timestamp[us, UTC]", "2026-01-31T12:00:00Z", dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)),
        ("uuid", str(uuid.UUID(int=7)), uuid.UUID(int=7)),
        ("string", 7, "7"),
        ("list<int64>", [1, None], [1, None]),
        ("float64", 3, 3.0),
    ],
)
def test_values_without_a_schema_become_those_of_the_field(name, value, wanted):
    assert column(field_type(types.parse(name)), [value])[0].to_pylist() == [wanted]


@pytest.mark.parametrize(("name", "value"), [("date32", 19_000), ("timestamp[us]", 1_700_000_000_000)])
def test_a_number_without_a_schema_is_no_time(name, value):
    assert column(field_type(types.parse(name)), [value])[1].keys() == {0}


# -- messages ----------------------------------------------------------------------------------------------------------

TABLE = Table("shop.public.t", ("k",), {"k": {"type": "int32"}, "v": {"type": "string"}})


def all_decoders(form=Format.DEBEZIUM, key=()):
    registered = Registered()
    for writer in (JsonWriter(schemas=True), JsonWriter(schemas=False), AvroWriter(registered.register)):
        yield writer, MessageDecoder(form, key, registered.schema)


def test_events_are_upserts_and_deletes():
    for writer, decoder in all_decoders():
        key, row = writer.key(TABLE, {"k": 7}), {"k": 7, "v": "a"}
        for op in "cru":
            found = decoder.decode(key, writer.envelope(TABLE, op, None, row))
            assert (found.kind, found.key, found.row) == (Effect.UPSERT, {"k": 7}, row)
        for value in (writer.envelope(TABLE, "d", row, None), None):
            found = decoder.decode(key, value)
            assert (found.kind, found.key) == (Effect.DELETE, {"k": 7})
        assert decoder.decode(None, writer.envelope(TABLE, "t", None, None)).kind is Effect.TRUNCATE
        assert decoder.decode(None, writer.envelope(TABLE, "m", None, None)).kind is Effect.SKIPPED


def test_a_large_value_that_did_not_change_is_left_out():
    for writer, decoder in all_decoders():
        row = {"k": 7, "v": PLACEHOLDER}
        found = decoder.decode(writer.key(TABLE, {"k": 7}), writer.envelope(TABLE, "u", None, row))
        assert found.row == {"k": 7, "v": UNCHANGED}


def test_a_key_has_columns_that_the_row_lacks():
    table = Table("t", ("k",), {"k": {"type": "int32"}})
    only = Table("t", (), {"v": {"type": "string"}})
    for writer, decoder in all_decoders():
        found = decoder.decode(writer.key(table, {"k": 7}), writer.envelope(only, "c", None, {"v": "a"}))
        assert found.row == {"k": 7, "v": "a"}
        assert found.shape is None or [*found.shape.types] == ["k", "v"]


def test_plain_rows_have_the_key_that_an_option_names():
    for writer, decoder in all_decoders(Format.ROWS, ("k",)):
        found = decoder.decode(b"7", writer.row(TABLE, {"k": 7, "v": "a"}))
        assert (found.kind, found.key, found.row) == (Effect.UPSERT, {"k": 7}, {"k": 7, "v": "a"})
        assert decoder.decode(b"7", None)[:2] == (Effect.DELETE, {"k": 7})
    decoder = MessageDecoder(Format.ROWS, ("k",), Registered().schema)
    assert decoder.decode(b"seven", None).key == {"k": "seven"}
    assert decoder.decode(None, b'{"k": 7, "v": "a", "__deleted": "true"}')[:2] == (Effect.DELETE, {"k": 7})
    assert decoder.decode(None, b'{"k": 7, "__deleted": "false"}').row == {"k": 7}
    assert decoder.decode(None, b'{"k": 7, "schema": "public"}').row == {"k": 7, "schema": "public"}


ENVELOPE = b'{"op": "c", "before": null, "after": {"k": 7}}'
KEY = b'{"k": 7}'
FOREIGN = [
    (KEY, b""),
    (KEY, b"hello"),
    (KEY, b"\xff\xfe"),
    (KEY, b"[1]"),
    (KEY, b'{"k": 7}'),
    (KEY, b'{"op": "x", "after": {"k": 7}}'),
    (KEY, b'{"op": "c", "after": null}'),
    (KEY, b'{"op": "c", "after": "a document"}'),
    (KEY, b'{"op": ["c"], "after": {}}'),
    (KEY, b'{"schema": 7, "payload": {"op": "c", "after": {"k": 7}}}'),
    (KEY, b'{"schema": {"fields": []}, "payload": {"op": "c", "after": {"k": 7}}}'),
    (KEY, b'{"op": "c", "after": {"k": null}}'),
    (KEY, b"[" * 100_000),
    (KEY, b"\0\0"),
    (KEY, b"\0\0\0\0\1"),
    (KEY, b"\0\0\0\0\1\xff\xff\xff\xff\xff\xff\xff\xff"),
    (None, ENVELOPE),
    (b"7", ENVELOPE),
    (b"seven", ENVELOPE),
    (b"{}", ENVELOPE),
    (b"seven", None),
]


@pytest.mark.parametrize(("key", "value"), FOREIGN, ids=lambda one: repr(one)[:40])
def test_a_foreign_message_says_what_it_is(key, value):
    registered = Registered()
    registered.register(TABLE.avro_envelope())
    with pytest.raises(ForeignMessageError, match=r"\w"):
        MessageDecoder(Format.DEBEZIUM, (), registered.schema).decode(key, value)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_are_a_change_or_foreign(key, value):
    registered = Registered()
    registered.register(TABLE.avro_envelope())
    for form in Format:
        for prefix in (b"", b"\0\0\0\0\1"):
            try:
                found = MessageDecoder(form, ("k",), registered.schema).decode(key, prefix + value)
            except ForeignMessageError:
                continue
            assert found.kind in Effect


def test_schemas_of_avro_without_connect_have_their_logical_types():
    registered = Registered()
    schema = {
        "type": "record",
        "name": "Row",
        "fields": [
            {"name": "k", "type": "string"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
            {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
            {"name": "again", "type": "E"},
            {"name": "any", "type": ["null", "string", "long"]},
        ],
    }
    decoder = MessageDecoder(Format.ROWS, ("k",), registered.schema)
    value = {"k": "a", "at": 1000, "day": 1, "total": unscaled(Decimal("7.25")), "kind": "B", "again": "A", "any": 3}
    found = decoder.decode(None, AvroWriter(registered.register)._written(schema, value))
    columns = {name: column(kind, [found.row[name]])[0].to_pylist()[0] for name, kind in found.shape.types.items()}
    assert columns == {
        "k": "a",
        "at": dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC),
        "day": dt.date(1970, 1, 2),
        "total": Decimal("7.25"),
        "kind": "B",
        "again": "A",
        "any": "3",
    }
