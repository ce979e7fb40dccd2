"""Values of Kafka Connect and Debezium as columns of Arrow, from what JSON and Avro have for them.

A schema of Connect says for each field its type, and by a name what it means: a decimal is bytes with a scale, a
timestamp a number of milliseconds, microseconds or nanoseconds. :func:`connect_type` finds the :class:`ConnectType` of
a schema, :func:`inferred_type` one for values without a schema, and :func:`field_type` one for values that go to a
field that exists. Schemas of Avro are turned into those of Connect (:mod:`~lakebed.upkeep.follow.avro_schemas`).

Rules. A value is exact or is refused: 10.5 is no integer, and 70,000 no int16. What has no counterpart is JSON
(structures, maps) or text (intervals, a decimal whose scale varies). Pure.

Source: Kafka Connect, ``org.apache.kafka.connect.data``; Debezium, "Data type mappings".
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model import type_names

ConnectSchema = Mapping[str, Any]
"""A schema of Connect as its JSON converter writes it: type, optional, name, parameters, fields, items."""

Convert = Callable[[list[Any]], pa.Array]


@dataclass(frozen=True, slots=True)
class ConnectType:
    """The type of a field, by its name, and how a column of decoded values becomes one of it."""

    name: str
    convert: Convert

    def array(self, values: list[Any]) -> pa.Array:
        """Convert values."""
        return self.convert(values)

    @staticmethod
    def shown(value: Any) -> str:
        """Return a value as JSON, and a text as it is."""
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# -- numbers -----------------------------------------------------------------------------------------------------------


def _exact_numbers(kind: pa.DataType) -> ConnectType:
    def convert(values: list[Any]) -> pa.Array:
        found = pa.array(values)
        if pa.types.is_boolean(found.type) or pa.types.is_string(found.type):
            raise ValueError("not numbers")
        # Arrow cuts off fractions when it makes integers of Python's floats, and refuses to when it casts.
        return found.cast(kind) if found.type != kind else found

    return ConnectType(str(kind), convert)


def _float32(values: list[Any]) -> pa.Array:
    return pa.array(values, pa.float64()).cast(pa.float32(), safe=False)


def _booleans(values: list[Any]) -> pa.Array:
    return pa.array(values, pa.bool_())


INT32, INT64 = _exact_numbers(pa.int32()), _exact_numbers(pa.int64())
FLOAT64 = _exact_numbers(pa.float64())


def _decimals(precision: int, scale: int) -> ConnectType:
    """Return decimals from unscaled numbers, big-endian in two's complement: bytes, or their base64."""
    kind = pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    width = kind.byte_width

    def convert(values: list[Any]) -> pa.Array:
        empty = bytes(width)
        data = b"".join(
            empty
            if one is None
            else int.from_bytes(_bytes_of(one), "big", signed=True).to_bytes(width, "little", signed=True)
            for one in values
        )
        valid = pa.array([one is not None for one in values], pa.bool_())
        made = pa.Array.from_buffers(kind, len(values), [valid.buffers()[1], pa.py_buffer(data)])
        made.validate(full=True)
        return made

    return ConnectType(str(kind), convert)


def _decimal(schema: ConnectSchema) -> ConnectType:
    parameters = schema.get("parameters") or {}
    scale = int(parameters.get("scale", 0))
    precision = int(parameters.get("connect.decimal.precision", 0)) or max(38, scale)
    if not 0 <= scale <= precision or precision > 76:
        return ConnectType("string", lambda values: _text_column([_scaled(one, scale) for one in values]))
    return _decimals(precision, scale)


def _scaled(value: Any, scale: int) -> str | None:
    if value is None:
        return None
    # Made from a text, because operations of Decimal round to 28 digits.
    return format(Decimal(f"{int.from_bytes(_bytes_of(value), 'big', signed=True)}E{-scale}"), "f")


def _variable_decimals(values: list[Any]) -> pa.Array:
    return _text_column([None if one is None else _scaled(one["value"], int(one["scale"])) for one in values])


# -- texts and bytes ---------------------------------------------------------------------------------------------------


