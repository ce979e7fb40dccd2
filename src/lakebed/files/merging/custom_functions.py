"""The functions of the merge mode ``Custom``, and of ``apply``: those of installed packages, and queries.

A package declares a function in its metadata, so that every process that has it installed (services, Spark workers)
finds the same one:

    [project.entry-points."lakebed.merge_functions"]
    top_three = "my_package.functions:top_three"
    "top_three.2" = "my_package.functions:top_three_with_ties"

The name is that of ``Custom("top_three")``; later versions have their number behind it, as ``Custom("top_three", 2)``.
A table stores the name and the version. Nothing that is stored is ever imported by its path.

A query is one SELECT over the table ``rows``, which has the rows of whole keys, and the column ``__lakebed_arrival``
with their position. It gives every column of the schema; their order, and that of the rows, does not matter.

Core functions: :func:`function_of`, :func:`installed`. Errors: UsageError, with the code MERGE_FUNCTION_MISSING for a
function that is not installed or cannot be loaded.

*Functions over the rows of whole keys, for the merge mode ``Custom`` and ``apply`` of a read.*

A function takes a record batch: all rows of some row keys, sorted by row key, sort key and then arrival, with the
columns of the table's schema. It returns rows of the same schema in the same order. Core types: :class:`RowsFunction`,
a function and its name; :class:`WholeKeys`, which calls it over a sorted stream.

Rules. A function f has to satisfy f(f(A) + f(B)) = f(A + B), where A + B is A followed by B. This is the responsibility
of its author (:func:`lakebed.testing.merge_functions.check_merge_function` looks for counterexamples). Each call checks
that the result has the schema of the table, no null in a key or in a field that is not nullable, only row keys and sort
keys that the rows had, each at most once, in ascending order. A key with more rows than fit into one call is passed in
parts: first its oldest rows by sort key, then the result and further rows. So memory is bounded if results are, and a
key whose result has more than :data:`KEY_ROWS_MAX` rows or :data:`KEY_BYTES_MAX` is an error.

Errors: UsageError with the code MERGE_FUNCTION_FAILED, which names the function and the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import Code, Error
from lakebed.files.merging.aggregates import Groups
from lakebed.model import types
from lakebed.model.arrays import booleans, empty_batch, of_integers, recognise_pandas
from lakebed.model.foreign_errors import error_text, installed_function, translate_errors
from lakebed.model.merge_modes import Custom
from lakebed.model.validity import invalid, masked, unfilled

if TYPE_CHECKING:
    from lakebed.model.merge_modes import MergeMode
    from lakebed.model.schema import Schema

Function = Callable[[pa.RecordBatch], Any]

CALL_ROWS = 32_768
"""Rows of a call, unless a stream ends before: enough that the overhead of a call is small."""

CALL_BYTES = 16 * 1024 * 1024

KEY_ROWS_MAX = 100_000
KEY_BYTES_MAX = 64 * 1024 * 1024
"""Maximum rows and bytes of the result of one row key, if its rows are passed in parts."""


@dataclass(frozen=True, slots=True)
class RowsFunction:
    """A function over the rows of whole keys, and its name for messages.

    If it ``repeats``, it may return several rows with one row key and sort key: for rows that are not merged further.
    """

    name: str
    function: Function
    repeats: bool = False

    def __call__(self, rows: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
        """Return the checked result for rows of the schema. Raises MERGE_FUNCTION_FAILED."""
        try:
            result = self.function(rows)
        except Exception as error:
            raise self._raised(rows, schema, error) from error
        return self._checked_result(result, rows, schema)

    def failed(self, what: str, key: str = "") -> Error:
        """Return the error for a function that raises, or whose result is not allowed."""
        return Code.MERGE_FUNCTION_FAILED(
            f"the merge function {self.name} {what}{f' for {key}' if key else ''}; nothing was changed. "
            "lakebed.testing.merge_functions.check_merge_function tests it",
            name=self.name,
        )

    def _raised(self, rows: pa.RecordBatch, schema: Schema, error: Exception) -> Error:
        """Return the error that names the key for which the function raises, found by bisection."""
        groups = Groups.of(rows, schema.row_key_names)
        edges = [*groups.starts.tolist(), rows.num_rows]
        low, high = 0, groups.count
        while high - low > 1:
            middle = (low + high) // 2
            if self._raises(rows.slice(edges[low], edges[middle] - edges[low])):
                high = middle
            elif self._raises(rows.slice(edges[middle], edges[high] - edges[middle])):
                low = middle
            else:
                break
        key = _key_at(rows, edges[low], schema.row_key_names)
        if high - low > 1:
            key = f"keys from {key} to {_key_at(rows, edges[high] - 1, schema.row_key_names)}, called with all of them,"
        return self.failed(f"raised {type(error).__name__} ({error_text(error)})", key)

    def _raises(self, rows: pa.RecordBatch) -> bool:
        try:
            self.function(rows)
        except Exception:  # noqa: BLE001 - whatever it is
            return True
        return False

    def _checked_result(self, result: Any, rows: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
        first = _key_at(rows, 0, schema.row_key_names)
        if isinstance(result, pa.Table):
            result = _one_batch(result)
        if not isinstance(result, pa.RecordBatch):
            raise self.failed(f"gave {type(result).__name__}, not a record batch or a table,", first)
        difference = _difference(result.schema, rows.schema)
        if difference:
            raise self.failed(f"gave {difference}", first)
        # The table's own fields: those of the function may differ in nullability, order or metadata.
        result = pa.RecordBatch.from_arrays(
            [result.column(name) for name in rows.schema.names], names=rows.schema.names
        )
        if result.num_rows:
            self._check_keys(result, rows, schema)
        for field in schema.fields:
            column = result.column(field.name)
            if column.null_count and not field.nullable:
                row = int(np.flatnonzero(~booleans(column.is_valid()))[0])
                raise self.failed(f"gave null in {field.name}", _key_at(result, row, schema.row_key_names))
            with translate_errors(lambda error: self.failed(f"gave malformed values ({error_text(error)})", first)):
                flawed = invalid(column)
            if flawed is not None:
                row = int(np.flatnonzero(booleans(pc.fill_null(flawed, fill_value=False)))[0])
                key = _key_at(result, row, schema.row_key_names)
                raise self.failed(f"gave a value that is no {field.type} in {field.name}", key)
            lacking = unfilled(column, field.type) if field.has_required_members else None
            if lacking is not None:
                key = _key_at(result, pc.index(lacking, value=True).as_py(), schema.row_key_names)
                raise self.failed(f"gave null in a member of {field.name} that is not nullable", key)
        return pa.RecordBatch.from_arrays([masked(column) for column in result.columns], schema=rows.schema)

    def _check_keys(self, result: pa.RecordBatch, rows: pa.RecordBatch, schema: Schema) -> None:
        for name in schema.sort_names:
            if result.column(name).null_count:
                raise self.failed(f"gave null in {name}", _key_at(rows, 0, schema.row_key_names))
        if result.num_rows == rows.num_rows and all(
            result.column(name).equals(rows.column(name)) for name in schema.sort_names
        ):
            input_keys = result_keys = schema.order.encode_columns(result)
        else:
            input_keys, result_keys = schema.order.encode_columns(rows), schema.order.encode_columns(result)
            foreign = ~booleans(pc.is_in(result_keys, value_set=input_keys))
            if foreign.any():
                key = _key_at(result, int(np.flatnonzero(foreign)[0]), schema.sort_names)
                raise self.failed("gave a row with a key that no row had,", key)
        ordered = booleans(pc.less(result_keys.slice(0, len(result_keys) - 1), result_keys.slice(1)))
        if self.repeats:
            ordered |= booleans(pc.equal(result_keys.slice(0, len(result_keys) - 1), result_keys.slice(1)))
        if not ordered.all():
            row = int(np.flatnonzero(~ordered)[0])
            is_doubled = result_keys[row] == result_keys[row + 1]
            fault = "gave two rows" if is_doubled else "gave a row out of order (row key, then sort key) after the one"
            raise self.failed(fault, _key_at(result, row, schema.sort_names))


class WholeKeys:
    """Calls a function over a sorted stream, with all rows of a key in one call, or in consecutive parts."""

    def __init__(self, function: RowsFunction, schema: Schema, call_rows: int = CALL_ROWS) -> None:
        """A call gets about ``call_rows`` rows, unless a key has more."""
        self._function = function
        self._schema = schema
        self._call_rows = call_rows

    def merge(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the results, in key order; no batch is empty. Keeps one call's rows, and one key's result."""
        gathered: list[pa.RecordBatch] = []
        rows_due, bytes_due = self._call_rows, CALL_BYTES
        for batch in batches:
            if not batch.num_rows:
                continue
            gathered.append(batch)
            if sum(one.num_rows for one in gathered) < rows_due and sum(one.nbytes for one in gathered) < bytes_due:
                continue
            rows = pa.concat_batches(gathered)
            start = int(Groups.of(rows, self._schema.row_key_names).starts[-1])
            if start:
                yield from self._called(rows.slice(0, start))
                # Copied: a slice would keep the whole batch.
                gathered = [rows.take(of_integers(np.arange(start, rows.num_rows)))]
            else:
                gathered = list(self._called(rows))
                self._check_size(gathered)
            # Twice the rows that a key has left so far; otherwise a function would be called again for each batch of a
            # large key.
            rows_due = self._call_rows + 2 * sum(one.num_rows for one in gathered)
            bytes_due = CALL_BYTES + 2 * sum(one.nbytes for one in gathered)
        if gathered:
            yield from self._called(pa.concat_batches(gathered))

    def _called(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        result = self._function(rows, self._schema)
        if result.num_rows:
            yield result

    def _check_size(self, batches: list[pa.RecordBatch]) -> None:
        for rows in batches:
            if rows.num_rows > KEY_ROWS_MAX or rows.nbytes > KEY_BYTES_MAX:
                raise self._function.failed(
                    f"keeps {rows.num_rows:,} rows ({rows.nbytes:,} bytes) of one key; at most {KEY_ROWS_MAX:,} rows "
                    f"and {KEY_BYTES_MAX:,} bytes are allowed,",
                    _key_at(rows, 0, self._schema.row_key_names),
                )


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else empty_batch(table.schema)


def _key_at(rows: pa.RecordBatch, row: int, names: Iterable[str]) -> str:
    return f"key { ({name: rows.column(name)[row].as_py() for name in names}) }"


def _difference(actual: pa.Schema, wanted: pa.Schema) -> str:
    """Return the difference between the columns of a result and the expected ones; empty if there is none."""
    missing = [name for name in wanted.names if name not in actual.names]
    if missing:
        return f"no column {', '.join(missing)}"
    if len(actual.names) != len(wanted.names):
        unknown = [name for name in actual.names if name not in wanted.names]
        return f"a column {unknown[0]}, which the table does not have," if unknown else "a column twice"
    for field in wanted:
        if types.nullable_members(actual.field(field.name).type) != field.type:
            return f"{actual.field(field.name).type} in {field.name}, not {field.type},"
    return ""


GROUP = "lakebed.merge_functions"


def function_of(mode: Custom, schema: Schema) -> RowsFunction:
    """Return the function of a merge mode, over rows of the schema. Raises UsageError if it is not installed."""
    if mode.sql:
        from lakebed.files.merging.merge_query import evaluate

        return RowsFunction(f"sql={mode.sql!r}", partial(evaluate, mode.sql, schema))
    return installed(mode.name, mode.version)


def check(mode: MergeMode, schema: Schema) -> None:
    """Raise UsageError for a mode whose function is not installed here, or whose query does not fit the schema."""
    if not isinstance(mode, Custom):
        return
    if mode.sql:
        from lakebed.files.merging.merge_query import check_query

        check_query(mode.sql, schema)
    else:
        installed(mode.name, mode.version)


@lru_cache(maxsize=256)
def installed(name: str, version: int = 1) -> RowsFunction:
    """Return the function of an installed package. Raises UsageError with MERGE_FUNCTION_MISSING."""
    wanted = name if version == 1 else f"{name}.{version}"
    # Before the function is loaded: it may import pandas, at once or when it is called.
    recognise_pandas()
    function = installed_function(GROUP, wanted, "merge function", Code.MERGE_FUNCTION_MISSING)
    if function is None:
        names = ", ".join(sorted({point.name for point in entry_points(group=GROUP)})) or "none"
        raise Code.MERGE_FUNCTION_MISSING(
            f"no installed package has the merge function {wanted!r} (entry points of the group {GROUP} here: "
            f"{names}); install the package that declares it, on Spark workers as well",
            name=wanted,
        )
    return RowsFunction(repr(wanted), function)
