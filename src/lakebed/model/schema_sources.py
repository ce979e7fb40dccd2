"""Derives fields from other descriptions: Python annotations, dataclasses, pydantic models, Arrow schemas. Pure.

A class describes a row by its annotations: ``int`` is int64, ``float`` double, ``str`` string, ``datetime``
timestamp[us], ``list[T]``, ``dict[K, V]`` and classes nest, and only ``T | None`` is nullable. An Arrow type in
``Annotated[T, …]`` takes precedence. pydantic is not imported: its classes list their fields.

Core. :func:`groups_of`, :func:`resolved`. Errors. UsageError, which names the field.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime as dt
import decimal
import enum
import types as python_types
import typing
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin

import pyarrow as pa

from lakebed.errors import Code, Error, UsageError
from lakebed.model import types
from lakebed.model.checks import is_text, repeated_names, shown
from lakebed.model.wording import did_you_mean

Groups = tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]
"""Row key, sort key and values as :class:`~lakebed.model.schema.Schema` takes them."""

_PLAIN: dict[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    bytearray: pa.binary(),
    dt.date: pa.date32(),
    dt.datetime: pa.timestamp("us"),
    dt.time: pa.time64("us"),
    uuid.UUID: pa.uuid(),
}

_PYDANTIC = {
    "AwareDatetime": pa.timestamp("us", "UTC"),
    "NaiveDatetime": pa.timestamp("us"),
    "PastDatetime": pa.timestamp("us"),
    "FutureDatetime": pa.timestamp("us"),
    "PastDate": pa.date32(),
    "FutureDate": pa.date32(),
}
"""Classes of ``pydantic.types`` that are not subclasses of the types that they represent."""

_LISTS = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Set, collections.abc.Iterable)
_MAPS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def groups_of(source: Any, key: str | Sequence[str], sort_key: str | Sequence[str]) -> Groups:
    """Return the fields of a source, divided into row key, sort key and values."""
    row_names, sort_names = _names("key", key), _names("sort_key", sort_key)
    found = _fields_of(source)
    if not row_names:
        raise Code.SCHEMA_INVALID(
            f"a schema needs at least one row key field: give key=, a name or a list of names of {', '.join(found)}"
        )
    for name in (*row_names, *sort_names):
        if name not in found:
            columns = f"{', '.join(found)}{did_you_mean(name, found)}"
            raise Code.COLUMN_UNKNOWN(f"key column {name!r} is not in the data; its columns: {columns}")
    keys = {*row_names, *sort_names}
    if len(keys) < len(row_names) + len(sort_names):
        raise Code.SCHEMA_INVALID(f"a field is named twice in key = {row_names!r}, sort_key = {sort_names!r}")
    return (
        {name: _key_type(name, found[name], source) for name in row_names},
        {name: _key_type(name, found[name], source) for name in sort_names},
        {name: kind for name, kind in found.items() if name not in keys},
    )


def resolved(annotation: Any, field: str) -> tuple[pa.DataType, bool]:
    """Return the Arrow type of a field's annotation, and whether it allows None. Raises UsageError if it has none."""
    try:
        return _resolved(annotation)
    except UsageError as error:
        raise error.code(f"field {field}: {error.message}", column=field) from error


def _resolved(annotation: Any) -> tuple[pa.DataType, bool]:
    inner = _without_none(annotation)
    return _arrow(annotation if inner is None else inner), inner is not None


def _names(argument: str, given: Any) -> list[str]:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list | tuple) or not all(map(is_text, names)):
        raise Code.SCHEMA_INVALID(f"{argument} is a name, or a list of names, not {shown(given)}")
    return list(names)


def _fields_of(source: Any) -> dict[str, Any]:
    """Return a type, an annotation or an Arrow field for each name."""
    if isinstance(source, Mapping):
        if odd := [name for name in source if not is_text(name)]:
            raise Code.SCHEMA_INVALID(f"not a name for a field: {shown(odd[0])}; give a text")
        return dict(source)
    if isinstance(source, type):
        return {field.name: field for field in _members(source)}
    arrow = _arrow_schema(source)
    if repeated := repeated_names(arrow.names):
        raise Code.SCHEMA_INVALID("duplicate column names: " + ", ".join(repeated))
    return {field.name: field.with_type(types.of_field(field.type)) for field in arrow}


