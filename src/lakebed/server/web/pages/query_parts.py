"""Parts of the query page: rows as a grid, and the statistics of a read as a funnel. Pure.

A grid takes the first rows of a stream and reads no batch beyond them. A read that takes too long ends with an error,
so that a page does not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakebed import clock
from lakebed.errors import Code
from lakebed.model.json_values import encode_rows
from lakebed.model.types import is_number
from lakebed.read.drawing.pictures import FunnelStep, bars_of
from lakebed.read.rows.explain import Explanation


@dataclass(frozen=True, slots=True)
class GridColumn:
    """A column; numbers are set to the right."""

    name: str
    type: str
    numeric: bool


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of values as JSON has them. ``more``: there are others that are not shown."""

    columns: tuple[GridColumn, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool
    seconds: float


def grid_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows_max: int, seconds_max: float) -> Grid:
    """Return the first rows. Reads no batch beyond them. Raises UsageError if they take too long."""
    began_s = clock.monotonic_s()
    rows: list[tuple[Any, ...]] = []
    for batch in batches:
        rows += encode_rows(batch.slice(0, rows_max + 1 - len(rows)))
        if len(rows) > rows_max:
            break
        if clock.monotonic_s() - began_s > seconds_max:
            raise Code.STATEMENT_LIMIT_EXCEEDED(
                f"the read takes longer than {seconds_max:g} s; ask for fewer keys, or a predicate on the key"
            )
    columns = tuple(GridColumn(field.name, str(field.type), is_number(field.type)) for field in schema)
    return Grid(columns, tuple(rows[:rows_max]), len(rows) > rows_max, clock.monotonic_s() - began_s)


@dataclass(frozen=True, slots=True)
class Funnel:
    """What a read took, and its bars from top to bottom, as wide as the logarithms of their counts."""

    took: Explanation
    bars: tuple[FunnelStep, ...]


def funnel_of(took: Explanation, partitions: int) -> Funnel:
    """Return the funnel of a read, of a table with this number of partitions."""
    return Funnel(took, bars_of(took.counts(partitions)))
