"""Narrows a read to the key ranges in which rows may pass a predicate, by the bounds of columns in page indexes.

A file has the minimum and the maximum of a column in each page. The pages in which a value may pass lie at some rows,
and these in pages of the key, which have key ranges. A reader that reads these ranges, and evaluates the predicate on
each row, misses no row. Core types: :class:`BoundedColumns`, the conditions of a predicate on columns other than the
first key field; :func:`passing_ranges`.

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
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from lakebed.files.parquet.footer import BEYOND
from lakebed.model.key_types import key_type
from lakebed.model.keys import EncodedRange, KeyCodec, iter_ranges
from lakebed.read.rows.conditions import columns_of, keys_of
from lakebed.storage import telemetry

if TYPE_CHECKING:
    from lakebed.files.parquet.footer import RowGroup
    from lakebed.files.parquet.open_files import ByteRange
    from lakebed.files.parquet.pages import PageBounds, PagedFile
    from lakebed.model.schema import Field, Schema
    from lakebed.read.rows.conditions import Condition
    from lakebed.read.rows.request import ReadLimits, ReadRequest

Truths = np.ndarray[Any, np.dtype[np.bool_]]

_BOXES_MAX = 64
"""A condition of more alternatives is not used: each takes about 20 microseconds for a column of a row group."""


class BoundedColumns(Struct, frozen=True):
    """The ranges that a condition gives: in some of the ``boxes`` each column has a value in one of its ranges.

    A box has pairs of a column and its ranges, ascending and disjoint, in the encoding of a key of that field alone.
    """

    boxes: tuple[tuple[tuple[Field, Sequence[EncodedRange]], ...], ...]

    @classmethod
    def of(cls, condition: Condition, schema: Schema) -> BoundedColumns | None:
        """Return the ranges that a condition gives; None if it can be true for any values of these columns."""
        named = set(columns_of(condition))
        candidates = (*schema.row_key[1:], *schema.sort_key, *schema.values)
        fields = tuple(f for f in candidates if f.name in named and key_type(f.type) is not None)
        if not fields:
            return None
        found = keys_of(condition, KeyCodec(fields))
        if not all(found.boxes) or len(found.boxes) > _BOXES_MAX:
            return None
        return cls(tuple(tuple((fields[place], ranges) for place, ranges in box) for box in found.boxes))


def fetch_all(requests: Sequence[tuple[PagedFile, ReadRequest]], at_once: int) -> None:
    """Fetch the page indexes that :func:`passing_ranges` needs of files on a store, each file's in one round trip."""
    missing = [(file, _missing_indexes(file, request)) for file, request in requests if file.is_remote]
    fetched = [(file, indexes) for file, indexes in missing if indexes]
    if fetched:
        with ThreadPoolExecutor(min(at_once, len(fetched)), "lakebed-indexes") as threads:
            list(threads.map(telemetry.carry(_fetch), fetched))


def _fetch(one: tuple[PagedFile, Sequence[ByteRange]]) -> None:
    file, indexes = one
    file.fetch_ahead(indexes)


def passing_ranges(files: Sequence[PagedFile], request: ReadRequest, *, merged: bool) -> list[EncodedRange]:
    """Return the parts of the requested range in which rows of these overlapping files may pass, in key order.

    ``merged``: the rows of a key are merged. Returns the range itself if the parts have more than a share of the rows,
    if reading the parts one by one would cost more than reading all rows, or if a file has no pages. Counts the pages
    of keys that are left out.
    """
    columns, keys, limits = request.bounded, request.keys, request.limits
    assert columns is not None
    # A merged row may have its values of several partial rows.
    partial = merged and any(file.opened.file.markers for file in files)
    range_rows = _rows_a_range(files, limits)
    # Locally, pages between two ranges are read one by one, which costs more than a scan does.
    gap_rows = range_rows if any(file.is_remote for file in files) else limits.narrowed_rows
    found: list[EncodedRange] = []
    rows = rows_left = pages_left_out = 0
    for file in files:
        if not file.footer.paged:
            return [keys]
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
    ranges = list(iter_ranges(found))
    if rows_left > limits.narrowed_share * rows or (len(ranges) - 1) * range_rows > rows - rows_left:
        return [keys]
    if files:
        files[0].statistics.pages_by_bounds += pages_left_out
    return ranges


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


def _rows_a_range(files: Sequence[PagedFile], limits: ReadLimits) -> int:
    """Return how many rows have to be skipped so that one more range is worth it."""
    size_bytes = sum(file.opened.file.size_bytes for file in files)
    row_bytes = max(1, size_bytes // max(1, sum(file.opened.file.rows for file in files)))
    return max(limits.narrowed_rows, limits.narrowed_bytes // row_bytes)


def _missing_indexes(file: PagedFile, request: ReadRequest) -> list[ByteRange]:
    """Return where the page indexes are that are not in the read cache."""
    columns, footer = request.bounded, file.footer
    if columns is None or not footer.paged:
        return []
    fields = {field.id: field for box in columns.boxes for field, _ in box}
    return [
        index
        for position in footer.fences.reaching(request.keys)
        for index in file.missing_indexes(position, footer.groups[position], fields.values())
    ]
