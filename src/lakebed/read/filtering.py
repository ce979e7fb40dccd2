"""Predicates over the rows of many small reads: asked of many of them at once.

To plan a predicate takes the engine far longer than to evaluate it over a few rows, and longer the longer it is. A
predicate of 1,000 alternatives comes with as many key ranges, each of which is a read of a few rows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from lakebed.engine.predicate import Predicate

ROWS_MAX = 16_384
"""Rows that wait for the predicate, at most; with more of them, planning is a small part of the work."""

BYTES_MAX = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Unfiltered:
    """Rows of which the predicate was not asked yet."""

    rows: pa.RecordBatch


def filtered(batches: Iterator[pa.RecordBatch | Unfiltered], where: Predicate | None) -> Generator[pa.RecordBatch]:
    """The rows of which the predicate is true, in their order; those that are no :class:`Unfiltered` are known to be.

    The first rows are asked at once, for those who want a few; then ever more at a time.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    reads_max = 1
    for one in batches:
        if isinstance(one, Unfiltered):
            waiting.append(one.rows)
            rows += one.rows.num_rows
            size_bytes += one.rows.nbytes
            if len(waiting) < reads_max and rows < ROWS_MAX and size_bytes < BYTES_MAX:
                continue
            reads_max *= 2
        if waiting:
            yield _kept(waiting, where)
            waiting, rows, size_bytes = [], 0, 0
        if not isinstance(one, Unfiltered):
            yield one
    if waiting:
        yield _kept(waiting, where)


def _kept(waiting: list[pa.RecordBatch], where: Predicate | None) -> pa.RecordBatch:
    from lakebed.engine.predicate import keep

    assert where is not None
    return keep(pa.concat_batches(waiting), where)


def exactly(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the schema's columns and exact types: an engine has its own layouts of some, and no field ids."""
    if rows.schema == schema:
        return rows
    columns = []
    for field in schema:
        column = rows.column(field.name)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
