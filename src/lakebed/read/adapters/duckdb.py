"""Tables as DuckDB relations: DuckDB reads the live rows of the data files itself.

A file with rows that are not live is read with a condition on the key, by which statistics can prune. Overlapping files
of a table that merges rows are read from a merged copy. DuckDB checks no
digests: local files are verified before DuckDB gets their paths, and files on a store are read through PyArrow.

Rules. DuckDB interprets neither paths nor names. It gets no path in which it would expand a wildcard: PyArrow reads
such a file. Hive partitions and other readings of a path are switched off. Columns are named by their position in the
file, because DuckDB does not distinguish names that differ in case only.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from lakebed.clock import random_token
from lakebed.engine.tokens import quoted_name
from lakebed.errors import Code
from lakebed.files.parquet.stored_file import local_dataset
from lakebed.model.arrays import empty_table
from lakebed.model.byte_keys import quoted_text
from lakebed.model.checks import check_method
from lakebed.model.foreign_errors import optional_imports
from lakebed.model.keys import EncodedRange
from lakebed.model.type_names import UUID
from lakebed.read.rows.merged_copy import merged_copy
from lakebed.read.rows.plan import LiveFile, divided, live_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import duckdb

    from lakebed.files.parquet.open_files import LocalCopy, OpenFile
    from lakebed.model.schema import Field, Schema
    from lakebed.read.rows.plan import QueryPlan
    from lakebed.read.rows.reader import Reader


_DECIMAL_DIGITS_MAX = 38
_WILDCARDS = frozenset("*?[")
_AS_IT_IS = (
    "hive_partitioning=false, union_by_name=false, filename=false, file_row_number=false, binary_as_string=false"
)
_held: WeakKeyDictionary[Any, list[LocalCopy]] = WeakKeyDictionary()
"""Copies of files that a connection reads, deleted with the connection."""


def relation(plan: QueryPlan, reader: Reader, connection: duckdb.DuckDBPyConnection | None) -> duckdb.DuckDBPyRelation:
    """Return all rows of the plan as a relation of the connection, or of DuckDB's default one.

    Raises as :meth:`lakebed.read.rows.reader.Reader.scan`, and UsageError if DuckDB is not installed.
    """
    with optional_imports():
        import duckdb
    if connection is not None:
        check_method("connection", connection, "from_arrow", "connection of DuckDB")
    target: Any = duckdb if connection is None else connection
    schema = plan.schema
    _check_types(schema)
    names = output_names(schema.names)
    direct, overlapping = divided(plan)
    files = live_files(direct)
    opened = [reader.open(live.file, schema) for live in files]
    empty = target.from_arrow(empty_table(schema.arrow).rename_columns(names))
    casts = {f.id: (str(kind), name) for f, kind, name in zip(schema.fields, empty.types, names, strict=True)}
    sources = [_source(target, one, reader) for one in opened]
    selects = [_select(*one, schema, casts) for one in zip(sources, opened, files, strict=True)]
    copies = [one.copy for one in opened if one.copy is not None]
    if overlapping.partitions:
        merged = merged_copy(overlapping, reader)
        columns = _by_position(field.id for field in schema.fields)
        source = _renamed(_read(target, merged.path), columns)
        selects.append(f"SELECT {_outputs(columns, casts)} FROM {source}")  # noqa: S608 - all is quoted
        copies.append(merged)
    _held.setdefault(target, []).extend(copies)
    found: duckdb.DuckDBPyRelation = target.sql(" UNION ALL ".join(selects)) if selects else empty
    return found


def output_names(names: Iterable[str]) -> list[str]:
    """Return the names of the relation's columns: those of the fields, with a number added to each of several that
    differ in case only, which DuckDB would take for the first of them.
    """
    given = list(names)
    folded = [_folded(name) for name in given]
    used = set(folded)
    found = []
    for name, fold in zip(given, folded, strict=True):
        chosen = name
        if folded.count(fold) > 1:
            number = 1
            while _folded(chosen) in used:
                chosen, number = f"{name}_{number}", number + 1
            used.add(_folded(chosen))
        found.append(chosen)
    return found


def _folded(name: str) -> str:
    """Return the name as DuckDB compares it, which folds ASCII letters only."""
    return name.encode().lower().decode()


def _check_types(schema: Schema) -> None:
    """Raise UsageError for a column whose type DuckDB lacks."""
    for field in schema.fields:
        fault = _fault(field.type)
        if fault is not None:
            raise Code.TYPE_UNSUPPORTED(
                f"column {field.name} is {field.type}, and DuckDB {fault}; scan the other columns, and pass the result "
                "to duckdb.from_arrow",
                column=field.name,
            )


def _fault(kind: pa.DataType) -> str | None:
    """Return why DuckDB cannot represent a type, at any depth; None if it can."""
    if pa.types.is_decimal(kind) and kind.precision > _DECIMAL_DIGITS_MAX:
        return f"has decimals of up to {_DECIMAL_DIGITS_MAX} digits"
    if pa.types.is_float16(kind):
        return "takes no half floats from Arrow"
    members = [kind.field(index) for index in range(kind.num_fields)]
    if pa.types.is_struct(kind):
        folded = [_folded(member.name) for member in members]
        twice = [member.name for member, fold in zip(members, folded, strict=True) if folded.count(fold) > 1]
        if twice:
            return f"does not distinguish the members {' and '.join(twice)} of a struct, which differ in case only"
    return next(filter(None, (_fault(member.type) for member in members)), None)


def _source(target: Any, opened: OpenFile, reader: Reader) -> str:
    """Return the file for DuckDB; a file on a store is registered as a dataset, which verifies it."""
    if opened.path is not None:
        return _read(target, opened.path)
    with reader.attribute_errors([opened.file]):
        return _registered(target, reader.dataset(opened))


def _read(target: Any, path: Path) -> str:
    """Return a local file for DuckDB, read as it is, whatever its path looks like."""
    if not _WILDCARDS.isdisjoint(str(path)):
        return _registered(target, local_dataset(path))
    return f"read_parquet({quoted_text(str(path))}, {_AS_IT_IS})"


def _registered(target: Any, dataset: Any) -> str:
    # A name that no other relation of the connection has, which may be in use.
    name = f"lakebed-{random_token()}"
    target.register(name, dataset)
    return quoted_name(name)


def _by_position(fields: Iterable[int]) -> dict[int, str]:
    """Return names for the columns of a file by field id, which are given in their order."""
    return {field: f"c{position}" for position, field in enumerate(fields)}


def _renamed(source: str, columns: Mapping[int, str]) -> str:
    """Return the source with these names for its columns, in their order."""
    return f"{source} AS rows({', '.join(columns.values())})"


def _outputs(columns: Mapping[int, str], casts: Mapping[int, tuple[str, str]]) -> str:
    """Return the columns of the relation, in the types and under the names of ``casts``; missing ones are null."""
    return ", ".join(
        f"{columns.get(field, 'NULL')}::{kind} AS {quoted_name(name)}" for field, (kind, name) in casts.items()
    )


def _select(source: str, opened: OpenFile, live: LiveFile, schema: Schema, casts: dict[int, tuple[str, str]]) -> str:
    """Return the live rows of one file, in the form of the schema."""
    # The footer names all columns of the file, in their order.
    columns = _by_position(opened.footer.names)
    where = (
        "" if live.whole else f" WHERE {' OR '.join(_range_condition(schema, columns, keys) for keys in live.ranges)}"
    )
    return f"SELECT {_outputs(columns, casts)} FROM {_renamed(source, columns)}{where}"  # noqa: S608 - all is quoted


def _range_condition(schema: Schema, columns: Mapping[int, str], keys: EncodedRange) -> str:
    """Return the condition that the key is in the range; fields are compared from the left."""
    low = schema.codec.decode_bound(keys.min)
    parts = [_beyond(schema, columns, low.values, ">" if low.after else ">=")] if low.values else []
    if keys.max is not None:
        high = schema.codec.decode_bound(keys.max)
        parts.append(_beyond(schema, columns, high.values, "<=" if high.after else "<") if high.values else "false")
    return f"({' AND '.join(parts) or 'true'})"


def _beyond(schema: Schema, columns: Mapping[int, str], values: tuple[Any, ...], operator: str) -> str:
    nested = ""
    strict = operator[0]
    for field, value in reversed(list(zip(schema.row_key, values, strict=False))):
        name, literal = columns[field.id], _sql_literal(field, value)
        last = f"{name} {operator} {literal}"
        nested = f"({name} {strict} {literal} OR ({name} = {literal} AND {nested}))" if nested else last
    first = schema.row_key[0]
    # The first condition is implied by the second; statistics can prune by it.
    return f"{columns[first.id]} {strict}= {_sql_literal(first, values[0])} AND {nested}"


def _sql_literal(field: Field, value: Any) -> str:
    if isinstance(value, str):
        return quoted_text(value)
    kind = field.type
    if kind == UUID:
        return f"'{field.key_type.value_of(value)}'::UUID"
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
