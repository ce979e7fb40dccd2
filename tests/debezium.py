"""Messages as Debezium writes them: JSON with and without schemas, and Avro as Confluent's converter makes it."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass, field
from typing import Any

import fastavro

DECIMAL = "org.apache.kafka.connect.data.Decimal"

_AVRO = {
    "int8": {"type": "int", "connect.type": "int8"},
    "int16": {"type": "int", "connect.type": "int16"},
    "int32": {"type": "int"},
    "int64": {"type": "long"},
    "float": {"type": "float"},
    "double": {"type": "double"},
    "boolean": {"type": "boolean"},
    "string": {"type": "string"},
    "bytes": {"type": "bytes"},
}
_LOGICAL = {
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}


def unscaled(number, scale=None):
    """A decimal as Connect has it: the digits without the point, big-endian in two's complement."""
    digits = int(f"{number:.{-number.as_tuple().exponent if scale is None else scale}f}".replace(".", ""))
    return digits.to_bytes(max(1, (digits.bit_length() + 8) // 8), "big", signed=True)


def decimal_schema(precision, scale):
    parameters = {"scale": str(scale)} | ({"connect.decimal.precision": str(precision)} if precision else {})
    return {"type": "bytes", "name": DECIMAL, "version": 1, "parameters": parameters}


VARIABLE = {
    "type": "struct",
    "name": "io.debezium.data.VariableScaleDecimal",
    "version": 1,
    "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}],
}


def avro_type(schema: dict[str, Any]) -> Any:
    """The schema of Avro for one of Connect that is not optional."""
    name = schema.get("name")
    if schema["type"] == "struct":
        return {
            "type": "record",
            "name": name.rpartition(".")[2],
            "namespace": name.rpartition(".")[0],
            "fields": [avro_field(one) for one in schema["fields"]],
            "connect.name": name,
        }
    if schema["type"] == "array":
        return {"type": "array", "items": avro_optional(schema["items"])}
    if schema["type"] == "map":
        return {"type": "map", "values": "string"}
    made = dict(_AVRO[schema["type"]])
    if name is not None:
        made |= {"connect.name": name, "connect.version": 1}
    if name == DECIMAL:
        parameters = schema["parameters"]
        precision = int(parameters.get("connect.decimal.precision", 64))
        made |= {"logicalType": "decimal", "precision": precision, "scale": int(parameters["scale"])}
        made["connect.parameters"] = parameters
    if name in _LOGICAL:
        made["logicalType"] = _LOGICAL[name]
    return made


def avro_optional(schema):
    return ["null", avro_type(schema)] if schema.get("optional") else avro_type(schema)


def avro_field(schema):
    return {"name": schema["field"], "type": avro_optional(schema)} | (
        {"default": None} if schema.get("optional") else {}
    )


def json_value(value):
    """A value as Connect's JSON converter writes it: bytes are base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [json_value(one) for one in value]
    if isinstance(value, dict):
        return {name: json_value(one) for name, one in value.items()}
    return value


@dataclass
class Table:
    """A table of a database: its key and its columns, whose values are those of Connect."""

    topic: str
    key: tuple[str, ...]
    columns: dict[str, dict[str, Any]] = field(default_factory=dict)

    def row_schema(self, names=None, of="Value"):
        fields = [
            {**schema, "optional": name not in self.key, "field": name}
            for name, schema in self.columns.items()
            if names is None or name in names
        ]
        return {"type": "struct", "fields": fields, "optional": of == "Value", "name": f"{self.topic}.{of}"}

    def envelope_schema(self):
        row = self.row_schema()
        source = {"type": "struct", "name": "io.debezium.connector.postgresql.Source", "field": "source"}
        source["fields"] = [
            {"type": "string", "field": "version"},
            {"type": "string", "field": "name"},
            {"type": "int64", "field": "ts_ms"},
            {"type": "int64", "optional": True, "field": "lsn"},
        ]
        return {
            "type": "struct",
            "name": f"{self.topic}.Envelope",
            "fields": [
                {**row, "field": "before"},
                {**row, "field": "after"},
                source,
                {"type": "string", "optional": False, "field": "op"},
                {"type": "int64", "optional": True, "field": "ts_ms"},
            ],
        }

    def avro_envelope(self):
        """The second use of the row's schema is its name."""
        envelope = avro_type(self.envelope_schema())
        row = envelope["fields"][0]["type"][1]
        envelope["fields"][1]["type"] = ["null", f"{row['namespace']}.{row['name']}"]
        return envelope


def source(at=1):
    return {"version": "3.0.0.Final", "name": "shop", "ts_ms": at, "lsn": at}


class JsonWriter:
    """Connect's JSON converter, with or without schemas."""

    def __init__(self, *, schemas):
        self.schemas = schemas

    def _written(self, schema, payload):
        payload = json_value(payload)
        return json.dumps({"schema": schema, "payload": payload} if self.schemas else payload).encode()

    def key(self, table, key):
        return self._written(table.row_schema(table.key, "Key"), key)

    def envelope(self, table, op, before, after):
        payload = {"before": before, "after": after, "source": source(), "op": op, "ts_ms": 1}
        return self._written(table.envelope_schema(), payload)

    def row(self, table, row):
        return self._written(table.row_schema(), row)


class AvroWriter:
    """Confluent's converter: a magic byte, the id of a schema, the value. ``register`` returns such an id."""

    def __init__(self, register):
        self.register = register

    def _written(self, schema, value):
        out = io.BytesIO(b"\0" + self.register(schema).to_bytes(4, "big"))
        out.seek(5)
        fastavro.schemaless_writer(out, fastavro.parse_schema(physical(schema)), value)
        return out.getvalue()

    def key(self, table, key):
        return self._written(avro_type(table.row_schema(table.key, "Key")), key)

    def envelope(self, table, op, before, after):
        value = {"before": before, "after": after, "source": source(), "op": op, "ts_ms": 1}
        return self._written(table.avro_envelope(), value)

    def row(self, table, row):
        return self._written(avro_type(table.row_schema()), row)


def physical(schema):
    """Without logical types, by which fastavro would take Python's own values instead of those of Connect."""
    if isinstance(schema, dict):
        return {name: physical(one) for name, one in schema.items() if name != "logicalType"}
    return [physical(one) for one in schema] if isinstance(schema, list) else schema


class Registered:
    """The schemas of a registry, by their ids."""

    def __init__(self):
        self.texts: list[str] = []

    def register(self, schema):
        text = json.dumps(schema)
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1

    def schema(self, number):
        return json.loads(self.texts[number - 1])
