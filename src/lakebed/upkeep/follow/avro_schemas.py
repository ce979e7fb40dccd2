"""Schemas of Avro as schemas of Connect, and without logical types.

Connect writes a schema of its own as one of Avro with the properties ``connect.name``, ``connect.type`` and
``connect.parameters``; producers without Connect use the logical types of Avro. :func:`connect_schema` understands
both. Values are decoded by the schema that :func:`physical` returns, as numbers and bytes: what they mean is known from
the other one. Pure.

Source: Apache Avro 1.12, "Specification"; Confluent, ``AvroData``.
"""

from __future__ import annotations

from typing import Any

from lakebed.upkeep.follow.connect_values import ConnectSchema

_TYPES = {
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
    "enum": "string",
    "fixed": "bytes",
}

_LOGICAL = {
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": "avro.timestamp-millis",
    "timestamp-micros": "avro.timestamp-micros",
    "local-timestamp-millis": "io.debezium.time.Timestamp",
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
    "uuid": "io.debezium.data.Uuid",
}


def connect_schema(schema: Any) -> ConnectSchema:
    """Return the schema of Connect for one of Avro, parsed from JSON.

    A union of several types, a map and a type that contains itself have no counterpart; their values become JSON.
    """
    return _connect(schema, {})


def _connect(schema: Any, named: dict[str, ConnectSchema]) -> ConnectSchema:
    if isinstance(schema, list):
        members = [one for one in schema if one != "null"]
        return _connect(members[0], named) if len(members) == 1 else {"type": "map"}
    if isinstance(schema, str):
        return named.get(schema) or {"type": _TYPES.get(schema, "map")}
    kind, name = schema["type"], schema.get("connect.name")
    if not isinstance(kind, str):
        # A type in place of its name: {"type": {"type": "int"}, …}.
        return _connect(kind, named)
    if kind == "record":
        found: dict[str, Any] = {"type": "struct", "name": name or _full_name(schema), "fields": []}
        named[schema["name"]] = named[_full_name(schema)] = {"type": "map"}
        found["fields"] = [{**_connect(one["type"], named), "field": one["name"]} for one in schema["fields"]]
        named[schema["name"]] = named[_full_name(schema)] = found
        return found
    if kind == "array":
        return {"type": "array", "name": name, "items": _connect(schema["items"], named)}
    parameters = dict(schema.get("connect.parameters") or {})
    logical = schema.get("logicalType")
    if logical == "decimal":
        name = "org.apache.kafka.connect.data.Decimal"
        parameters |= {"scale": schema.get("scale", 0), "connect.decimal.precision": schema["precision"]}
    result = {
        "type": schema.get("connect.type") or _TYPES.get(kind) or named.get(kind, {}).get("type", "map"),
        "name": name or _LOGICAL.get(str(logical)),
        "parameters": parameters,
    }
    if kind in {"enum", "fixed"}:
        named[schema["name"]] = named[_full_name(schema)] = result
    return result


def _full_name(schema: Any) -> str:
    name, space = schema["name"], schema.get("namespace")
    return name if "." in name or not space else f"{space}.{name}"


def physical(schema: Any) -> Any:
    """Return a schema without logical types, by which values are decoded as they are stored."""
    if isinstance(schema, list):
        return [physical(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if name != "logicalType"}
    if isinstance(schema["type"], dict | list):
        kept["type"] = physical(schema["type"])
    for inner in ("items", "values"):
        if inner in schema:
            kept[inner] = physical(schema[inner])
    if "fields" in schema:
        kept["fields"] = [{**one, "type": physical(one["type"])} for one in schema["fields"]]
    return kept
