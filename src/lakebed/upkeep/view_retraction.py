"""What a view has once rows of its source have gone or changed. Pure: rows come from the caller.

The query of the view is applied to the rows that went as well as to those that came. Its results for the first are
*taken*, those for the second *added*. So of all rows that the query has made for a key, the view needs those without
the taken ones, and it stores only what its merge mode made of them. :func:`settled` computes the new rows of the keys
that were taken from, where the stored ones suffice:

* KeepAll: the stored rows, less one equal row for each taken one.
* Counts, and sums of integers and decimals: the difference. A sum that becomes 0 may be a sum of no values, which is
  null, so it does not suffice.
* ``min``, ``max``, ``any``, ``all``: the value itself, if it is not the one that was taken.
* All else, such as sums of floats, whose difference is not exact: only if nothing but nulls was taken.

A key vanishes if it has no rows left, which the column of a ``count(*)`` says, or the value of another column that is
known and not null. Of all other keys the rows have to be made *again*, from the rows that the source has now.

Errors: :class:`Unsettled`, if the stored rows are not those that the taken ones were among, or do not fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import Code, SchemaMismatchError
from lakebed.files.merging.row_merger import RowMerger
from lakebed.model.arrays import empty_table, plain
from lakebed.model.keys import by_bits
from lakebed.model.merge_modes import First, MergeMode
from lakebed.model.row_kinds import merge_schema

if TYPE_CHECKING:
    from lakebed.model.keys import KeyCodec
    from lakebed.model.schema import Schema

_COMPARED = frozenset({"min", "max", "any", "all"})
"""Functions whose result is one of the values, and stays while another value was taken."""


class Unsettled(Exception):  # noqa: N818 - it is caught at once, and the view is read anew
    """The stored rows and the changes do not say which rows the view has now."""


@dataclass(frozen=True)
class ViewRows:
    """The rows of a view: how those with equal keys are merged.

    ``row_counts`` are the columns with the number of rows of each group, ``constants`` those that all groups share.
    """

    schema: Schema
    mode: MergeMode
    row_counts: frozenset[str] = frozenset()
    counts: frozenset[str] = frozenset()
    constants: frozenset[str] = frozenset()

    @cached_property
    def codec(self) -> KeyCodec:
        """The key by which rows are merged, or if all are kept, sorted."""
        names = self.mode.merge_key(self.schema)
        return self.schema.codec if names == self.schema.row_key_names else self.schema.order

    def keys(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Return the encoded keys of rows."""
        return self.codec.encode_columns(rows)

    def table(self, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        """Return the rows as one table, in the same order."""
        held = list(batches)
        return pa.Table.from_batches(held) if held else empty_table(self.schema.arrow)

    def merged(self, rows: Sequence[pa.RecordBatch]) -> pa.Table:
        """Return rows, in order of arrival, as the mode merges them; sorted by key."""
        return self._merged(self.table(rows), self.mode)

    def taken(self, rows: Sequence[pa.RecordBatch]) -> pa.Table:
        """Return the merged rows that were taken; if the mode is no aggregate, one row for each key."""
        aggregates = self.mode.keeps_all or self.mode.functions_by_field
        return self._merged(self.table(rows), self.mode if aggregates else First())

    def _merged(self, rows: pa.Table, mode: MergeMode) -> pa.Table:
        if self.mode.keeps_all or not rows.num_rows:
            return rows
        # A stable sort: the position is part of the order.
        keys = pa.table({"key": self.keys(rows), "at": pa.array(range(rows.num_rows), pa.int64())})
        order = pc.sort_indices(keys, sort_keys=[("key", "ascending"), ("at", "ascending")])
        merger = RowMerger(mode, merge_schema(self.mode, self.schema, hidden=False), complete=True)
        return self.table(merger.merge(rows.take(order).combine_chunks().to_batches()))


@dataclass(frozen=True, slots=True)
class Settled:
    """The new rows of keys that were taken from, and the encoded keys whose rows have to be made again."""

    rows: pa.Table
    again: pa.Array


def having(rows: pa.RecordBatch, keys: pa.Array, wanted: pa.Array, *, among: bool = True) -> pa.RecordBatch:
    """Return the rows whose encoded key is among the wanted ones, or is not."""
    found = pc.is_in(keys, value_set=wanted)
    return rows.filter(found if among else pc.invert(found))


def settled(view: ViewRows, stored: pa.Table, taken: pa.Table, added: pa.Table) -> Settled:
    """Return the new rows of the keys that were taken from. All three tables have rows of these keys alone.

    ``taken`` is what :meth:`ViewRows.taken` returns, ``added`` in order of arrival. Raises Unsettled.
    """
    both = pa.concat_tables([stored, added])
    if view.mode.keeps_all:
        return Settled(_without_rows(both, taken), pa.array([], pa.binary()))
    keys = view.keys(taken)
    if not view.mode.functions_by_field:
        return Settled(stored.slice(0, 0), keys)
    try:
        merged = view.merged(both.to_batches())
        rows, known, gone = _differences(view, merged.take(pc.index_in(keys, value_set=view.keys(merged))), taken)
    except SchemaMismatchError as error:
        if error.code is not Code.AGGREGATE_TOO_LARGE:
            raise
        raise Unsettled(error.message) from error
    except pa.ArrowInvalid as error:
        raise Unsettled(str(error)) from error
    return Settled(rows.filter(known), keys.filter(pc.invert(pc.or_(known, gone))))


def _without_rows(rows: pa.Table, taken: pa.Table) -> pa.Table:
    """Return the rows without one equal row for each taken one."""
    left = Counter(_row_texts(taken))
    keep = []
    for text in _row_texts(rows):
        going = left[text] > 0
        keep.append(not going)
        if going:
            left[text] -= 1
    if any(left.values()):
        raise Unsettled("a row that went was never fed")
    return rows.filter(pa.array(keep, pa.bool_()))


def _row_texts(rows: pa.Table) -> Iterator[str]:
    """Return a text for each row, the same for the same values."""
    columns = [by_bits(column) for batch in (rows.combine_chunks().to_batches()) for column in batch.columns]
    return map(repr, zip(*(column.to_pylist() for column in columns), strict=True))


def _differences(view: ViewRows, both: pa.Table, taken: pa.Table) -> tuple[pa.Table, pa.Array, pa.Array]:
    """Return the rows without what was taken, a mask of those that are known, and one of those that are gone.

    ``both`` has a row for each taken one, in the same order; null in all columns if the view has none.
    """
    columns = {name: taken.column(name) for name in view.schema.sort_names}
    count = taken.num_rows
    known, there, gone = (pa.array([flag] * count, pa.bool_()) for flag in (True, False, False))
    for name, function in view.mode.functions_by_field.items():
        now, went = (plain(one.column(name).combine_chunks()) for one in (both, taken))
        columns[name] = both.column(name)
        if name in view.constants:
            continue
        if function in ("sum", "count") and not pa.types.is_floating(now.type):
            columns[name] = left = _subtracted(now, went)
            if name in view.counts:
                sure = pc.fill_null(pc.greater_equal(left, pa.scalar(0, left.type)), fill_value=False)
                proof = pc.fill_null(pc.greater(left, pa.scalar(0, left.type)), fill_value=False)
                if name in view.row_counts:
                    gone = pc.and_(sure, pc.invert(proof))
            else:
                sure = pc.or_(went.is_null(), _differ(now, went))
                proof = pc.and_(sure, left.is_valid())
        else:
            sure = pc.or_(went.is_null(), _differ(now, went)) if function in _COMPARED else went.is_null()
            proof = pc.and_(sure, now.is_valid())
        known, there = pc.and_(known, sure), pc.or_(there, proof)
    rows = pa.table([columns[field.name] for field in taken.schema], schema=taken.schema)
    return rows, pc.and_(pc.and_(known, there), pc.invert(gone)), gone


def _subtracted(now: pa.Array, went: pa.Array) -> pa.Array:
    """Return exact differences, a null that was taken being 0. Raises ArrowInvalid if one does not fit the type."""
    kind = now.type
    # The widest integers have 20 digits. Room for the sign of the difference is one more.
    wide = pa.decimal256(kind.precision + 1, kind.scale) if pa.types.is_decimal(kind) else pa.decimal256(21, 0)
    less = pc.fill_null(went.cast(wide), pa.scalar(0).cast(wide))
    return pc.subtract(now.cast(wide), less).cast(kind)


def _differ(now: pa.Array, went: pa.Array) -> pa.Array:
    """Return whether values surely differ: null and NaN are equal to all."""
    if pa.types.is_float16(now.type):
        now, went = now.cast(pa.float32()), went.cast(pa.float32())
    differ = pc.fill_null(pc.not_equal(now, went), fill_value=False)
    if pa.types.is_floating(now.type):
        for one in (now, went):
            differ = pc.and_(differ, pc.invert(pc.fill_null(pc.is_nan(one), fill_value=False)))
    return differ