def _text_column(values: list[Any]) -> pa.Array:
    return pa.array(values, pa.string())


def _text_of_any(values: list[Any]) -> pa.Array:
    return _text_column([None if one is None else ConnectType.shown(one) for one in values])


TEXT = ConnectType("string", _text_column)


def _bytes_of(value: Any) -> bytes:
    return b64decode(value, validate=True) if isinstance(value, str) else bytes(memoryview(value))


def _binaries(values: list[Any]) -> pa.Array:
    return pa.array([None if one is None else _bytes_of(one) for one in values], pa.binary())


def _uuids(values: list[Any]) -> pa.Array:
    storage = pa.array([None if one is None else UUID(one).bytes for one in values], pa.binary(16))
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)


def _documents(values: list[Any]) -> pa.Array:
    """Return texts of JSON; bytes in them are base64."""
    return _text_column([None if one is None else msgspec.json.encode(one).decode() for one in values])


def _document_texts(values: list[Any]) -> pa.Array:
    for one in values:
        if one is not None:
            _ANY_JSON.decode(one)
    return _text_column(values)


_ANY_JSON = msgspec.json.Decoder(msgspec.Raw)
JSON = ConnectType("json", _documents)
_JSON_TEXT = ConnectType("json", _document_texts)


# -- times -------------------------------------------------------------------------------------------------------------


def _dates(values: list[Any]) -> pa.Array:
    return INT32.array(values).view(pa.date32())


def _moments(kind: pa.DataType, factor: int = 1) -> ConnectType:
    def convert(values: list[Any]) -> pa.Array:
        counts = INT64.array(values)
        return (pc.multiply_checked(counts, factor) if factor != 1 else counts).view(kind)

    return ConnectType(str(kind).replace(", tz=", ", "), convert)


def _times_of_day(kind: pa.DataType, factor: int = 1) -> ConnectType:
    day = 86_400 * 10 ** (6 if kind == pa.time64("us") else 9)

    def convert(values: list[Any]) -> pa.Array:
        counts = pc.multiply_checked(INT64.array(values), factor)
        if pc.any(pc.or_(pc.less(counts, 0), pc.greater_equal(counts, day))).as_py():
            raise ValueError("not within a day")
        return counts.view(kind)

    return ConnectType(str(kind), convert)


def _iso(kind: pa.DataType) -> ConnectType:
    """Return dates and times without a zone, from texts of ISO 8601 in UTC."""

    def convert(values: list[Any]) -> pa.Array:
        texts = [None if one is None else one.removesuffix("Z") for one in values]
        if pa.types.is_time(kind):
            dated = [None if one is None else f"1970-01-01T{one}" for one in texts]
            return _text_column(dated).cast(pa.timestamp("us")).cast(kind)
        return _text_column(texts).cast(kind)

    return ConnectType(str(kind).replace(", tz=", ", "), convert)


def _zoned(values: list[Any]) -> pa.Array:
    return _text_column(values).cast(pa.timestamp("us", "UTC"))


ZONED = ConnectType("timestamp[us, UTC]", _zoned)
_US, _NS = pa.timestamp("us"), pa.timestamp("ns")


NAMED: Mapping[str, ConnectType] = {
    "io.debezium.data.Enum": TEXT,
    "io.debezium.data.EnumSet": TEXT,
    "io.debezium.data.Json": _JSON_TEXT,
    "io.debezium.data.Uuid": ConnectType("uuid", _uuids),
    "io.debezium.data.VariableScaleDecimal": ConnectType("string", _variable_decimals),
    "io.debezium.time.Date": ConnectType("date32", _dates),
    "io.debezium.time.IsoDate": _iso(pa.date32()),
    "io.debezium.time.IsoTime": _iso(pa.time64("us")),
    "io.debezium.time.IsoTimestamp": _iso(_US),
    "io.debezium.time.MicroTime": _times_of_day(pa.time64("us")),
    "io.debezium.time.MicroTimestamp": _moments(_US),
    "io.debezium.time.NanoTime": _times_of_day(pa.time64("ns")),
    "io.debezium.time.NanoTimestamp": _moments(_NS),
    "io.debezium.time.Time": _times_of_day(pa.time64("us"), 1_000),
    "io.debezium.time.Timestamp": _moments(_US, 1_000),
    "io.debezium.time.ZonedTimestamp": ZONED,
    "org.apache.kafka.connect.data.Date": ConnectType("date32", _dates),
    "org.apache.kafka.connect.data.Time": _times_of_day(pa.time64("us"), 1_000),
    "org.apache.kafka.connect.data.Timestamp": _moments(_US, 1_000),
    # What schemas of Avro say without Connect.
    "avro.timestamp-millis": _moments(pa.timestamp("us", "UTC"), 1_000),
    "avro.timestamp-micros": _moments(pa.timestamp("us", "UTC")),
}
"""Types by the names that schemas have. Others are as their type."""

