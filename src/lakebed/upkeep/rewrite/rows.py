"""Applies a rewrite to rows in memory: deletes some, and sets value columns of others.

Core type: :class:`RowRewriter`. Rules: rows keep their order; new values are computed from the old row, only for
changed rows, and must fit the schema as in a write.

Errors: SchemaMismatchError and UsageError, of a value that does not fit or cannot be computed, name the row's key.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.assignments import Assignment, assigned, check_assignments
from lakebed.engine.predicate import Predicate, check_where, is_true
from lakebed.errors import Error, SchemaMismatchError, UsageError
from lakebed.files.parquet.row_positions import lower_ranks
from lakebed.model.arrays import booleans
from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.model.row_kinds import KIND, RowKind
from lakebed.model.schema import Schema
from lakebed.write.conformer import Conformer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.upkeep.rewrite.plan import RowChange

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(slots=True)
class RowCounts:
    """The numbers of rows read, deleted, and matched by ``where``, and of deletes (tombstones) that were dropped."""

    rows: int = 0
    deleted: int = 0
    changed: int = 0
    deletes: int = 0


@dataclass(frozen=True)
class RowRewriter:
    """Applies a change to batches of rows, which have the fields of ``schema`` and are sorted by key.

    The constructor raises UsageError or SchemaMismatchError for a predicate or an expression that does not fit.
    """

    change: RowChange
    schema: Schema
    value_bytes_max: int
    counts: RowCounts = field(default_factory=RowCounts)

    @cached_property
    def delete_where(self) -> Predicate | None:
        """The checked predicate of deleted rows."""
        text = self.change.delete_where
        return None if text is None else check_where(text, self.schema.arrow)

    @cached_property
    def where(self) -> Predicate | None:
        """The checked predicate of changed rows."""
        return None if self.change.where is None else check_where(self.change.where, self.schema.arrow)

    @cached_property
    def concerned(self) -> Predicate | None:
        """The checked predicate of rows that may change."""
        text = self.change.concerned
        return None if text is None else check_where(text, self.schema.arrow)

    @cached_property
    def assignments(self) -> tuple[Assignment, ...]:
        """The checked expressions."""
        return check_assignments(dict(self.change.changes), self.schema)

    @cached_property
    def _conformer(self) -> Conformer:
        casts = frozenset(one.column for one in self.assignments)
        return Conformer(self.schema, casts=casts, value_bytes_max=self.value_bytes_max)

    def check(self) -> None:
        """Check predicates and expressions; reads no row."""
        _ = self.delete_where, self.where, self.concerned, self.assignments

    def narrow(self) -> Schema:
        """Return the schema of the keys and of all fields that the expressions name and assign."""
        predicates = [one for one in (self.delete_where, self.where, self.concerned) if one is not None]
        used = {name for one in predicates for name in one.columns}
        used |= {name for one in self.assignments for name in (one.column, *one.named)}
        used |= {name for f in self.schema.generated for name in f.inputs}
        values = tuple(f for f in self.schema.values if f.name in used or f.name == KIND)
        return Schema(self.schema.row_key, self.schema.sort_key, values, version=self.schema.version)

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the remaining rows, in their order, with their new values; adds to the counts."""
        self.counts.rows += rows.num_rows
        inside = _mask_of_ranges(rows, self.change.ranges, self.schema)
        if not inside.any():
            return rows
        if self.delete_where is not None:
            # A delete goes with the rows of its key that it hides: nothing else erases the key it has.
            going = inside & _mask(rows, self.delete_where)
            deletes = int((going & _deletes(rows)).sum())
            self.counts.deletes += deletes
            self.counts.deleted += int(going.sum()) - deletes
            rows, inside = rows.filter(pa.array(~going)), inside[~going]
        if not self.assignments or not rows.num_rows:
            return rows
        chosen = inside if self.where is None else inside & _mask(rows, self.where)
        self.counts.changed += int(chosen.sum())
        return self._changed(rows, chosen) if chosen.any() else rows

    def _changed(self, rows: pa.RecordBatch, chosen: Mask) -> pa.RecordBatch:
        selected = rows.filter(pa.array(chosen))
        values = self._values(selected)
        places = np.arange(rows.num_rows)
        places[chosen] = rows.num_rows + np.arange(selected.num_rows)
        taken = pa.array(places)
        names = {one.column for one in self.assignments}
        columns = [
            pa.concat_arrays([rows.column(f.name), values.column(f.name)]).take(taken)
            if f.name in names
            else rows.column(f.name)
            for f in self.schema.fields
        ]
        return pa.RecordBatch.from_arrays(columns, schema=rows.schema)

    def _values(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with their new values, of the schema's types. Raises errors that name the key of a row."""
        try:
            return self._conformer.conform(assigned(rows, self.assignments), "rewrite")
        except (SchemaMismatchError, UsageError):
            row = rows.slice(self._first_failing(rows), 1)
        row_name = f"the row with key {tuple(row.select(self.schema.row_key_names).to_pylist()[0].values())!r}"
        try:
            return self._conformer.conform(assigned(row, self.assignments), row_name)
        except (SchemaMismatchError, UsageError) as error:
            text = error.message if row_name in error.message else f"{row_name}: {error.message}"
            raise error.restated(f"{text}. Nothing was changed") from error.__cause__

    def _first_failing(self, rows: pa.RecordBatch) -> int:
        low, high = 0, rows.num_rows
        while high - low > 1:
            middle = (low + high) // 2
            try:
                self._conformer.conform(assigned(rows.slice(low, middle - low), self.assignments), "rewrite")
                low = middle
            except Error:
                high = middle
        return low


def _mask(rows: pa.RecordBatch, predicate: Predicate) -> Mask:
    return booleans(pc.fill_null(is_true(rows, predicate), fill_value=False))


def _deletes(rows: pa.RecordBatch) -> Mask:
    """Return a mask of the rows that are deletes, which contain only a key."""
    if KIND not in rows.schema.names:
        return np.zeros(rows.num_rows, np.bool_)
    return booleans(pc.fill_null(pc.equal(rows.column(KIND), RowKind.DELETE.value), fill_value=False))


def _mask_of_ranges(rows: pa.RecordBatch, ranges: Sequence[EncodedRange], schema: Schema) -> Mask:
    """Return a mask of the rows, sorted by key, in one of the ranges, which are disjoint and in key order."""
    if ranges[0] == ALL_KEYS or not rows.num_rows:
        return np.ones(rows.num_rows, np.bool_)
    mask = np.zeros(rows.num_rows, np.bool_)
    codec = schema.codec
    low, high = codec.encode_row(rows, 0), codec.encode_row(rows, rows.num_rows - 1)
    begin = max(0, bisect_right(ranges, low, key=lambda keys: keys.min) - 1)
    reached = ranges[begin : bisect_right(ranges, high, key=lambda keys: keys.min)]
    bounds = [bound for keys in reached for bound in (keys.min, keys.max) if bound is not None]
    if not bounds:
        return mask
    count = len(bounds)
    ends = lower_ranks(
        rows.select(list(schema.row_key_names)),
        codec,
        bounds,
        np.zeros(count, np.int64),
        np.full(count, rows.num_rows, np.int64),
    ).tolist()
    for position in range(0, len(ends), 2):
        # The last range may have no end.
        stop = ends[position + 1] if position + 1 < len(ends) else rows.num_rows
        mask[ends[position] : stop] = True
    return mask
