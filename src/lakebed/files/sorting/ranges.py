"""Divides rows in no order by ranges of keys, and sorts the rows of a range: a sort of any size, in two steps.

    divide          chunks of rows in order of arrival -> pieces: the rows of one range, in order of arrival
    sorted_range    all pieces of a range, in order of arrival -> its rows in order

The steps may run in different processes: pieces of all ranges together are the rows, and the ranges one after another
are in order. A row is moved twice, within memory that the processor's cache holds if ranges are small, and is compared
with others only if their keys agree in eight bytes (:mod:`lakebed.files.sorting.key_words`). Nothing is merged.

The rows of a chunk are counted and moved by range at once: for each row the number of its range is found by binary
search of its word among those of the cuts. Ranges are exact. Rows with the word of a cut are placed by the words
that follow.

Core types: :class:`KeyRanges`; :func:`divide`, :func:`sorted_range`.

Rules. Pure: no I/O. Requires rows in the form of their schema, without nulls in keys. Memory: the functions hold what
they are given, one copy of it, and about 30 bytes a row; keys of several lengths are copied as well.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from operator import eq
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakebed.files.sorting.key_words import WORD_BYTES, KeyWords, ascending, key_words
from lakebed.model.arrays import of_integers
from lakebed.model.keys import ALL_KEYS, EncodedRange

if TYPE_CHECKING:
    from lakebed.model.arrays import Integers
    from lakebed.model.schema import Field, Schema

Numbers = np.ndarray[Any, np.dtype[np.unsignedinteger[Any]]]


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """Ranges of keys, numbered in their order: ``cuts`` ascend, and each begins a range.

    A cut is a bound of the keys of ``fields`` (:class:`~lakebed.model.keys.KeyCodec`): the encoding of a key or of its
    first fields, or a separator between keys.
    """

    fields: tuple[Field, ...]
    cuts: tuple[bytes, ...] = ()

    def __len__(self) -> int:
        return len(self.cuts) + 1

    def keys(self, number: int) -> EncodedRange:
        """Return the keys of a range."""
        edges = (ALL_KEYS.min, *self.cuts, ALL_KEYS.max)
        begin = edges[number]
        assert begin is not None
        return EncodedRange(begin, edges[number + 1])

    def number(self, key: bytes) -> int:
        """Return the range of an encoded key."""
        return bisect_right(self.cuts, key)

    def numbers(self, rows: pa.RecordBatch) -> Numbers:
        """Return the range of each row, in the narrowest type: NumPy sorts up to 16 bits by counting."""
        found: Numbers = np.zeros(rows.num_rows, np.min_scalar_type(len(self.cuts)))
        if not self.cuts or not rows.num_rows:
            return found
        keys = key_words(rows, self.fields)
        pending = [_RangeSearch(None, 0, len(self.cuts), 0)]
        while pending:
            pending += self._search(keys, pending.pop(), found)
        return found

    def _search(self, keys: KeyWords, search: _RangeSearch, found: Numbers) -> Iterator[_RangeSearch]:
        """Set the numbers of some rows, by words at a position; return the searches of those that words leave open."""
        end = search.begin + WORD_BYTES
        cuts = self.cuts[search.first : search.last]
        cut_words = np.array(
            [int.from_bytes(cut[search.begin : end].ljust(WORD_BYTES, b"\0"), "big") for cut in cuts], np.uint64
        )
        words = keys.words(search.begin, search.rows)
        if cut_words[0] == cut_words[-1] and min(map(len, cuts)) >= end and (words == cut_words[0]).all():
            # Of long keys that begin alike.
            yield replace(search, begin=end)
            return
        # A cut that ends here is not above a key with its word: the key has these bytes, and goes on.
        below = np.searchsorted(cut_words, words, side="right")
        found[slice(None) if search.rows is None else search.rows] = search.first + below
        goes_on = np.array([False, *(len(cut) > end for cut in cuts)])
        if not goes_on.any():
            return
        last_words = np.concatenate([cut_words[:1], cut_words])
        equal = np.flatnonzero(goes_on[below] & (last_words[below] == words))
        for last, places in _by_value(below[equal]):
            first = int(np.searchsorted(cut_words, cut_words[last - 1]))
            chosen = equal[places]
            yield _RangeSearch(
                chosen if search.rows is None else search.rows[chosen], search.first + first, search.first + last, end
            )


@dataclass(frozen=True, slots=True)
class _RangeSearch:
    """Rows, None for all, that agree with the cuts ``[first, last)`` in the first ``begin`` bytes."""

    rows: Integers | None
    first: int
    last: int
    begin: int


def _by_value(values: Integers) -> Iterator[tuple[int, Integers]]:
    """Return each of the values, which are not negative, with where it is."""
    if not len(values):
        return
    order = np.argsort(values.astype(np.min_scalar_type(int(values.max()))), kind="stable")
    ordered = values[order]
    edges = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(order)]
    for begin, end in pairwise(edges):
        yield int(ordered[begin]), order[begin:end]


def divide(chunk: pa.Table, ranges: KeyRanges) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Return the rows of each range, in ascending order of the ranges; within one in the order of the chunk. No piece
    is empty.

    The pieces are slices of one copy of the chunk. Requires at most 2 GiB of rows.
    """
    if not chunk.num_rows:
        return
    rows = whole(chunk)
    del chunk
    numbers = ranges.numbers(rows)
    ends = np.cumsum(np.bincount(numbers, minlength=len(ranges))).tolist()
    if (numbers[1:] < numbers[:-1]).any():
        rows = rows.take(of_integers(np.argsort(numbers, kind="stable")))
    begin = 0
    for number, end in enumerate(ends):
        if end > begin:
            yield number, rows.slice(begin, end - begin)
        begin = end


def sorted_range(
    pieces: Sequence[pa.RecordBatch], schema: Schema, keys: EncodedRange = ALL_KEYS, *, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a range in order of row key, then sort key; rows with equal keys in the order of the pieces.

    ``pieces``, of the schema's columns, are all that the range has. ``keys`` are its bounds: keys of the first fields
    are enough. A batch has ``batch_rows``, the last one fewer. Requires at most 2 GiB of rows.
    """
    if not pieces:
        return
    rows = pa.concat_batches(pieces)
    del pieces
    fields = tuple(schema.by_name[name] for name in schema.sort_names)
    # All keys between two bounds begin with what both begin with.
    agreed = sum(1 for _ in takewhile(bool, map(eq, keys.min, keys.max or b"")))
    order = ascending(key_words(rows, fields), agreed)
    places = of_integers(order)
    for begin in range(0, len(places), batch_rows):
        yield rows.take(places.slice(begin, batch_rows))


def whole(table: pa.Table) -> pa.RecordBatch:
    """Return a table that has rows as one batch."""
    (rows,) = table.combine_chunks().to_batches()
    return rows
