"""Decodes the messages of a topic: envelopes of Debezium, or plain rows, in JSON or in Avro.

JSON comes with a schema (``schema`` and ``payload``) or without; Avro in the wire format of Confluent, with the id of a
schema in a registry. The key of a message is the key of its row, and says which columns those are.

Core types: :class:`MessageDecoder`, :class:`Change`, :class:`Shape`. Rules. No I/O but for a schema that is not known
yet. A message that is none raises :class:`ForeignMessageError`, with the reason, for the dead letters.

Source: Debezium, "Data change events"; Confluent, "Wire format".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from io import BytesIO
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from lakebed.upkeep.follow.avro_schemas import connect_schema, physical
from lakebed.upkeep.follow.connect_values import ConnectSchema, ConnectType, connect_type
from lakebed.upkeep.follow.row_buffer import UNCHANGED

PLACEHOLDER = "__debezium_unavailable_value"
"""What Debezium sends for a large value that an update did not change."""

_PLACEHOLDER_BASE64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
_PLACEHOLDERS = (
    PLACEHOLDER,
    _PLACEHOLDER_BASE64,
    PLACEHOLDER.encode(),
    [PLACEHOLDER],
    [*PLACEHOLDER.encode()],
    {PLACEHOLDER: PLACEHOLDER},
)
_MARKS = (PLACEHOLDER.encode(), _PLACEHOLDER_BASE64.encode())

DELETED = "__deleted"
"""The column by which Debezium's ExtractNewRecordState marks a delete."""

_MAGIC = 0
_SCHEMAS_MAX = 1_000


class ForeignMessageError(Exception):
    """A message of another form; says which."""


class Format(Enum):
    """What the values of messages are."""

    DEBEZIUM = "debezium"
    ROWS = "rows"


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """The columns of rows with one schema."""

    types: Mapping[str, ConnectType]


class Effect(Enum):
    """What a message does. SKIPPED: nothing, as a message that is not about a row."""

    UPSERT = "upsert"
    DELETE = "delete"
    TRUNCATE = "truncate"
    SKIPPED = "skipped"


class Change(NamedTuple):
    """A decoded message. ``key`` has the values of the key by column, ``row`` all columns of an upsert.

    ``shape`` is None for rows without a schema; for a delete it has the columns of the key alone.
    """

    kind: Effect
    key: Mapping[str, Any]
    row: Mapping[str, Any]
    shape: Shape | None


class _Envelope(Struct):
    op: str = ""
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class _JsonMessage(_Envelope):
    schema: Raw = Raw()
    payload: _Envelope | None = None


class _Schemed(Struct, forbid_unknown_fields=True):
    schema: Raw
    payload: Any


class _DecodedValue(NamedTuple):
    value: Any
    schema: ConnectSchema | None


NOTHING: Mapping[str, Any] = {}
_SKIPPED = Change(Effect.SKIPPED, NOTHING, NOTHING, None)
_TRUNCATE = Change(Effect.TRUNCATE, NOTHING, NOTHING, None)


