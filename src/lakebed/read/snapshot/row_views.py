"""Other views of a table's rows, for one read: ``raw`` and ``apply``.

*Raw.* :func:`raw_rows` returns a snapshot of the rows of all files as stored, before any merge of the read and before
the table's filter. Rows of a table with the mode ``Latest`` have a further column ``__lakebed_kind``: null or 0 for a
whole row, 1 for a partial row, whose missing columns are null, and 2 for a delete. Rows that a write or a compaction
has merged are one row. Rows with equal keys are in no particular order.

*Apply.* A merge function (:mod:`lakebed.files.merging.custom_functions`) is called over the merged rows that the
table's filter shows: :func:`applied_scan` and :func:`applied_rows`. It gets whole keys with all columns; predicate,
columns and limit apply to its result.

Errors: UsageError; those of :mod:`lakebed.files.merging.custom_functions` for the function.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import Code
from lakebed.model.checks import check_flag, shown
from lakebed.read.rows.plan import coarser, plan
from lakebed.read.rows.row_stream import RowStream, Unfiltered, filtered
from lakebed.read.rows.visible_rows import raw_state

if TYPE_CHECKING:
    from lakebed.engine.predicate import Predicate
    from lakebed.files.merging.custom_functions import Function, RowsFunction
    from lakebed.model.keys import EncodedRange
    from lakebed.read.snapshot.snapshot import Snapshot


def raw_rows(now: Snapshot) -> Snapshot:
    """Return the rows of all files, before any merge and filter."""
    return replace(now, reopening=None, state=raw_state(now.state))


def raw_choice(now: Snapshot, apply: Any, *, raw: Any, reverse: bool = False) -> Snapshot:
    """Return the snapshot, or that of its raw rows. Raises UsageError for options that exclude each other."""
    check_flag("raw", raw)
    if apply is not None and (raw or reverse):
        raise Code.ARGUMENTS_CONFLICT(
            f"apply calls a function over merged rows in key order: leave out {'raw' if raw else 'reverse'}"
        )
    return raw_rows(now) if raw else now


def viewed(
    now: Snapshot,
    read: Callable[[Snapshot, Sequence[str]], pa.Table],
    columns: Sequence[str] | None,
    apply: str | Function | None,
    *,
    raw: bool,
) -> pa.Table:
    """Return the rows that ``read`` finds by their keys: all rows of some keys, with some columns."""
    view = raw_choice(now, apply, raw=raw)
    names = view.schema.project(columns)
    return read(view, names) if apply is None else applied_rows(view, read(view, view.schema.names), apply, names)


def function_named(apply: str | Function) -> RowsFunction:
    """Return a function, or the installed one of that name: ``"highest"``, or ``"highest.2"`` for its second
    version.
    """
    from lakebed.files.merging.custom_functions import RowsFunction, installed

    if isinstance(apply, str):
        name, dot, version = apply.partition(".")
        if dot and not (version.isascii() and version.isdecimal()):
            raise Code.ARGUMENT_INVALID(f"apply = {shown(apply)}: a version is a number, as in 'highest.2'")
        return replace(installed(name, int(version or 1)), repeats=True)
    if not callable(apply):
        raise Code.ARGUMENT_INVALID(f"apply = {shown(apply)}: must be a function, or the name of an installed one")
    return RowsFunction(repr(getattr(apply, "__name__", type(apply).__name__)), apply, repeats=True)


def applied_scan(  # noqa: PLR0913 - the options of a scan
    now: Snapshot,
    ranges: Sequence[EncodedRange],
    apply: str | Function,
    *,
    where: str | None,
    names: Sequence[str],
    limit: int | None,
) -> RowStream:
    """Return the result of a function for the rows of the ranges, filtered by ``where``."""
    function, predicate = function_named(apply), None
    if where is not None:
        from lakebed.engine.predicate import check_where
        from lakebed.read.rows.conditions import narrow
        from lakebed.read.rows.expressions import condition_of

        predicate = check_where(where, now.schema.arrow)
        # A function returns rows only for the keys of its input, so only all rows of these keys are needed.
        narrower, _ = narrow(ranges, condition_of(predicate.parts), now.schema)
        planned = coarser(plan(now.state, narrower), ranges)
    else:
        planned = plan(now.state, ranges)
    rows = now.reader.scan(planned, now.schema.names, None)
    return RowStream(now.schema.arrow_of(names), selected(_called(function, now, rows), predicate, names, limit))


def applied_rows(now: Snapshot, rows: pa.Table, apply: str | Function, names: Sequence[str]) -> pa.Table:
    """Return the result of a function for rows in memory, which are all rows of some keys."""
    result = _called(function_named(apply), now, rows.to_batches())
    return pa.Table.from_batches(selected(result, None, names, None), now.schema.arrow_of(names))


def _called(function: RowsFunction, now: Snapshot, rows: Iterable[pa.RecordBatch]) -> Generator[pa.RecordBatch]:
    from lakebed.files.merging.custom_functions import WholeKeys

    try:
        yield from WholeKeys(function, now.schema).merge(rows)
    finally:
        if isinstance(rows, RowStream):
            rows.close()


def selected(
    batches: Generator[pa.RecordBatch], where: Predicate | None, names: Sequence[str], limit: int | None
) -> Generator[pa.RecordBatch]:
    """Return at most ``limit`` of the rows for which the predicate is true, with these columns."""
    rows_left = limit
    with closing(batches):
        if rows_left == 0:
            return
        for batch in batches if where is None else filtered(map(Unfiltered, batches), where):
            rows = batch.select(list(names)).slice(0, rows_left)
            if rows.num_rows:
                yield rows
            if rows_left is not None:
                rows_left -= rows.num_rows
                if rows_left == 0:
                    return
