"""What a new table is made of, as the caller gives it: its name, settings, schema and split points, checked. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lakebed import settings
from lakebed.errors import Code
from lakebed.model import types
from lakebed.model.checks import TABLE_NAME, shown
from lakebed.model.schema import HIDDEN_ID_MIN, Schema


def check_name(name: Any) -> None:
    """Raises UsageError for what can be no table's name."""
    if not isinstance(name, str) or not TABLE_NAME.fullmatch(name):
        length = f" ({len(name)} characters)" if isinstance(name, str) and len(name) > 128 else ""
        raise Code.NAME_INVALID(
            f"not a table name: {shown(name)}{length}; use 1 to 128 of A-Z a-z 0-9 _ and -, not beginning with -",
            table=name,
        )


def own_settings(own: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a table has of its own, checked. Raises UsageError."""
    if not isinstance(own, Mapping):
        raise Code.ARGUMENT_INVALID(f"settings = {shown(own)}: must be values by name, such as {{'split_rows': 1000}}")
    return {name: value for name, value in settings.validate(own).items() if value is not None}


def first_schema(schema: Schema) -> Schema:
    """The schema as that of a new table, its expressions checked."""
    first = Schema(schema.row_key, schema.sort_key, schema.values)
    _check_new(first)
    if not first.generated:
        return first

    from lakebed.engine.computed_columns import checked

    return checked(first)


def _check_new(schema: Schema) -> None:
    """Raise UsageError for names, types and ids that a new table must not have. Tables that have them can be opened."""
    for field in schema.fields:
        types.check_name(field.name)
        types.check_new_type(field.name, field.type)
        if field.id >= HIDDEN_ID_MIN:
            raise Code.SCHEMA_INVALID(f"field {field.name}: id = {field.id} is reserved; use ids below {HIDDEN_ID_MIN}")


def boundaries_of(schema: Schema, split_points: Iterable[Any]) -> tuple[bytes, ...]:
    """The split points as encoded keys, in order. Raises UsageError."""
    if isinstance(split_points, str | bytes | Mapping) or not isinstance(split_points, Iterable):
        raise Code.ARGUMENT_INVALID(f"split_points = {shown(split_points)}: must be a list of keys")
    points = [point if isinstance(point, list | tuple) else (point,) for point in split_points]
    encoded = sorted(schema.codec.encode(point) for point in points)
    if len(set(encoded)) != len(encoded) or b"" in encoded:
        raise Code.ARGUMENT_INVALID("split points must be different keys, none of them empty")
    return tuple(encoded)
