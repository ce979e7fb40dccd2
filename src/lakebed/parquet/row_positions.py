"""Positions of rows in a file: how many rows lie below a key, and where the rows of a key range are.

A sorted file with a page index answers without being read: the index says which page may hold a key, the key columns of
that page are decoded, and the key is searched for among them. So a rank, which counts and samples rest on, costs one
page.

For many bounds the steps of the search are Arrow's and NumPy's. Each step looks at several rows for each bound, since a
step costs the same for any number of rows up to thousands. A few bounds are searched for one by one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lakebed.model.arrays import Integers, booleans, of_binary, of_integers
from lakebed.model.keys import EncodedRange
from lakebed.parquet.page_decoder import Cut, read_columns, row_keys
from lakebed.parquet.pages import PagedFile, Spans

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.model.keys import KeyCodec

FEW_BOUNDS = 6
"""Among a thousand rows it takes some 30 us to search for one in Python, and for any number of them at once 200."""

STEP_ROWS = 1_024


def rank(file: PagedFile, bound: bytes) -> int:
    """How many rows of a file have a key below the bound: decodes one page, as a rule."""
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
            keys = row_keys(read_columns([Cut(file, reached, group, rows)], file.schema.row_key), file.schema)
            passed += file.schema.codec.lower_rank(keys, bound, 0, len(rows))
    return passed


def cuts_at(file: PagedFile, positions: Sequence[int]) -> Iterator[Cut]:
    """The rows at these ascending positions of a file, as a cut for each row group that has any.

    A range, of which each number counts, may be of any length.
    """
    passed = first = 0
    for position, group in enumerate(file.footer.groups):
        last = bisect_left(positions, passed + group.rows, first)
        if first < last and isinstance(positions, range):
            yield Cut(file, position, group, range(positions[first] - passed, positions[last - 1] + 1 - passed))
        elif first < last:
            inside = np.array(positions[first:last], np.int64) - passed
            yield Cut(file, position, group, Spans(inside, inside + 1))
        passed, first = passed + group.rows, last


def places_within(columns: pa.RecordBatch, codec: KeyCodec, keys: EncodedRange, starts: Sequence[int]) -> list[range]:
    """Where in sorted stretches of key columns the rows with such keys are.

    ``starts`` has where each stretch begins, and the end of the last.
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
    """For each encoded bound, the first place in ``[low, high)`` of a key that is not below it, or ``high``.

    ``keys`` are row key columns; between ``low`` and ``high`` they ascend, each bound with places of its own.
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
        # The keys ascend, so of the probes the first few are below the bound.
        count = below.reshape(positions.shape).sum(axis=1)
        rows = np.arange(len(active))
        low[active] = np.where(count, positions[rows, count - 1] + 1, low[active])
        high[active] = np.where(count < probes, positions[rows, np.minimum(count, probes - 1)], high[active])
    return low