def _arrow_schema(source: Any) -> pa.Schema:
    if isinstance(source, pa.Schema):
        return source
    if hasattr(source, "__arrow_c_schema__"):
        return pa.schema(source)
    if hasattr(source, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(source).schema
    if hasattr(source, "collect_schema"):
        # A lazy frame of Polars: collecting no rows gives its columns.
        return _arrow_schema(source.head(0).collect())
    if dataclasses.is_dataclass(source):
        raise Code.SCHEMA_INVALID(f"a schema is that of a class: give {type(source).__name__}, not one of its values")
    raise Code.SCHEMA_INVALID(
        f"cannot read a schema from {shown(source)}; give a dict of names and types, a dataclass, a pydantic model "
        "class, or an Arrow schema"
    )


def _key_type(name: str, kind: Any, source: Any) -> Any:
    """Return the type of a key field. Arrow fields are nullable by default, so their nullability is ignored."""
    if not isinstance(kind, pa.Field):
        return kind
    if kind.nullable and isinstance(source, type):
        raise Code.SCHEMA_INVALID(f"key field {name} of {source.__name__} may be None: keys are never null")
    return kind.type


def _annotations(cls: type) -> Mapping[str, Any]:
    """Return the annotations of the fields of a class, in their order."""
    models = getattr(cls, "model_fields", None)
    if isinstance(models, Mapping) and models:
        # pydantic splits the outermost Annotated.
        return {name: _rejoined(one.annotation, one.metadata) for name, one in models.items()}
    if not _has_fields(cls):
        raise Code.SCHEMA_INVALID(
            f"{cls.__name__} has no fields; give a dataclass, a pydantic model, a NamedTuple or a TypedDict"
        )
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except (NameError, TypeError) as error:
        raise Code.SCHEMA_INVALID(
            f"cannot resolve the annotations of {cls.__name__}: {error}; define its types in the module, above it"
        ) from error
    names = [field.name for field in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else hints
    return {name: hints[name] for name in names}


def _has_fields(cls: type) -> bool:
    is_tuple = issubclass(cls, tuple) and hasattr(cls, "_fields")
    return dataclasses.is_dataclass(cls) or is_tuple or typing.is_typeddict(cls) or hasattr(cls, "model_fields")


def _rejoined(annotation: Any, metadata: Iterable[Any]) -> Any:
    for one in metadata:
        if isinstance(one, pa.DataType) or getattr(one, "max_digits", None) is not None:
            return Annotated[annotation, one]
    return annotation


def _members(cls: type) -> list[pa.Field]:
    """Return the Arrow fields of a class."""
    named = ((name, resolved(one, f"{cls.__name__}.{name}")) for name, one in _annotations(cls).items())
    return [pa.field(name, kind, nullable) for name, (kind, nullable) in named]


def _without_none(annotation: Any) -> Any:
    """Return an annotation without None; None for an annotation that does not allow None."""
    if get_origin(annotation) is Annotated:
        first, *metadata = get_args(annotation)
        inner = _without_none(first)
        return None if inner is None else Annotated[inner, *metadata]
    if get_origin(annotation) not in (Union, python_types.UnionType):
        return None
    parts = get_args(annotation)
    others = [part for part in parts if part is not type(None)]
    return None if len(others) == len(parts) else Union[*others]


def _arrow(annotation: Any) -> pa.DataType:
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _chosen(*inside)
    try:
        plain = _PLAIN.get(annotation)
    except TypeError:
        # An unhashable object is not a type.
        raise _no_type(annotation) from None
    if plain is not None:
        return plain
    if isinstance(annotation, NewType):
        return _arrow(annotation.__supertype__)
    if origin is Literal:
        return _type_of_all(annotation, inside)
    if origin in _LISTS and inside and (origin is not tuple or inside[1:] == (...,)):
        return pa.list_(_item(inside[0]))
    if origin in _MAPS:
        key, item = inside
        return pa.map_(_arrow(key), _item(item))
    if isinstance(annotation, type):
        return _of_class(annotation)
    raise _no_type(annotation)


def _of_class(cls: type) -> pa.DataType:
    if issubclass(cls, enum.Enum):
        return _type_of_all(cls, [member.value for member in cls])
    if cls.__module__ == "pydantic.types" and cls.__name__ in _PYDANTIC:
        return _PYDANTIC[cls.__name__]
    if issubclass(cls, decimal.Decimal):
        raise Code.TYPE_INVALID(
            "a Decimal needs its digits: annotate it as Annotated[Decimal, pa.decimal128(18, 2)] (digits, and how many "
            "of them are decimals), or in pydantic with Field(max_digits=18, decimal_places=2)"
        )
    if _has_fields(cls):
        return pa.struct(_members(cls))
    raise _no_type(cls)


def _chosen(annotation: Any, *metadata: Any) -> pa.DataType:
    """Return the Arrow type in the metadata of an annotation, or else that of the annotation itself."""
    for one in metadata:
        if isinstance(one, pa.DataType):
            return types.parse(one)
        if getattr(one, "max_digits", None) is not None:
            return pa.decimal128(one.max_digits, getattr(one, "decimal_places", None) or 0)
    return _arrow(annotation)


def _item(annotation: Any) -> pa.DataType:
    """Return the Arrow type of list items or map values, which are always nullable."""
    return _resolved(annotation)[0]


def _type_of_all(annotation: Any, values: Iterable[Any]) -> pa.DataType:
    """Return the common type of the values of a Literal or an Enum."""
    kinds = {type(value) for value in values}
    if len(kinds) != 1:
        raise _no_type(annotation)
    return _arrow(kinds.pop())


def _no_type(annotation: Any) -> Error:
    if not (isinstance(annotation, type) or get_origin(annotation) or annotation is Any):
        types.parse(annotation)  # raises the error for an invalid type
    named = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return Code.TYPE_INVALID(
        f"{named} has no Arrow type; give one with Annotated[{named}, pa.string()], say, or use int, float, str, bool, "
        "bytes, date, datetime, time, list[…], dict[…, …] or a class of these"
    )
