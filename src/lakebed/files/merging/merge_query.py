"""Queries as merge functions: ``Custom(sql="SELECT k, max(n) AS n FROM rows GROUP BY k")``.

The engine has only the table ``rows``, no functions whose result varies (random values, the time), and accepts only a
single query that reads. The result is cast to the types of the schema without loss, and sorted. Each thread has an
engine of its own, with one partition.

Errors: UsageError: MERGE_MODE_INVALID for a query that does not fit the schema, MERGE_FUNCTION_FAILED for one that
fails on rows.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakebed.engine.datafusion import ThreadSession, pieces, query_context, read_only
from lakebed.engine.stack import on_deep_stack
from lakebed.engine.value_sizes import fit_bounded
from lakebed.engine.workarounds.in_subqueries import Plans, with_comparisons
from lakebed.errors import Code, Error
from lakebed.model.arrays import empty_batch, of_integers
from lakebed.model.foreign_errors import error_text, translate_errors
from lakebed.model.row_kinds import ARRIVAL

if TYPE_CHECKING:
    from datafusion import SessionContext

    from lakebed.model.schema import Schema

_ROWS = "rows"
_engine = ThreadSession(query_context)
"""Sessions that have deterministic functions, aggregates and windows."""


def evaluate(text: str, schema: Schema, rows: pa.RecordBatch) -> pa.Table:
    """Return the result of the query over the rows, sorted, with their schema. Raises the engine's exceptions."""
    bounds = fit_bounded(text, "the query of the merge mode")
    result = _queried(bounds.text, rows) if bounds.flat else on_deep_stack(_queried, bounds.text, rows)
    # Present after SELECT *.
    result = result.drop_columns([ARRIVAL]) if ARRIVAL in result.column_names else result
    if result.num_columns > len(rows.schema) or not set(result.column_names) <= set(rows.schema.names):
        return result
    columns = [_as_type(result.column(field.name), field) for field in rows.schema if field.name in result.column_names]
    fields = [field for field in rows.schema if field.name in result.column_names]
    whole = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    keys = [(name, "ascending") for name in schema.sort_names if name in result.column_names]
    return whole.sort_by(keys) if keys else whole


def check_query(text: str, schema: Schema) -> None:
    """Raise UsageError if the query, run over no rows, shows that it cannot merge rows of the schema."""

    def refused(error: BaseException) -> Error:
        return Code.MERGE_MODE_INVALID(
            f"Custom(sql={text!r}) is not a query over the rows of a key: {error_text(error)}. The table is {_ROWS}; "
            f"its columns are {', '.join(schema.names)} and {ARRIVAL}"
        )

    with translate_errors(refused):
        result = evaluate(text, schema, empty_batch(schema.arrow))
    if sorted(result.column_names) != sorted(schema.names):
        missing = [name for name in schema.names if name not in result.column_names]
        difference = f"it has no column {', '.join(missing)}" if missing else f"it has {', '.join(result.column_names)}"
        raise Code.MERGE_MODE_INVALID(
            f"Custom(sql={text!r}) must give the columns {', '.join(schema.names)}, each once, and {difference}"
        )
    if result.num_rows:
        raise Code.MERGE_MODE_INVALID(
            f"Custom(sql={text!r}) gives a row without any rows: add GROUP BY {', '.join(schema.row_key_names)}"
        )


def _queried(text: str, rows: pa.RecordBatch) -> pa.Table:
    engine = _engine()
    numbered = rows.append_column(ARRIVAL, of_integers(np.arange(rows.num_rows)))
    engine.register_record_batches(_ROWS, [pieces(numbered)])
    try:
        compared = with_comparisons(text, (_ROWS,), partial(_planned, engine))
        return engine.sql_with_options(compared, read_only()).to_arrow_table()
    finally:
        engine.deregister_table(_ROWS)


def _planned(engine: SessionContext, text: str) -> Plans:
    with translate_errors(lambda error: Code.MERGE_MODE_INVALID(error_text(error))):
        return Plans.of(engine.sql_with_options(text, read_only()))


def _as_type(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"column {field.name} is {column.type}, and a value does not fit {field.type}: {error}"
        ) from error
