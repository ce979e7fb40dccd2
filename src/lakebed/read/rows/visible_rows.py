"""The predicate that a table's filter is for its reads. Errors: UsageError if it cannot be evaluated for a row.

A filter applies to the rows that are left after a merge, so a scan evaluates it together with the caller's predicate.
Reads of keys give few rows: these are read as if there were no filter, and filtered in memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.model.arrays import empty_table
from lakebed.model.keys import ALL_KEYS
from lakebed.model.state.sums import table_rows
from lakebed.model.state.visibility import unfiltered
from lakebed.read.rows.plan import plan

if TYPE_CHECKING:
    from lakebed.clock import Chance
    from lakebed.engine.predicate import Predicate
    from lakebed.model.state.table_state import TableState
    from lakebed.read.rows.plan import QueryPlan
    from lakebed.read.rows.reader import Reader

DRAWN_MIN = 64
SCANNED_SHARE = 8
"""If more than one row in eight would be drawn, a scan of all rows is cheaper than a page for each."""

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


def visible_sample(
    state: TableState, rows: int, columns: Sequence[str], reader: Reader, chance: Chance
) -> pa.Table | None:
    """As :func:`lakebed.read.rows.counting.sample`, of the visible rows.

    Rows are drawn from all, and hidden ones are dropped: that leaves every visible row equally likely. If too few are
    left, more are drawn anew; if most rows are hidden, all are scanned, first to count them.
    """
    from lakebed.read.rows.counting import sample

    def drawn_rows(bare: TableState, names: Sequence[str]) -> pa.Table:
        found = sample(bare, draw, names, reader, chance)
        assert found is not None, "fewer rows are drawn than there are"
        return found

    draw, draw_max = 2 * rows + DRAWN_MIN, table_rows(state).rows // SCANNED_SHARE
    while draw <= draw_max:
        drawn = visible_rows(state, columns, drawn_rows)
        if drawn.num_rows >= rows:
            return drawn.take(sorted(chance.sample(range(drawn.num_rows), rows)))
        draw *= 4
    visible = plan(state, [ALL_KEYS])
    with reader.scan(visible, visible.schema.row_key_names[:1], None) as keys:
        count = sum(batch.num_rows for batch in keys)
    if count <= rows:
        return None
    wanted = sorted(chance.sample(range(count), rows))
    found = [empty_table(visible.schema.arrow_of(columns))]
    begin = 0
    with reader.scan(visible, columns, None) as batches:
        for batch in batches:
            end = begin + batch.num_rows
            inside = wanted[bisect_left(wanted, begin) : bisect_left(wanted, end)]
            found.append(pa.Table.from_batches([batch.take(pa.array([place - begin for place in inside], pa.int64()))]))
            begin = end
    return pa.concat_tables(found)
