"""Schemas as JSON documents: the stored form, with ids, and the form that people write. Pure.

Stored: ``{"version": 1, "row_key": [{"id": 1, "name": "k", "type": "string", "nullable": false}], …}``; a generated
field has ``"generated": {"expression": SQL, "inputs": [names]}`` as well. Written: ``{"row_key": {"k": "string"}, …}``,
where a field is a type, ``{"type": …, "nullable": …}`` or ``{"type": …, "generated": SQL}``. Each group of fields may
have either form. Types are those of :mod:`lakebed.model.types`.

Errors. UsageError for a document that is not a schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import Code, UsageError
from lakebed.model import types
from lakebed.model.checks import shown
from lakebed.model.documents import UNREADABLE, load
from lakebed.model.foreign_errors import error_text
from lakebed.model.schema import Field, Generated
from lakebed.model.type_names import name_of

if TYPE_CHECKING:
    from lakebed.model.schema import Schema

_GROUPS = ("row_key", "sort_key", "values")


def groups_from_json(text: str | Mapping[str, Any]) -> tuple[tuple[Any, Any, Any], Any]:
    """Return row key, sort key and values as for :class:`Schema`, and the version, from a document or its text."""
    try:
        document = load(text) if isinstance(text, str) else text
        row_key, sort_key, values = (document.get(name, {}) for name in _GROUPS)
        unknown = set(document) - {*_GROUPS, "version"}
    except UNREADABLE as error:
        raise Code.SCHEMA_INVALID(
            f"not a schema: expected JSON with row_key, sort_key and values ({error_text(error)})"
        ) from error
    if unknown:
        names = ", ".join(sorted(map(shown, unknown)))
        raise Code.SCHEMA_INVALID(f"not part of a schema: {names}; use row_key, sort_key, values")
    return (_fields(row_key), _fields(sort_key), _fields(values)), document.get("version", 1)


def groups_to_json(schema: Schema) -> dict[str, Any]:
    """Return the fields of a schema by group, with ids."""
    groups = (schema.row_key, schema.sort_key, schema.values)
    return {name: [field_to_json(field) for field in group] for name, group in zip(_GROUPS, groups, strict=True)}


def declared_groups(schema: Schema) -> dict[str, Any]:
    """Return the fields of a schema by group, as people write them, without empty groups."""
    groups = {
        "row_key": {f.name: _declared(f, nullable=False) for f in schema.row_key},
        "sort_key": {f.name: _declared(f, nullable=False) for f in schema.sort_key},
        "values": {f.name: _declared(f, nullable=True) for f in schema.values},
    }
    return {name: group for name, group in groups.items() if group}


def field_from_json(document: Any) -> Field:
    """Return the field of a JSON document. A malformed document raises any exception
    (:func:`lakebed.model.documents.reading`).
    """
    computed = document.get("generated", {"expression": "", "inputs": ()})
    return Field(
        document["id"],
        document["name"],
        types.from_json(document["type"]),
        document["nullable"],
        computed["expression"],
        tuple(computed["inputs"]),
    )


def field_to_json(field: Field) -> dict[str, Any]:
    """Return the JSON document of a field, with its id."""
    document = {
        "id": field.id,
        "name": field.name,
        "type": types.to_json(field.returned_type),
        "nullable": field.nullable,
    }
    computed = {"generated": {"expression": field.expression, "inputs": list(field.inputs)}} if field.expression else {}
    return document | computed


def _fields(group: Any) -> Any:
    try:
        if isinstance(group, dict):
            return {name: _parse_field(kind) for name, kind in group.items()}
        return [field_from_json(document) for document in group]
    except UsageError:
        raise
    except UNREADABLE as error:
        raise Code.SCHEMA_INVALID(f"not a list of fields with id, name, type and nullable: {shown(group)}") from error


def _parse_field(document: Any) -> Any:
    match document:
        case {"type": kind, "generated": str(expression)}:
            return Generated(types.from_json(kind), expression)
        case {"type": kind, "nullable": bool(nullable)}:
            return pa.field("", types.from_json(kind), nullable)
        case {"type": kind, **others} if not others:
            return types.from_json(kind)
        case _:
            return types.from_json(document)


def _declared(field: Field, *, nullable: bool) -> Any:
    """Return the declared type of a field in a group whose fields are nullable, or not, by default."""
    kind = name_of(field.returned_type)
    if field.expression:
        return {"type": kind, "generated": field.expression}
    return kind if field.nullable is nullable else {"type": kind, "nullable": field.nullable}