_PLAIN: Mapping[str, ConnectType] = {
    "int8": _exact_numbers(pa.int8()),
    "int16": _exact_numbers(pa.int16()),
    "int32": INT32,
    "int64": INT64,
    "float": ConnectType("float32", _float32),
    "float32": ConnectType("float32", _float32),
    "double": FLOAT64,
    "float64": FLOAT64,
    "boolean": ConnectType("bool", _booleans),
    "string": TEXT,
    "bytes": ConnectType("binary", _binaries),
}


def connect_type(schema: ConnectSchema) -> ConnectType:
    """Return the type of the values of a schema."""
    name, kind = str(schema.get("name")), schema.get("type")
    if name == "org.apache.kafka.connect.data.Decimal":
        return _decimal(schema)
    if name in NAMED:
        return NAMED[name]
    if kind == "array":
        item = connect_type(schema.get("items") or {})
        return JSON if item.name == "json" or item.name.startswith("list<") else listed(item)
    return _PLAIN.get(str(kind), JSON)


def listed(item: ConnectType) -> ConnectType:
    """Return the type of lists of these items."""

    def convert(values: list[Any]) -> pa.Array:
        offsets: list[int | None] = []
        items: list[Any] = []
        for one in values:
            offsets.append(None if one is None else len(items))
            if one is not None:
                if not isinstance(one, list):
                    raise TypeError("not a list")
                items += one
        offsets.append(len(items))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), item.array(items))

    return ConnectType(f"list<{item.name}>", convert)


# -- values without a schema -------------------------------------------------------------------------------------------


def inferred_type(values: list[Any]) -> ConnectType | None:
    """Return a type for values of JSON; None if all of them are null."""
    kinds = {type(one) for one in values} - {type(None)}
    if not kinds:
        return None
    if kinds == {bool}:
        return _PLAIN["boolean"]
    if kinds == {int}:
        return INT64
    if kinds <= {int, float}:
        return FLOAT64
    return TEXT if kinds == {str} else JSON


def field_type(kind: pa.DataType) -> ConnectType:
    """Return the type of values without a schema that go to a field of this type.

    A date or a time is text of ISO 8601, a decimal is a number or its text; a number of days or milliseconds says not
    that it is one, and is refused.
    """
    name = str(kind)
    if pa.types.is_string(kind):
        return ConnectType(name, _text_of_any)
    if kind == type_names.JSON:
        return ConnectType(name, _documents)
    if kind == type_names.UUID:
        return NAMED["io.debezium.data.Uuid"]
    if pa.types.is_binary(kind):
        return _PLAIN["bytes"]
    if pa.types.is_boolean(kind):
        return _PLAIN["boolean"]
    if pa.types.is_float32(kind):
        return _PLAIN["float32"]
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _exact_numbers(kind)
    if pa.types.is_decimal(kind):
        return ConnectType(
            name, lambda values: pa.array([None if one is None else Decimal(str(one)) for one in values], kind)
        )
    if pa.types.is_list(kind):
        return listed(field_type(kind.value_type))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return ConnectType(name, lambda values: _text_column(values).cast(kind))
    if pa.types.is_temporal(kind):
        return _iso(kind)
    return ConnectType(name, lambda values: pa.array(values, kind))
