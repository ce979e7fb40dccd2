"""Merges rows with equal keys in a sorted stream, by the merge mode of a table.

Core types: :class:`RowMerger`, which reads the rows of several runs in one sorted stream and returns merged rows, batch
by batch. It keeps two batches in memory, however many rows a key has; for ``Custom`` see
:mod:`lakebed.files.merging.custom_functions`.

Rows come sorted by the keys of the merge schema (:func:`~lakebed.model.row_kinds.merge_schema`); rows with equal keys
in order of arrival.

Rules: a merge of *all* runs of a key is complete: it returns whole rows and drops deletes. A merge of some of them
keeps deletes, and partial rows without a whole row, because older runs may have the key.

Errors: SchemaMismatchError, which names the key, for an aggregate that overflows its column, and for an invalid sketch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import Code
from lakebed.files.merging.aggregates import NORMALIZING, DoesNotFit, Groups, NotASketch, combine, take_or_null
from lakebed.files.merging.custom_functions import WholeKeys, function_of
from lakebed.model.arrays import booleans
from lakebed.model.merge_modes import Aggregate, Custom, MergeMode
from lakebed.model.row_kinds import KIND, RowKind, is_hidden, presence_name

if TYPE_CHECKING:
    from lakebed.errors import Error
    from lakebed.files.merging.aggregates import Flags
    from lakebed.model.arrays import Integers
    from lakebed.model.schema import Schema


class RowMerger:
    """Merges rows of one schema. ``complete``: whether the merge has all runs of its keys."""

    def __init__(self, mode: MergeMode, schema: Schema, *, complete: bool) -> None:
        self._mode = mode
        self._schema = schema
        self._complete = complete
        self._key = mode.merge_key(schema)
        self._normalizing = isinstance(mode, Aggregate) and not NORMALIZING.isdisjoint(dict(mode.functions).values())

    def merge(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return one row for each key of the sorted rows; no batch is empty.

        Hidden columns are left out if the merge is complete.
        """
        if isinstance(self._mode, Custom):
            yield from WholeKeys(function_of(self._mode, self._schema), self._schema).merge(batches)
            return
        merged: pa.RecordBatch | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = batch
            if merged is not None:
                # The last key may have more rows in the next batch.
                if self._goes_on(merged, batch):
                    rows = pa.concat_batches([merged.slice(merged.num_rows - 1), batch])
                    merged = merged.slice(0, merged.num_rows - 1)
                yield from self._finished(merged)
            merged = self._merged(rows)
        if merged is not None:
            yield from self._finished(merged)

    def _goes_on(self, previous: pa.RecordBatch, batch: pa.RecordBatch) -> bool:
        """Return whether the first row of a batch has the key of the previous row."""
        ends = [rows.select(self._key) for rows in (previous.slice(previous.num_rows - 1), batch.slice(0, 1))]
        return Groups.of(pa.concat_batches(ends), self._key).count == 1

    def _merged(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if not self._key:
            return rows
        groups = Groups.of(rows, self._key)
        if groups.alone and not self._normalizing:
            return rows
        return self._aggregated(rows, groups) if isinstance(self._mode, Aggregate) else self._chosen(rows, groups)

    def _finished(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        dropped = [name for name in rows.schema.names if self._complete and is_hidden(name)]
        if self._complete and KIND in rows.schema.names:
            kinds = _kinds(rows)
            if (kinds == RowKind.DELETE).any():
                rows = rows.filter(pa.array(kinds != RowKind.DELETE))
        if rows.num_rows:
            yield rows.drop_columns(dropped) if dropped else rows

    def _chosen(self, rows: pa.RecordBatch, groups: Groups) -> pa.RecordBatch:
        """Return the merged row of each group, combined from several if there are partial rows."""
        if self._mode.kept == 0:
            return rows.take(pa.array(groups.starts))
        if KIND in rows.schema.names:
            kinds = _kinds(rows)
            if (kinds == RowKind.PARTIAL).any():
                return self._put_together(rows, groups, kinds)
        return rows.take(pa.array(groups.lasts))

    def _put_together(self, rows: pa.RecordBatch, groups: Groups, kinds: Integers) -> pa.RecordBatch:
        """Take each column from the last row of the group that has it. A whole row and a delete have all columns."""
        resets = kinds != RowKind.PARTIAL
        last_reset = groups.last_where(resets)
        merged_kinds = np.where(last_reset < 0, RowKind.PARTIAL, RowKind.WHOLE).astype(np.int8)
        merged_kinds = np.where(last_reset == groups.lasts, kinds[groups.lasts], merged_kinds)
        columns = {KIND: pa.array(merged_kinds, pa.int8())}
        for field in self._schema.values:
            if is_hidden(field.name):
                continue
            presence = presence_name(field)
            if field.name not in rows.schema.names and presence not in rows.schema.names:
                continue
            present = groups.last_where(resets | _present(rows, presence))
            if field.name in rows.schema.names:
                columns[field.name] = take_or_null(rows.column(field.name), present)
            if presence in rows.schema.names:
                columns[presence] = pa.array(present >= 0)
        lasts = pa.array(groups.lasts)
        arrays = [columns[f.name] if f.name in columns else rows.column(f.name).take(lasts) for f in rows.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)

    def _aggregated(self, rows: pa.RecordBatch, groups: Groups) -> pa.RecordBatch:
        assert isinstance(self._mode, Aggregate)
        functions = dict(self._mode.functions)
        starts = pa.array(groups.starts)
        arrays = []
        for field in rows.schema:
            column = rows.column(field.name)
            if field.name not in functions:
                arrays.append(column.take(starts))
                continue
            try:
                arrays.append(combine(functions[field.name], column, groups))
            except DoesNotFit as error:
                raise self._too_large(rows, groups, field, error) from None
            except NotASketch as error:
                key = self._key_of(rows, groups, error.group)
                raise Code.VALUE_INVALID(
                    f"column {field.name} of key {key}: {error.reason}", column=field.name
                ) from None
        return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)

    def _too_large(self, rows: pa.RecordBatch, groups: Groups, field: pa.Field, error: DoesNotFit) -> Error:
        assert isinstance(self._mode, Aggregate)
        key = self._key_of(rows, groups, error.group)
        return Code.AGGREGATE_TOO_LARGE(
            f"{dict(self._mode.functions)[field.name]} of column {field.name} reaches {error.value} for key {key}, "
            f"which {field.type} cannot hold; widen the column, or remove rows of the key",
            column=field.name,
        )

    def _key_of(self, rows: pa.RecordBatch, groups: Groups, group: int) -> dict[str, Any]:
        """Return the key of a group, for messages."""
        row = int(groups.starts[group])
        return {name: rows.column(name)[row].as_py() for name in self._key}


def _kinds(rows: pa.RecordBatch) -> Integers:
    kinds: Integers = pc.fill_null(rows.column(KIND), int(RowKind.WHOLE)).to_numpy(zero_copy_only=False)
    return kinds


def _present(rows: pa.RecordBatch, name: str) -> Flags:
    """Return a mask of the partial rows that have a value for a field. Sort keys are always present; a file has no
    presence column for a field that was added after it was written.
    """
    if name not in rows.schema.names:
        return np.ones(rows.num_rows, np.bool_)
    return booleans(pc.fill_null(rows.column(name), fill_value=False))
