"""Narrows a read to the key ranges in which rows may pass a predicate, by the bounds of columns in page indexes.

A file has the minimum and the maximum of a column in each page. The pages in which a value may pass lie at some rows,
and these in pages of the key, which have key ranges. A reader that reads these ranges, and evaluates the predicate on
each row, misses no row. Core types: :class:`BoundedColumns`, the conditions of a predicate on columns other than the
first key field; :func:`narrow`.

Rules:

* The result is key ranges, never rows: of a key, the rows of all files are read, or none. So a merge has all rows of a
  key, and a row that a newer one replaces is not shown because the page of the newer one was skipped;
* rows that a merge keeps as they are (``Latest``, ``First``) pass only if a stored row does. A merge that computes
  values is not narrowed. Of partial rows, the values of a merged row come from several, so that only one column of each
  alternative counts;
* a column without bounds, or with those of another type, may have any value. Statistics leave NaN out, so columns with
  a NaN have none (docs/format.md, section 7); null passes no condition that has ranges.

Errors: OSError if a page index is damaged. Source: docs/decisions/0073.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from lakebed.files.parquet.footer import BEYOND
from lakebed.model.key_types import key_type
from lakebed.model.keys import EncodedRange, KeyCodec, iter_ranges
from lakebed.read.rows.conditions import keys_of

if TYPE_CHECKING:
    from lakebed.engine.predicate import Predicate
    from lakebed.files.parquet.footer import RowGroup
    from lakebed.files.parquet.pages import PageBounds, PagedFile
    from lakebed.model.schema import Field, Schema

Truths = np.ndarray[Any, np.dtype[np.bool_]]

_SHARE_MAX = 0.5
"""A read of more of the rows is not narrowed: reading all of them at once costs less than many ranges do."""


class BoundedColumns(Struct, frozen=True):
    """The conditions of a predicate: in some of the ``boxes`` each column has a value in one of its ranges.

    A box has pairs of a column and its ranges, ascending and disjoint, in the encoding of a key of that field alone.
    """

    boxes: tuple[tuple[tuple[Field, Sequence[EncodedRange]], ...], ...]

    @classmethod
    def of(cls, where: Predicate, schema: Schema) -> BoundedColumns | None:
        """Return the conditions of a predicate; None if it can be true for any values of these columns."""
        # The engine, which parsed the predicate, is imported by now.
        from lakebed.read.rows.expressions import condition_of

        candidates = (*schema.row_key[1:], *schema.sort_key, *schema.values)
        fields = tuple(f for f in candidates if f.name in where.columns and key_type(f.type) is not None)
        if not fields:
            return None
        found = keys_of(condition_of(where.parts), KeyCodec(fields))
        if not all(found.boxes):
            return None
        return cls(tuple(tuple((fields[place], ranges) for place, ranges in box) for box in found.boxes))


def narrow(
    files: Sequence[PagedFile], keys: EncodedRange, columns: BoundedColumns, *, partial: bool, gap_rows: int
) -> list[EncodedRange]:
    """Return the parts of the key range in which rows of these overlapping files may pass, in key order.

    ``partial``: some rows may have only some of the values. Passing rows with fewer than ``gap_rows`` between them are
    read together. Counts the pages of keys that are left out.
    """
    found: list[EncodedRange] = []
    rows = rows_left = pages_left_out = 0
    for file in files:
        if not file.footer.paged:
            return [keys]
        _fetch_indexes(file, keys, columns)
        for position in file.footer.fences.reaching(keys):
            group = file.footer.groups[position]
            pages = file.key_pages(position, group)
            firsts = np.append(np.asarray(pages.first_rows, np.int64), group.rows)
            passes = np.zeros(len(firsts) - 1, bool)
            inside = pages.fences.reaching(keys)
            passes[inside.start : inside.stop] = _passing(file, position, group, firsts, columns, partial=partial)[
                inside.start : inside.stop
            ]
            rows += int(firsts[inside.stop] - firsts[inside.start]) if inside else 0
            for begin, end in _runs(passes, firsts, gap_rows):
                rows_left += int(firsts[end] - firsts[begin])
                pages_left_out -= end - begin
                high = pages.fences.ends[end - 1]
                found.append(keys.intersect(EncodedRange(pages.fences.starts[begin], None if high == BEYOND else high)))
            pages_left_out += len(inside)
    if rows_left > _SHARE_MAX * rows:
        return [keys]
    if files:
        files[0].statistics.pages_by_bounds += pages_left_out
    return list(iter_ranges(found))


def _passing(  # noqa: PLR0913 - which row group of which file, and for what
    file: PagedFile, position: int, group: RowGroup, firsts: Any, columns: BoundedColumns, *, partial: bool
) -> Truths:
    """Return for each page of keys, which begin at the rows ``firsts``, whether a row may pass."""
    passes = np.zeros(len(firsts) - 1, bool)
    for box in columns.boxes:
        here = np.ones(len(firsts) - 1, bool)
        for field, ranges in box[:1] if partial else box:
            bounds = file.page_bounds(position, group, field)
            if bounds is not None:
                here &= _of_rows(bounds, _meets(bounds, ranges), firsts)
        passes |= here
    return passes


def _meets(bounds: PageBounds, ranges: Sequence[EncodedRange]) -> Truths:
    """Return for each page of a column whether a value of it may lie in one of the ranges."""
    kind = bounds.lows.dtype
    minimums = np.array([keys.min for keys in ranges], kind)
    maximums = np.array([keys.max or b"" for keys in ranges], kind)
    endless = np.array([keys.max is None for keys in ranges])
    # Of ascending disjoint ranges, the last that begins up to the maximum reaches farthest.
    last = np.searchsorted(minimums, bounds.highs, side="right") - 1
    meets: Truths = (last >= 0) & (endless[last] | (bounds.lows < maximums[last])) & ~bounds.nulls
    return meets


def _of_rows(bounds: PageBounds, meets: Truths, firsts: Any) -> Truths:
    """Return for each of other pages whether some page with rows of it meets the condition."""
    counts = np.append(0, np.cumsum(meets))
    first = np.searchsorted(bounds.first_rows, firsts[:-1], side="right") - 1
    end = np.searchsorted(bounds.first_rows, firsts[1:], side="left")
    found: Truths = counts[end] > counts[first]
    return found


def _runs(passes: Truths, firsts: Any, gap_rows: int) -> Iterator[tuple[int, int]]:
    """Return the runs of successive pages that pass, joined where few rows lie between them."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], passes, [False]))))
    runs = edges.reshape(-1, 2).tolist()
    if not runs:
        return
    begin = runs[0][0]
    for (_, end), (following, _) in pairwise(runs):
        if firsts[following] - firsts[end] >= gap_rows:
            yield begin, end
            begin = following
    yield begin, runs[-1][1]


def _fetch_indexes(file: PagedFile, keys: EncodedRange, columns: BoundedColumns) -> None:
    """Fetch the page indexes of a file on a store in one round trip."""
    if not file.is_remote:
        return
    numbers = {field.id for box in columns.boxes for field, _ in box} | {field.id for field in file.schema.row_key}
    groups = [file.footer.groups[position] for position in file.footer.fences.reaching(keys)]
    chunks = [group.chunks[number] for group in groups for number in sorted(numbers) if number in group.chunks]
    indexes = [index for chunk in chunks for index in (chunk.offset_index, chunk.column_index) if index is not None]
    file.fetch_ahead(indexes)
