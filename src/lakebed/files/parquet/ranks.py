"""Computes the key summary of a sorted file while it is written.

Rows arrive in order, so the lower rank of a key (the number of rows with a smaller key) is the position of its first
row, and its upper rank is the position after its last row. Keys are recorded at every ``stride``-th position. A key
with many rows is recorded once, with both ranks, so fewer rows than a stride lie between two recorded keys. When there
are too many, the stride doubles, and keys without one of its positions are dropped. At the end the stride is widened
until at most :data:`~lakebed.model.key_summaries.SAMPLES_MAX` keys are left. The ranks of given keys (*cuts*, the
partition boundaries) are recorded as well, which makes the row counts of references exact.

A key whose rows began in an earlier chunk keeps its rank from there. Core type: :class:`RankNotes`. Pure: no I/O.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import eq

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.key_summaries import SAMPLES_MAX, Summary
from lakebed.model.keys import KeyCodec, comparable, successor

_ENCODE_ALL = 64
"""With more bounds than this in one chunk, encoding all its keys once is cheaper than a binary search for each."""


class RankNotes:
    """The ranks of one file. ``cuts`` ascend; only those above its first key and up to its last are recorded."""

    def __init__(self, codec: KeyCodec, cuts: Sequence[bytes], *, rows_estimate: int) -> None:
        self.rows = 0
        self.min_key = b""
        self.max_key = b""
        self._codec = codec
        self._cuts = cuts
        self._next_cut = 0
        self._stride = 0
        self._rows_estimate = rows_estimate
        # The rank of the last key so far: the position of its first row.
        self._max_key_rank = 0
        # Of each recorded key, ascending: the start of its rows, and their end so far.
        self._notes: list[tuple[bytes, int, int]] = []
        self._cut_notes: list[tuple[bytes, int]] = []

    def add(self, keys: pa.Table) -> None:
        """Add the next rows. Requires row key columns, in order, in one chunk, with at least one row."""
        first, last = self._codec.encode_row(keys, 0), self._codec.encode_row(keys, keys.num_rows - 1)
        goes_on = self.rows > 0 and first == self.max_key
        if not self.rows:
            self.min_key = first
            # Too high an estimate must not make the stride too wide for the actual rows.
            self._stride = max(1, min(self._rows_estimate, keys.num_rows) // SAMPLES_MAX)
            self._next_cut = bisect_right(self._cuts, first)
        if goes_on and self._notes and self._notes[-1][0] == first:
            _, low, _ = self._notes.pop()
            above = successor(first)
            # Only the greatest possible key has no successor.
            count = keys.num_rows if above is None else self._ranks(keys, [above])[0]
            self._notes.append((first, low, self.rows + count))
        self._note_samples(keys)
        self._note_cuts(keys, last)
        if not (goes_on and last == first):
            self._max_key_rank = self.rows + self._ranks(keys, [last])[0]
        self.max_key = last
        self.rows += keys.num_rows
        while len(self._notes) >= 2 * SAMPLES_MAX:
            self._stride *= 2
            self._notes = _at_every(self._stride, self._notes)

    def summary(self) -> Summary:
        """Return the summary of all rows added."""
        step, notes = 1, self._notes
        while len(notes) > SAMPLES_MAX:
            step += 1
            notes = _at_every(step * self._stride, self._notes)
        noted = dict(self._cut_notes)
        for key, low, high in notes:
            noted[key] = low
            above = successor(key)
            if high - low > 1 and above is not None and above <= self.max_key:
                noted[above] = high
        keys = tuple(sorted(noted))
        return Summary(keys, tuple(noted[key] for key in keys), self.rows, self.max_key)

    def _note_samples(self, keys: pa.Table) -> None:
        count = keys.num_rows
        positions = np.arange(-self.rows % self._stride, count, self._stride)
        if not len(positions):
            return
        # If the neighbouring rows have other keys, the position gives both ranks, as for all rows of most tables.
        places = np.unique(np.clip(np.concatenate([positions - 1, positions, positions + 1]), 0, count - 1))
        encoded = self._encode(keys, places)
        wanted = [encoded[place] for place in np.searchsorted(places, positions).tolist()]
        begins, ends = positions, positions + 1
        if any(map(eq, encoded, encoded[1:])):
            edges = _edges(keys)
            at = np.searchsorted(edges, positions, side="right")
            begins, ends = edges[at - 1], edges[at]
        known = self._notes[-1][0] if self._notes else None
        for key, begin, end in zip(wanted, begins.tolist(), ends.tolist(), strict=True):
            if key == known:
                continue
            began_before = begin == 0 and self.rows and key == self.max_key
            low = self._max_key_rank if began_before else self.rows + begin
            self._notes.append((key, low, self.rows + end))
            known = key

    def _encode(self, keys: pa.Table, positions: np.ndarray) -> list[bytes]:
        encoded: list[bytes] = self._codec.encode_columns(keys.take(pa.array(positions))).to_pylist()
        return encoded

    def _note_cuts(self, keys: pa.Table, last: bytes) -> None:
        end = bisect_right(self._cuts, last, self._next_cut)
        bounds = self._cuts[self._next_cut : end]
        # All of these are above the last key of the previous chunk, so all earlier rows are below them.
        self._cut_notes += [(b, self.rows + rank) for b, rank in zip(bounds, self._ranks(keys, bounds), strict=True)]
        self._next_cut = end

    def _ranks(self, keys: pa.Table, bounds: Sequence[bytes]) -> list[int]:
        """Return for each of these ascending bounds the number of rows of the chunk with a smaller key."""
        if len(bounds) <= _ENCODE_ALL:
            return self._codec.lower_ranks(keys, bounds)
        encoded = self._codec.encode_columns(keys).to_pylist()
        return [bisect_left(encoded, bound) for bound in bounds]


def _edges(keys: pa.Table) -> np.ndarray:
    """Return the position of the first row of each key, and the end."""
    changes = np.zeros(keys.num_rows - 1, bool)
    for column in keys.columns:
        values = comparable(column.chunk(0))
        changes |= pc.not_equal(values[1:], values[:-1]).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.flatnonzero(changes) + 1, [keys.num_rows]])


def _at_every(stride: int, notes: Sequence[tuple[bytes, int, int]]) -> list[tuple[bytes, int, int]]:
    """Return the recorded keys with a row at a multiple of the stride."""
    return [note for note in notes if -(-note[1] // stride) * stride < note[2]]
