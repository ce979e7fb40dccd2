"""Positions of rows in sorted files: the rank of a key, and the rows of a key range.

The page index of a file gives the page that may hold a key. Its key columns are decoded and searched, so a rank, on
which counts and samples are based, costs one page.

A few bounds are searched one by one. Many bounds are searched together by Arrow and NumPy: each step probes several
rows for each bound, because a step costs the same for any number of rows up to thousands.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lakebed.files.parquet.page_decoder import RowSlice, read_columns, row_keys
from lakebed.files.parquet.pages import PagedFile, Spans
from lakebed.model.arrays import Integers, booleans, of_binary, of_integers
from lakebed.model.keys import EncodedRange

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.model.keys import KeyCodec

FEW_BOUNDS = 6
"""Among 1,000 rows, a search in Python takes about 30 us for one bound, and one for all bounds together 200 us."""

STEP_ROWS = 1_024


def rank(file: PagedFile, bound: bytes) -> int:
    """Return the number of rows of a file with a key below the bound; usually decodes one page."""
    fences, groups = file.footer.fences, file.footer.groups
    position = bisect_right(fences.ends, bound)
    passed = sum(group.rows for group in groups[:position])
    for reached in range(position, bisect_left(fences.starts, bound)):
        group = groups[reached]
        rows = range(group.rows)
        if file.footer.paged:
            known = file.key_pages(reached, group)
            pages = known.fences.reaching(EncodedRange(bound, bound))
            firsts = [*known.first_rows, group.rows]
            rows = range(firsts[pages.start], firsts[pages.stop] if pages else firsts[pages.start])
        passed += rows.start
        if rows:
            keys = row_keys(read_columns([RowSlice(file, reached, group, rows)], file.schema.row_key), file.schema)
            passed += file.schema.codec.lower_rank(keys, bound, 0, len(rows))
    return passed


def slices_at(file: PagedFile, positions: Sequence[int]) -> Iterator[RowSlice]:
    """Return the rows at these ascending positions of a file, as a slice for each row group that has any.

    A range must have step 1; its length does not matter.
    """
    passed = first = 0
    for position, group in enumerate(file.footer.groups):
        last = bisect_left(positions, passed + group.rows, first)
        if first < last and isinstance(positions, range):
            yield RowSlice(file, position, group, range(positions[first] - passed, positions[last - 1] + 1 - passed))
        elif first < last:
            inside = np.array(positions[first:last], np.int64) - passed
            yield RowSlice(file, position, group, Spans(inside, inside + 1))
        passed, first = passed + group.rows, last


def positions_within(
    columns: pa.RecordBatch, codec: KeyCodec, keys: EncodedRange, starts: Sequence[int]
) -> list[range]:
    """Return the rows with keys in a range, in each of several sorted parts of key columns.

    ``starts`` has the beginning of each part, and the end of the last.
    """
    bounds = [keys.min] if keys.max is None else [keys.min, keys.max]
    ends = np.array(starts)
    low, high = np.repeat(ends[:-1], len(bounds)), np.repeat(ends[1:], len(bounds))
    ranks = lower_ranks(columns, codec, bounds * (len(ends) - 1), low, high).reshape(-1, len(bounds))
    lows, highs = ranks[:, 0], ends[1:] if keys.max is None else ranks[:, 1]
    return [range(first, last) for first, last in zip(lows.tolist(), highs.tolist(), strict=True)]


def lower_ranks(
    keys: pa.RecordBatch, codec: KeyCodec, bounds: Sequence[bytes], low: Integers, high: Integers
) -> Integers:
    """Return for each encoded bound the first position in its ``[low, high)`` with a key not below it, or ``high``.

    ``keys`` are row key columns, which ascend between ``low`` and ``high``.
    """
    if len(bounds) < FEW_BOUNDS:
        ends = zip(bounds, low.tolist(), high.tolist(), strict=True)
        return np.array([codec.lower_rank(keys, bound, first, last) for bound, first, last in ends], np.int64)
    import pyarrow.compute as pc

    low, high = low.copy(), high.copy()
    wanted = of_binary(bounds)
    while len(active := np.flatnonzero(low < high)):
        probes = max(1, STEP_ROWS // len(bounds))
        begin, size = low[active, None], (high - low)[active, None]
        positions = begin + size * np.arange(1, probes + 1) // (probes + 1)
        found = codec.encode_columns(keys.take(of_integers(positions.ravel())))
        below = booleans(pc.less(found, wanted.take(of_integers(np.repeat(active, probes)))))
        # The keys ascend, so the probes below the bound come first.
        count = below.reshape(positions.shape).sum(axis=1)
        rows = np.arange(len(active))
        low[active] = np.where(count, positions[rows, count - 1] + 1, low[active])
        high[active] = np.where(count < probes, positions[rows, np.minimum(count, probes - 1)], high[active])
    return low
