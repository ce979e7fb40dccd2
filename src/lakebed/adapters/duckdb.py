"""Tables as DuckDB relations: DuckDB reads the live rows of the data files itself.

A file with rows that are not live is read with a condition on the key, by which statistics can prune. Overlapping files
of a table that merges rows are read from a merged copy. DuckDB checks no
digests: local files are verified before DuckDB gets their paths, and files on a store are read through PyArrow.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from lakebed.engine.tokens import quoted_name, quoted_text
from lakebed.errors import Code
from lakebed.model.arrays import empty_table
from lakebed.model.checks import check_method
from lakebed.model.foreign_errors import optional_imports
from lakebed.model.key_values import value_of
from lakebed.model.keys import EncodedRange
from lakebed.model.type_names import UUID
from lakebed.read.merged_copy import merged_copy
from lakebed.read.plan import LiveFile, divided, live_files

if TYPE_CHECKING:
    import duckdb

    from lakebed.model.schema import Field, Schema
    from lakebed.parquet.open_files import LocalCopy, OpenFile
    from lakebed.read.plan import QueryPlan
    from lakebed.read.reader import Reader


_DECIMAL_DIGITS_MAX = 38
_held: WeakKeyDictionary[Any, list[LocalCopy]] = WeakKeyDictionary()
"""Copies of files that a connection reads, deleted with the connection."""


def relation(plan: QueryPlan, reader: Reader, connection: duckdb.DuckDBPyConnection | None) -> duckdb.DuckDBPyRelation:
    """Return all rows of the plan as a relation of the connection, or of DuckDB's default one.

    Raises as :meth:`lakebed.read.reader.Reader.scan`, and UsageError if DuckDB is not installed.
    """
    with optional_imports():
        import duckdb
    if connection is not None:
        check_method("connection", connection, "from_arrow", "connection of DuckDB")
    target: Any = duckdb if connection is None else connection
    schema = plan.schema
    _check_types(schema)
    direct, overlapping = divided(plan)
    files = live_files(direct)
    opened = [reader.open(live.file, schema) for live in files]
    empty = target.from_arrow(empty_table(schema.arrow))
    kinds = {f.id: str(kind) for f, kind in zip(schema.fields, empty.types, strict=True)}
    sources = [_source(target, one, reader) for one in opened]
    selects = [_select(*one, schema, kinds) for one in zip(sources, opened, files, strict=True)]
    copies = [one.copy for one in opened if one.copy is not None]
    if overlapping.partitions:
        merged = merged_copy(overlapping, reader)
        selects.append(_select_all(merged, schema, kinds))
        copies.append(merged)
    _held.setdefault(target, []).extend(copies)
    found: duckdb.DuckDBPyRelation = target.sql(" UNION ALL ".join(selects)) if selects else empty
    return found


def _check_types(schema: Schema) -> None:
    """Raise UsageError for a column whose type DuckDB lacks."""
    for field in schema.fields:
        if pa.types.is_decimal(field.type) and field.type.precision > _DECIMAL_DIGITS_MAX:
            raise Code.TYPE_UNSUPPORTED(
                f"column {field.name} is {field.type}, and DuckDB has decimals of up to {_DECIMAL_DIGITS_MAX} digits; "
                "scan the other columns, and pass the result to duckdb.from_arrow",
                column=field.name,
            )
        if "halffloat" in str(field.type):
            raise Code.TYPE_UNSUPPORTED(
                f"column {field.name} is {field.type}, and DuckDB takes no half floats from Arrow; scan the other "
                "columns, and pass the result to duckdb.from_arrow",
                column=field.name,
            )


def _source(target: Any, opened: OpenFile, reader: Reader) -> str:
    """Return the name of the file for DuckDB; a file on a store is registered as a dataset, which verifies it."""
    if opened.path is not None:
        return f"read_parquet({quoted_text(str(opened.path))})"
    name = f"lakebed-{opened.file.id}"
    with reader.attribute_errors([opened.file]):
        target.register(name, reader.dataset(opened))
    return quoted_name(name)


def _select(source: str, opened: OpenFile, live: LiveFile, schema: Schema, kinds: dict[int, str]) -> str:
    """Return the live rows of one file, in the form of the schema."""
    names = dict(opened.footer.names)
    columns = ", ".join(
        f"{quoted_name(names[f.id]) if f.id in names else 'NULL'}::{kinds[f.id]} AS {quoted_name(f.name)}"
        for f in schema.fields
    )
    where = "" if live.whole else f" WHERE {' OR '.join(_range_condition(schema, names, keys) for keys in live.ranges)}"
    return f"SELECT {columns} FROM {source}{where}"  # noqa: S608 - names and texts are quoted


def _select_all(copy: LocalCopy, schema: Schema, kinds: dict[int, str]) -> str:
    """Return the rows of a merged copy, in the form of the schema."""
    columns = ", ".join(f"{quoted_name(f.name)}::{kinds[f.id]} AS {quoted_name(f.name)}" for f in schema.fields)
    return f"SELECT {columns} FROM read_parquet({quoted_text(str(copy.path))})"  # noqa: S608 - names and texts are quoted


def _range_condition(schema: Schema, names: dict[int, str], keys: EncodedRange) -> str:
    """Return the condition that the key is in the range; fields are compared from the left."""
    low = schema.codec.decode_bound(keys.min)
    parts = [_beyond(schema, names, low.values, ">" if low.after else ">=")] if low.values else []
    if keys.max is not None:
        high = schema.codec.decode_bound(keys.max)
        parts.append(_beyond(schema, names, high.values, "<=" if high.after else "<") if high.values else "false")
    return f"({' AND '.join(parts) or 'true'})"


def _beyond(schema: Schema, names: dict[int, str], values: tuple[Any, ...], operator: str) -> str:
    nested = ""
    strict = operator[0]
    for field, value in reversed(list(zip(schema.row_key, values, strict=False))):
        name, literal = quoted_name(names[field.id]), _sql_literal(field, value)
        last = f"{name} {operator} {literal}"
        nested = f"({name} {strict} {literal} OR ({name} = {literal} AND {nested}))" if nested else last
    first = schema.row_key[0]
    # The first condition is implied by the second; statistics can prune by it.
    return f"{quoted_name(names[first.id])} {strict}= {_sql_literal(first, values[0])} AND {nested}"


def _sql_literal(field: Field, value: Any) -> str:
    if isinstance(value, str):
        return quoted_text(value)
    kind = field.type
    if kind == UUID:
        return f"'{value_of(field, value)}'::UUID"
    if isinstance(value, bytes):
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
    if isinstance(value, float):
        return f"'{value}'::{'FLOAT' if field.width == 4 else 'DOUBLE'}"
    if isinstance(value, Decimal):
        return f"'{value:f}'::DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_time(kind):
        text = field.key_type.array([value]).cast(pa.string())[0]
        return f"'{text}'::{'TIME_NS' if kind.unit == 'ns' else 'TIME'}"
    if pa.types.is_date32(kind):
        return f"(DATE '1970-01-01' + {value})"
    if pa.types.is_timestamp(kind):
        made = {"s": "make_timestamp({}000000)", "ms": "make_timestamp({}000)", "us": "make_timestamp({})"}
        text = made.get(kind.unit, "make_timestamp_ns({})").format(value)
        return f"({text} AT TIME ZONE 'UTC')" if kind.tz else text
    return str(value)
