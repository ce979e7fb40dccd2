"""Rows joined with a list of keys: those with one of the keys, and those with none.

Keys are plain columns, distinct and without nulls, of types whose equality is the same for the engine and for Lakebed:
not floats. Core functions: :func:`with_keys`, :func:`without_keys`. Pure: frames are only planned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from datafusion import SessionContext

from lakebed.engine.datafusion import column, scan_options

if TYPE_CHECKING:
    from datafusion import DataFrame


def with_keys(rows: DataFrame, keys: pa.Table) -> DataFrame:
    """Return the rows with one of the keys, in their order."""
    return _beside_keys(rows, keys, "inner").select(*map(column, rows.schema().names))


def without_keys(rows: DataFrame, keys: pa.Table) -> DataFrame:
    """Return the rows with none of the keys, in no order."""
    joined = _beside_keys(rows, keys, "right")
    return joined.filter(column(_renamed(rows, keys)[0]).is_null()).select(*map(column, rows.schema().names))


def _beside_keys(rows: DataFrame, keys: pa.Table, how: str) -> DataFrame:
    # The engine makes its hash table of the left side, and streams the right one in its order; of semi and anti joins
    # it has only those that do the reverse.
    # Files may have other units of time than their fields.
    names, types = keys.column_names, {field.name: _storage(field.type) for field in rows.schema()}
    columns = [keys.column(name).combine_chunks().cast(types[name]) for name in names]
    renamed = _renamed(rows, keys)
    # The session registers the keys as a table, and would keep them for as long as it lives: so it is one of its own.
    # A plan takes the options of the session of its left side. It is to have one partition: its rows are in order, and
    # the engine gives no row of one partition of a join before the others run.
    left = SessionContext(scan_options()).from_arrow(pa.table(columns, renamed))
    return left.join(rows, left_on=renamed, right_on=list(names), how=how)  # type: ignore[call-overload,no-any-return]


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _renamed(rows: DataFrame, keys: pa.Table) -> list[str]:
    """Return names for the keys that the rows have not."""
    taken = set(rows.schema().names)
    found = []
    for number in range(keys.num_columns):
        name = f"key {number}"
        while name in taken:
            name += " "
        found.append(name)
    return found
