"""The summary of a sorted file, noted while it is written.

A file's rows go by in order, so the lower rank of a key (rows with a smaller key) is the position of its first row:
known exactly and at once. Keys are noted at every ``stride``-th row; how many rows will come is not known, so when too
many are noted every second one is dropped and the stride doubles, which leaves between 1,024 and 2,048 at any time
and thins to :data:`~lakebed.summaries.SAMPLES_MAX` at the end. Beside them the ranks of given keys (*cuts*, the leaf
boundaries) are noted, which makes the row counts of references exact.

A key whose rows began in an earlier chunk keeps the rank it had there. Pure: no I/O.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakebed.keys import KeyCodec
from lakebed.summaries import SAMPLES_MAX, Summary

_ENCODE_ALL = 64
"""With more bounds than this in one chunk, encoding all its keys once is cheaper than a binary search for each."""


class RankNotes:
    """Notes of one file. ``cuts`` are ascending; only those above the file's first key and up to its last count."""

    def __init__(self, codec: KeyCodec, cuts: Sequence[bytes], *, rows_estimate: int) -> None:
        self.rows = 0
        self.min_key = b""
        self.max_key = b""
        self._codec = codec
        self._cuts = cuts
        self._next_cut = 0
        self._stride = max(1, rows_estimate // SAMPLES_MAX)
        # The rank of the last key so far: where its first row is.
        self._max_key_rank = 0
        self._notes: list[tuple[bytes, int]] = []
        self._cut_notes: list[tuple[bytes, int]] = []

    def add(self, keys: pa.Table) -> None:
        """Note the next rows. Requires row key columns, in order, in one chunk, at least one row."""
        first, last = self._codec.encode_row(keys, 0), self._codec.encode_row(keys, keys.num_rows - 1)
        if not self.rows:
            self.min_key = first
            self._next_cut = bisect_right(self._cuts, first)
        self._note_samples(keys)
        self._note_cuts(keys, last)
        local = self._codec.lower_ranks(keys, [last])[0]
        if not (local == 0 and self.rows and last == self.max_key):
            self._max_key_rank = self.rows + local
        self.max_key = last
        self.rows += keys.num_rows
        self._thin()

    def summary(self) -> Summary:
        """The summary of all rows added."""
        step = -(-len(self._notes) // SAMPLES_MAX)
        noted = dict(self._notes[::step] + self._cut_notes) if step else {}
        keys = tuple(sorted(noted))
        return Summary(keys, tuple(noted[key] for key in keys), self.rows, self.max_key)

    def _note_samples(self, keys: pa.Table) -> None:
        positions = np.arange(-self.rows % self._stride, keys.num_rows, self._stride)
        if not len(positions):
            return
        # Where the row before has another key, the position is the rank; that is all rows of most tables.
        wanted = self._encode(keys, positions)
        before = self._encode(keys, np.maximum(positions - 1, 0))
        for position, key, predecessor in zip(positions.tolist(), wanted, before, strict=True):
            if self._notes and self._notes[-1][0] == key:
                continue
            if position and predecessor != key:
                self._notes.append((key, self.rows + position))
                continue
            local = self._codec.lower_ranks(keys, [key])[0] if position else 0
            began_before = local == 0 and self.rows and key == self.max_key
            self._notes.append((key, self._max_key_rank if began_before else self.rows + local))

    def _encode(self, keys: pa.Table, positions: np.ndarray) -> list[bytes]:
        encoded: list[bytes] = self._codec.encode_columns(keys.take(pa.array(positions))).to_pylist()
        return encoded

    def _note_cuts(self, keys: pa.Table, last: bytes) -> None:
        end = bisect_right(self._cuts, last, self._next_cut)
        bounds = self._cuts[self._next_cut : end]
        if len(bounds) > _ENCODE_ALL:
            encoded = self._codec.encode_columns(keys).to_pylist()
            ranks = [bisect_left(encoded, bound) for bound in bounds]
        else:
            ranks = self._codec.lower_ranks(keys, bounds)
        # All of these are above the last key of the chunk before, so every earlier row counts.
        self._cut_notes += [(bound, self.rows + rank) for bound, rank in zip(bounds, ranks, strict=True)]
        self._next_cut = end

    def _thin(self) -> None:
        while len(self._notes) >= 2 * SAMPLES_MAX:
            self._notes = self._notes[::2]
            self._stride *= 2
