"""Merge modes: how rows of a table with equal keys are merged.

A table declares one mode. Compaction applies it to the runs that it merges, and every read applies it to the remaining
runs, so a reader sees the same rows before and after a compaction. Pure: no I/O.

Core types: :class:`MergeMode`, and the modes :class:`KeepAll`, :class:`Latest`, :class:`First`, :class:`Aggregate` and
:class:`Custom`; :data:`FUNCTIONS`, the functions of aggregates.

Rules: every mode is a function f over the rows of a key, in order of arrival, with f(f(A) + B) = f(A + B), where A + B
is A followed by B. So runs may be merged in any grouping of neighbours. Who handles rows asks a mode for its
properties; which mode it is matters here, and in :mod:`lakebed.files.merging`, alone.

Errors: UsageError for a mode that does not fit its schema.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from msgspec import Struct

from lakebed.errors import Code
from lakebed.model.checks import is_text, is_whole, shown
from lakebed.model.types import is_number

if TYPE_CHECKING:
    from lakebed.model.schema import Schema


class MergeMode:
    """How rows with equal keys are merged. A mode says where it differs from what stands here."""

    __slots__ = ()

    stored_name: ClassVar[str] = ""
    """Its name in stored documents."""

    keeps_all: ClassVar[bool] = False
    """Rows are never merged."""

    one_row_per_key: ClassVar[bool] = False
    """Merged rows have different row keys."""

    kept: ClassVar[int | None] = None
    """The merged row of a key is one of its rows, at this position of their order: 0 or -1. None: it may be another."""

    takes_markers: ClassVar[bool] = False
    """Deletes and partial rows may be written."""

    may_drop_rows: ClassVar[bool] = False
    """A key with rows may have no merged row, although none of them is a delete."""

    computes_values: ClassVar[bool] = False
    """A value of a merged row may come of those of several rows."""

    reads_whole_rows: ClassVar[bool] = False
    """A value of a merged row may depend on any column."""

    @property
    def by_sort_key(self) -> bool:
        """Whether the sort key, and not the arrival, orders the rows of a key."""
        return False

    @property
    def order_matters(self) -> bool:
        """Whether the result depends on the order in which rows with equal keys arrive."""
        return True

    @property
    def functions_by_field(self) -> Mapping[str, str]:
        """The function of :data:`FUNCTIONS` of each value field; empty if the mode has none."""
        return {}

    @property
    def query(self) -> str:
        """The SQL by which rows are merged, in the names of the fields; empty if there is none."""
        return ""

    def merge_key(self, schema: Schema) -> tuple[str, ...]:
        """Return the names of the fields whose values rows must share to be merged; none if rows are never merged."""
        return schema.row_key_names

    def check(self, schema: Schema) -> None:
        """Raise UsageError, with field, type and function, if rows of this schema cannot be merged by it."""

    def with_fields(self, before: Schema, after: Schema, functions: Mapping[str, str]) -> MergeMode:
        """Return the mode after a schema change; ``functions`` are those of new fields."""
        del before, after, functions
        return self

    def document(self) -> dict[str, Any] | None:
        """Return the JSON form, None for the default; :func:`mode_of` is the inverse."""
        return {"mode": self.stored_name}

    @classmethod
    def of_document(cls, values: Mapping[str, Any]) -> MergeMode:
        """Return the mode of a JSON form without its ``mode``. Raises TypeError for other values than it takes."""
        return cls(**values)


@dataclass(frozen=True, slots=True)
class KeepAll(MergeMode):
    """All rows are kept; the default."""

    keeps_all: ClassVar[bool] = True

    @property
    def order_matters(self) -> bool:
        """Never: no rows are merged."""
        return False

    def merge_key(self, schema: Schema) -> tuple[str, ...]:
        """Return no fields: rows are never merged."""
        del schema
        return ()

    def document(self) -> None:
        """Return None: the default."""


@dataclass(frozen=True, slots=True)
class Latest(MergeMode):
    """One row per row key: the last to arrive or, with ``by="sort_key"``, the one with the greatest sort key.

    Of rows with the same sort key, the last to arrive is kept. Tables of this mode accept upserts, deletes and, if
    merged by arrival, partial rows.
    """

    by: str = "arrival"

    stored_name: ClassVar[str] = "latest"
    one_row_per_key: ClassVar[bool] = True
    kept: ClassVar[int | None] = -1
    takes_markers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.by not in ("arrival", "sort_key"):
            raise Code.MERGE_MODE_INVALID(f"Latest(by={shown(self.by)}): by is 'arrival' or 'sort_key'")

    @property
    def by_sort_key(self) -> bool:
        """Whether the row with the greatest sort key is kept."""
        return self.by == "sort_key"

    def check(self, schema: Schema) -> None:
        """Raise UsageError if the mode needs a sort key, and the schema has none."""
        if self.by_sort_key and not schema.sort_key:
            raise Code.MERGE_MODE_INVALID('Latest(by="sort_key") needs a sort key, and the schema has none')

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"mode": self.stored_name, "by": self.by}


@dataclass(frozen=True, slots=True)
class First(MergeMode):
    """One row per row key: the first to arrive."""

    stored_name: ClassVar[str] = "first"
    one_row_per_key: ClassVar[bool] = True
    kept: ClassVar[int | None] = 0


@dataclass(frozen=True, slots=True, init=False)
class Aggregate(MergeMode):
    """Rows with equal row key and sort key are merged into one; ``functions`` has a function of :data:`FUNCTIONS` for
    each value field, by name.
    """

    functions: tuple[tuple[str, str], ...]

    stored_name: ClassVar[str] = "aggregate"
    computes_values: ClassVar[bool] = True

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

    @property
    def functions_by_field(self) -> Mapping[str, str]:
        """The function of each value field."""
        return dict(self.functions)

    @property
    def order_matters(self) -> bool:
        """Whether the order of arrival matters to a function."""
        return any(FUNCTIONS[function].ordered for _, function in self.functions)

    def merge_key(self, schema: Schema) -> tuple[str, ...]:
        """Return the fields of row key and sort key."""
        return schema.sort_names

    def check(self, schema: Schema) -> None:
        """Raise UsageError unless each value field has a function that takes its type."""
        _check_functions(self, schema)

    def with_fields(self, before: Schema, after: Schema, functions: Mapping[str, str]) -> Aggregate:
        """Return the mode after a schema change: functions follow their fields, which keep their ids."""
        by_id = {before.by_name[name].id: function for name, function in self.functions}
        followed = {field.name: by_id.get(field.id) or functions.get(field.name, "") for field in after.values}
        return Aggregate({name: function for name, function in followed.items() if function})

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"mode": self.stored_name, "functions": dict(self.functions)}


@dataclass(frozen=True, slots=True)
class Custom(MergeMode):
    """All rows of a row key are merged by a custom function: an installed one, or a query.

    ``Custom("name", version)`` is a Python function that an installed package has as an entry point of the group
    ``lakebed.merge_functions``, named ``name`` for version 1, else ``name.version``. ``Custom(sql="SELECT …")`` is a
    query over the table ``rows``. :mod:`lakebed.files.merging.custom_functions` specifies their input and output.
    """

    name: str = ""
    version: int = 1
    sql: str = field(default="", kw_only=True)

    stored_name: ClassVar[str] = "custom"
    may_drop_rows: ClassVar[bool] = True
    computes_values: ClassVar[bool] = True
    reads_whole_rows: ClassVar[bool] = True

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

    @property
    def query(self) -> str:
        """The query, if it is not an installed function."""
        return self.sql

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        if self.sql:
            return {"mode": self.stored_name, "sql": self.sql}
        return {"mode": self.stored_name, "name": self.name, "version": self.version}

    def __str__(self) -> str:
        return f"Custom(sql={self.sql!r})" if self.sql else f"Custom({self.name!r}, {self.version})"


_FUNCTION_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")

KEEP_ALL = KeepAll()

MODES: dict[str, type[MergeMode]] = {mode.stored_name: mode for mode in (Latest, First, Aggregate, Custom)}
"""The modes by their stored names; the default has none. A new mode is added here."""


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
    if not isinstance(mode, MergeMode):
        raise Code.MERGE_MODE_INVALID(
            f"not a merge mode: {shown(mode)}; give KeepAll(), Latest(), First(), Aggregate(…) or Custom(…)"
        )
    mode.check(schema)
    return mode


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


def mode_of(document: Any) -> MergeMode:
    """Return the mode of a JSON form. Raises UsageError if it is malformed."""
    if document is None:
        return KEEP_ALL
    mode = MODES.get(str(document.get("mode"))) if isinstance(document, Mapping) else None
    if mode is not None:
        with contextlib.suppress(TypeError):
            made = mode.of_document({name: value for name, value in document.items() if name != "mode"})
            # A member with a default may not be left out.
            if made.document() == document:
                return made
    raise Code.MERGE_MODE_INVALID(f"not a merge mode: {shown(document)}")
