"""Merge modes: how rows of a table with equal keys are merged.

A table declares one mode. Compaction applies it to the runs that it merges, and every read applies it to the remaining
runs, so a reader sees the same rows before and after a compaction. Pure: no I/O.

Core types: :data:`MergeMode`, a closed union of :class:`KeepAll`, :class:`Latest`, :class:`First`, :class:`Aggregate`
and :class:`Custom`; :data:`FUNCTIONS`, the functions of aggregates.

Rules: every mode is a function f over the rows of a key, in order of arrival, with f(f(A) + B) = f(A + B), where A + B
is A followed by B. So runs may be merged in any grouping of neighbours.

Errors: UsageError for a mode that does not fit its schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, assert_never

import pyarrow as pa
from msgspec import Struct

from lakebed.errors import Code
from lakebed.model.checks import is_text, is_whole, shown
from lakebed.model.types import is_number

if TYPE_CHECKING:
    from lakebed.model.schema import Schema


@dataclass(frozen=True, slots=True)
class KeepAll:
    """All rows are kept; the default."""


@dataclass(frozen=True, slots=True)
class Latest:
    """One row per row key: the last to arrive or, with ``by="sort_key"``, the one with the greatest sort key.

    Of rows with the same sort key, the last to arrive is kept. Tables of this mode accept upserts, deletes and, if
    merged by arrival, partial rows.
    """

    by: str = "arrival"

    def __post_init__(self) -> None:
        if self.by not in ("arrival", "sort_key"):
            raise Code.MERGE_MODE_INVALID(f"Latest(by={shown(self.by)}): by is 'arrival' or 'sort_key'")


@dataclass(frozen=True, slots=True)
class First:
    """One row per row key: the first to arrive."""


@dataclass(frozen=True, slots=True, init=False)
class Aggregate:
    """Rows with equal row key and sort key are merged into one; ``functions`` has a function of :data:`FUNCTIONS` for
    each value field, by name.
    """

    functions: tuple[tuple[str, str], ...]

    def __init__(self, functions: Mapping[str, str] | tuple[tuple[str, str], ...]) -> None:
        if not isinstance(functions, Mapping | tuple):
            raise Code.MERGE_MODE_INVALID(
                f"Aggregate takes a function for each value field by name, not {shown(functions)}"
            )
        pairs = tuple(functions.items()) if isinstance(functions, Mapping) else functions
        for name, function in pairs:
            if not is_text(name) or function not in FUNCTIONS:
                raise Code.MERGE_MODE_INVALID(
                    f"no aggregate function {shown(function)} for {shown(name)}; there are: {', '.join(FUNCTIONS)}"
                )
        object.__setattr__(self, "functions", pairs)


@dataclass(frozen=True, slots=True)
class Custom:
    """All rows of a row key are merged by a custom function: an installed one, or a query.

    ``Custom("name", version)`` is a Python function that an installed package has as an entry point of the group
    ``lakebed.merge_functions``, named ``name`` for version 1, else ``name.version``. ``Custom(sql="SELECT …")`` is a
    query over the table ``rows``. :mod:`lakebed.merging.rows_function` specifies their input and output.
    """

    name: str = ""
    version: int = 1
    sql: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if not is_text(self.name) or not is_text(self.sql) or bool(self.name) == bool(self.sql):
            raise Code.MERGE_MODE_INVALID(
                f"Custom({shown(self.name)}, sql={shown(self.sql)}): give the name of a function, or sql, as a text"
            )
        if self.name and not _FUNCTION_NAME.fullmatch(self.name):
            raise Code.MERGE_MODE_INVALID(
                f"Custom({shown(self.name)}): a name has up to 100 letters, digits, _ and -, and begins with a letter"
            )
        if not is_whole(self.version, 1) or (self.sql and self.version != 1):
            raise Code.MERGE_MODE_INVALID(
                f"version = {shown(self.version)}: must be a whole number from 1, and belongs to a name"
            )

    def __str__(self) -> str:
        return f"Custom(sql={self.sql!r})" if self.sql else f"Custom({self.name!r}, {self.version})"


_FUNCTION_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")

MergeMode = KeepAll | Latest | First | Aggregate | Custom

KEEP_ALL = KeepAll()


class Function(Struct, frozen=True):
    """An aggregate function: a test for the types it accepts, their description, and whether row order matters."""

    takes: Callable[[pa.DataType], bool]
    types: str
    ordered: bool = False


def _is_map_of(takes: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda kind: bool(pa.types.is_map(kind) and takes(kind.item_type))


def _is_ordered_type(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not pa.types.is_boolean(kind) and not pa.types.is_null(kind)


def _always(_: pa.DataType) -> bool:
    return True


MEAN = pa.struct([("sum", pa.float64()), ("count", pa.int64())])
"""The type of a field with the function ``mean``."""

FUNCTIONS: Mapping[str, Function] = {
    "sum": Function(is_number, "numbers"),
    "product": Function(lambda kind: bool(pa.types.is_integer(kind) or pa.types.is_floating(kind)), "numbers"),
    "min": Function(_is_ordered_type, "plain types"),
    "max": Function(_is_ordered_type, "plain types"),
    "first": Function(_always, "any type", ordered=True),
    "last": Function(_always, "any type", ordered=True),
    "any": Function(pa.types.is_boolean, "bool"),
    "all": Function(pa.types.is_boolean, "bool"),
    "or": Function(pa.types.is_integer, "integers"),
    "count": Function(lambda kind: kind == pa.int64(), "int64"),
    "mean": Function(lambda kind: kind == MEAN, "the type lakebed.sketches.MEAN, struct<sum: double, count: int64>"),
    "hll": Function(pa.types.is_binary, "binary"),
    "quantiles": Function(pa.types.is_binary, "binary"),
    "list": Function(pa.types.is_list, "lists", ordered=True),
    "set": Function(lambda kind: bool(pa.types.is_list(kind) and _is_ordered_type(kind.value_type)), "lists"),
    "join": Function(pa.types.is_string, "string", ordered=True),
    "map_sum": Function(_is_map_of(is_number), "maps to numbers"),
    "map_min": Function(_is_map_of(_is_ordered_type), "maps to plain types"),
    "map_max": Function(_is_map_of(_is_ordered_type), "maps to plain types"),
}
"""The functions of :class:`Aggregate` by name. Each ignores nulls; the result of only nulls is null."""


def check_mode(mode: Any, schema: Schema) -> MergeMode:
    """Return the mode if rows of this schema can be merged by it. Raises UsageError with field, type and function."""
    match mode:
        case KeepAll() | First() | Custom():
            return mode
        case Latest():
            if mode.by == "sort_key" and not schema.sort_key:
                raise Code.MERGE_MODE_INVALID('Latest(by="sort_key") needs a sort key, and the schema has none')
            return mode
        case Aggregate():
            _check_functions(mode, schema)
            return mode
        case _:
            raise Code.MERGE_MODE_INVALID(
                f"not a merge mode: {shown(mode)}; give KeepAll(), Latest(), First(), Aggregate(…) or Custom(…)"
            )


def _check_functions(mode: Aggregate, schema: Schema) -> None:
    functions = dict(mode.functions)
    if len(functions) != len(mode.functions):
        raise Code.MERGE_MODE_INVALID("Aggregate names a field twice")
    values = {field.name: field for field in schema.values}
    for name, function in functions.items():
        if name in schema.by_name and name not in values:
            raise Code.MERGE_MODE_INVALID(f"{name!r} is a key field; only value fields have an aggregate function")
        if name not in values:
            raise Code.MERGE_MODE_INVALID(f"no value field {name!r}; there are: {', '.join(values)}")
        if not FUNCTIONS[function].takes(values[name].type):
            raise Code.MERGE_MODE_INVALID(
                f"{function} takes {FUNCTIONS[function].types}; {name!r} is {values[name].type}", column=name
            )
    missing = [name for name in values if name not in functions]
    if missing:
        raise Code.MERGE_MODE_INVALID(
            f"Aggregate needs a function for every value field; missing: {', '.join(missing)}"
        )


def merge_key(mode: MergeMode, schema: Schema) -> tuple[str, ...]:
    """Return the names of the fields whose values rows must share to be merged; none if rows are never merged."""
    match mode:
        case KeepAll():
            return ()
        case Latest() | First() | Custom():
            return schema.row_key_names
        case Aggregate():
            return schema.sort_names
        case _:
            assert_never(mode)


def order_matters(mode: MergeMode) -> bool:
    """Return whether the result of a merge depends on the order in which rows with equal keys arrive."""
    match mode:
        case KeepAll():
            return False
        case Latest() | First() | Custom():
            return True
        case Aggregate():
            return any(FUNCTIONS[function].ordered for _, function in mode.functions)
        case _:
            assert_never(mode)


def has_one_row_a_key(mode: MergeMode) -> bool:
    """Return whether merged rows have different row keys."""
    return isinstance(mode, Latest | First)


def stored_mode(mode: MergeMode) -> dict[str, Any] | None:
    """Return the JSON form of a mode, None for the default; :func:`mode_of` is the inverse."""
    match mode:
        case KeepAll():
            return None
        case Latest():
            return {"mode": "latest", "by": mode.by}
        case First():
            return {"mode": "first"}
        case Aggregate():
            return {"mode": "aggregate", "functions": dict(mode.functions)}
        case Custom(sql=""):
            return {"mode": "custom", "name": mode.name, "version": mode.version}
        case Custom():
            return {"mode": "custom", "sql": mode.sql}
        case _:
            assert_never(mode)


def mode_of(document: Any) -> MergeMode:
    """Return the mode of a JSON form. Raises UsageError if it is malformed."""
    match document:
        case None:
            return KEEP_ALL
        case {"mode": "latest", "by": by}:
            return Latest(by)
        case {"mode": "first"}:
            return First()
        case {"mode": "aggregate", "functions": dict(functions)}:
            return Aggregate(functions)
        case {"mode": "custom", "name": name, "version": version}:
            return Custom(name, version)
        case {"mode": "custom", "sql": sql}:
            return Custom(sql=sql)
        case _:
            raise Code.MERGE_MODE_INVALID(f"not a merge mode: {shown(document)}")