class MessageDecoder:
    """Decodes messages. ``key`` are the columns of the key, if the keys of messages do not name them.

    ``registered`` returns the schema of Avro with an id, as JSON, and raises ForeignMessageError if there is none.
    """

    def __init__(self, form: Format, key: tuple[str, ...], registered: Callable[[int], Any]) -> None:
        self._form = form
        self._key = key
        self._registered = registered
        self._message = msgspec.json.Decoder(_JsonMessage)
        self._schemed = msgspec.json.Decoder(_Schemed)
        self._avro: dict[int, tuple[Any, ConnectSchema]] = {}
        self._schemas: dict[bytes, ConnectSchema] = {}
        self._shapes: dict[tuple[int, str | None], Shape] = {}

    def decode(self, key: bytes | None, value: bytes | None) -> Change:
        """Return what a message does. Raises ForeignMessageError."""
        if value is None:
            return _SKIPPED if key is None else self._deleted(key, None)
        if self._form is Format.ROWS:
            return self._row(key, value)
        return self._envelope(key, value)

    def _envelope(self, key: bytes | None, value: bytes) -> Change:
        if value[:1] == b"\0":
            found, schema = self._by_registry(value)
            if not isinstance(found, dict) or "op" not in found or "after" not in found:
                raise ForeignMessageError("it is no envelope of Debezium: it has no op")
            op, before, after = found["op"], found.get("before"), found["after"]
        else:
            try:
                message = self._message.decode(value)
            except (msgspec.MsgspecError, RecursionError) as error:
                raise ForeignMessageError(f"it is no envelope of Debezium in JSON: {error}") from None
            envelope = message if message.payload is None else message.payload
            op, before, after = envelope.op, envelope.before, envelope.after
            schema = None if message.payload is None else self._parsed(message.schema)
        if op in ("c", "r", "u") and isinstance(after, dict):
            shape = None if schema is None else self._shape(schema, "after")
            return self._upsert(key, value, after, shape)
        if op == "d":
            return self._deleted(key, before)
        if op in ("t", "m"):
            return _TRUNCATE if op == "t" else _SKIPPED
        raise ForeignMessageError(f"it is no envelope of Debezium: its op is {op!r}" if op else "it has no op")

    def _row(self, key: bytes | None, value: bytes) -> Change:
        row, schema = self._decoded(value)
        if not isinstance(row, dict):
            raise ForeignMessageError("it is no row: its value is not an object")
        if DELETED in row and str(row.pop(DELETED)).lower() == "true":
            return self._deleted(key, row)
        shape = None if schema is None else self._shape(schema, None)
        return self._upsert(key, value, row, shape)

    def _upsert(self, key: bytes | None, value: bytes, row: dict[str, Any], shape: Shape | None) -> Change:
        if self._key:
            names: Mapping[str, Any] = dict.fromkeys(self._key)
        else:
            names, key_schema = self._key_of(key)
            if not names.keys() <= row.keys():
                row = {**names, **row}
                if shape is not None and key_schema is not None:
                    shape = self._joined(key_schema, shape)
        missing = [name for name in names if row.get(name) is None]
        if missing:
            raise ForeignMessageError(f"it has no value for the key column {missing[0]}")
        if any(mark in value for mark in _MARKS):
            row = {name: UNCHANGED if one in _PLACEHOLDERS else one for name, one in row.items()}
        return Change(Effect.UPSERT, {name: row[name] for name in names}, row, shape)

    def _deleted(self, key: bytes | None, before: Mapping[str, Any] | None) -> Change:
        if not self._key:
            found, schema = self._key_of(key)
            return Change(Effect.DELETE, found, NOTHING, None if schema is None else self._shape(schema, None))
        found = {} if key is None else self._decoded(key, text=True).value
        if not isinstance(found, dict):
            found = {self._key[0]: found} if len(self._key) == 1 else {}
        values = {name: found.get(name, (before or NOTHING).get(name)) for name in self._key}
        missing = [name for name, one in values.items() if one is None]
        if missing:
            raise ForeignMessageError(f"it is a delete without a value for the key column {missing[0]}")
        return Change(Effect.DELETE, values, NOTHING, None)

    def _key_of(self, key: bytes | None) -> _DecodedValue:
        """Return the key of a message, whose columns it names."""
        if key is None:
            raise ForeignMessageError("it has no key: name its columns with --key")
        found = self._decoded(key)
        if not isinstance(found.value, dict) or not found.value:
            raise ForeignMessageError("its key names no columns: name them with --key")
        return found

    # -- values ----------------------------------------------------------------------------------------------------

    def _decoded(self, data: bytes, *, text: bool = False) -> _DecodedValue:
        """Return a value of any form; with ``text``, what is no JSON is text."""
        if data[:1] == b"\0":
            return self._by_registry(data)
        try:
            if data[:9] == b'{"schema"':
                try:
                    found = self._schemed.decode(data)
                    schema = self._parsed(found.schema)
                    return _DecodedValue(found.payload, schema)
                except msgspec.ValidationError:
                    pass  # a row with a column of that name
            return _DecodedValue(msgspec.json.decode(data), None)
        except (msgspec.MsgspecError, RecursionError) as error:
            try:
                if text:
                    return _DecodedValue(data.decode(), None)
            except UnicodeDecodeError:
                pass
            raise ForeignMessageError(f"it is neither JSON nor Avro of a registry: {error}") from None

    def _parsed(self, raw: Raw) -> ConnectSchema | None:
        """Return a schema that came with a value; None for null, and if none came."""
        data = bytes(raw)
        found = self._schemas.get(data)
        if found is None and data not in (b"", b"null"):
            if len(self._schemas) >= _SCHEMAS_MAX:
                self._forget()
            found = msgspec.json.decode(data)
            if not isinstance(found, dict):
                raise ForeignMessageError("its schema is not an object")
            self._schemas[data] = found
        return found

    def _forget(self) -> None:
        """Forget schemas, of which there are too many."""
        self._schemas.clear()
        self._shapes.clear()

    def _by_registry(self, data: bytes) -> _DecodedValue:
        from fastavro import parse_schema, schemaless_reader
        from fastavro.schema import SchemaParseException

        if len(data) < 5:
            raise ForeignMessageError("it is neither JSON nor Avro of a registry: it has fewer than 5 bytes")
        number = int.from_bytes(data[1:5], "big")
        known = self._avro.get(number)
        if known is None:
            schema = self._registered(number)
            try:
                known = parse_schema(physical(schema)), connect_schema(schema)
            except (SchemaParseException, KeyError, TypeError, ValueError) as error:
                raise ForeignMessageError(f"schema {number} of the registry is no schema of Avro: {error}") from None
            self._avro[number] = known
        parsed, connect = known
        source = BytesIO(data)
        source.seek(5)
        try:
            value = schemaless_reader(source, parsed, None)
        except (ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError, UnicodeDecodeError) as error:
            raise ForeignMessageError(f"it is no value of schema {number}: {error!r}") from None
        return _DecodedValue(value, connect)

    # -- shapes ----------------------------------------------------------------------------------------------------

    def _shape(self, schema: ConnectSchema, field: str | None) -> Shape:
        """Return the columns of a schema, or of a field of it. Schemas are kept, so they are known by their ids."""
        known = self._shapes.get((id(schema), field))
        if known is None:
            inner = schema
            if field is not None:
                inner = next((one for one in schema.get("fields") or () if one.get("field") == field), {})
            fields = inner.get("fields")
            if not fields:
                raise ForeignMessageError("its schema is not one of a row")
            known = Shape({one["field"]: connect_type(one) for one in fields if one["field"] != DELETED})
            self._shapes[id(schema), field] = known
        return known

    def _joined(self, key: ConnectSchema, shape: Shape) -> Shape:
        """Return the columns of a row whose key has others."""
        found = self._shapes.get((id(key), str(id(shape))))
        if found is None:
            found = Shape({**self._shape(key, None).types, **shape.types})
            self._shapes[id(key), str(id(shape))] = found
        return found
