"""The predicate that a table's filter is for its reads. Errors: UsageError if it cannot be evaluated for a row.

A filter applies to the rows that are left after a merge, so a scan evaluates it together with the caller's predicate.
Reads of keys give few rows: these are read as if there were no filter, and filtered in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec.structs import replace

from lakebed.model.merge_modes import KEEP_ALL
from lakebed.model.row_kinds import KIND, hidden_fields
from lakebed.model.schema import Schema
from lakebed.model.state.visibility import unfiltered

if TYPE_CHECKING:
    from lakebed.engine.predicate import Predicate
    from lakebed.model.state.table_state import TableState
    from lakebed.read.rows.plan import QueryPlan

Read = Callable[["TableState", Sequence[str]], pa.Table]
"""Reads some rows of a state, with these columns."""


def visible_where(planned: QueryPlan, where: Predicate | None = None) -> Predicate | None:
    """Return the predicate of those visible rows of a plan for which ``where`` is true; None if that is every row."""
    if planned.shows_all:
        return where
    from lakebed.engine.predicate import check_where

    return check_where(both(planned.shown.sql, None if where is None else where.text), planned.schema.arrow)


def both(shown: str, where: str | None) -> str:
    """Return the predicate, as a text, that is true for the rows for which both are."""
    return shown if where is None else f"({shown}\n) AND ({where}\n)"


def visible_rows(state: TableState, columns: Sequence[str] | None, read: Read) -> pa.Table:
    """Return the rows that ``read`` finds and the table's filter shows, with these columns, by default all."""
    schema = state.created
    names = schema.project(columns)
    sql = state.visibility.sql
    if not sql:
        return read(unfiltered(state), names)
    from lakebed.engine.predicate import check_where, keep

    predicate = check_where(sql, schema.arrow)
    rows = read(unfiltered(state), tuple(dict.fromkeys((*names, *predicate.columns))))
    shown = [keep(batch, predicate).select(list(names)) for batch in rows.to_batches()]
    return pa.Table.from_batches(shown, schema.arrow_of(names))


def raw_state(state: TableState) -> TableState:
    """Return the state of a table whose rows are those of all files, before any merge and filter, with their kinds."""
    schema = state.created
    if state.merge.takes_markers:
        kinds = [field for field in hidden_fields(schema) if field.name == KIND]
        schema = Schema(schema.row_key, schema.sort_key, (*schema.values, *kinds), version=schema.version)
    bare = unfiltered(state)
    return replace(bare, merge=KEEP_ALL, schemas=(*bare.schemas[:-1], schema))
