"""Finds the changes between two sorted streams of rows: rows that are in only one of them, and updated rows.

Both streams are read batch by batch and compared up to the last key that both have read completely. About two batches
of each are held, and at most HELD_BYTES_MAX of rows with one key. If there are more, the old rows are reported as
deletes and the new ones as inserts, which is always correct.

Two rows are the same if every column has the same value, null and NaN included. Floats are compared by their bits,
also in lists, structs and maps.
Source: a merge join.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.arrays import booleans, integers, of_binary, of_integers
from lakebed.model.key_columns import by_bits
from lakebed.read.changes.change_rows import ChangeKind

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from lakebed.model.arrays import Integers
    from lakebed.model.keys import KeyCodec

HELD_BYTES_MAX = 32 * 1024 * 1024
"""The rows of one key that are held of a side, if they are not merged by the key."""

Changed = tuple[pa.RecordBatch, pa.Array]
"""Rows, and the numbers of their kinds."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Sorted rows, and their encoded keys."""

    rows: pa.RecordBatch
    keys: pa.Array

    def __len__(self) -> int:
        count: int = self.rows.num_rows
        return count

    @classmethod
    def of(cls, rows: pa.RecordBatch, codec: KeyCodec) -> Rows:
        """Return rows with the columns of the codec's fields."""
        return cls(rows, codec.encode_columns(rows))

    def cut(self, count: int) -> tuple[Rows, Rows]:
        """Return the first rows, and the others."""
        first = Rows(self.rows.slice(0, count), self.keys.slice(0, count))
        return first, Rows(self.rows.slice(count), self.keys.slice(count))

    def key_at(self, position: int) -> bytes:
        """Return the key of a row."""
        key: bytes = self.keys[position].as_py()
        return key


class _Side:
    """One side: the rows that were read and are not compared yet, and those to be read."""

    def __init__(self, batches: Iterator[pa.RecordBatch], codec: KeyCodec) -> None:
        self._batches = batches
        self._codec = codec
        self._held: Rows | None = None
        self.ended = False

    def fill(self) -> None:
        """Read a batch, if there is one."""
        batch = next(self._batches, None)
        if batch is None:
            self.ended = True
            return
        read = Rows.of(batch, self._codec)
        if self._held is not None:
            read = Rows(pa.concat_batches([self._held.rows, read.rows]), pa.concat_arrays([self._held.keys, read.keys]))
        self._held = read if len(read) else self._held

    def start(self) -> None:
        """Read until a row is held, or none is left."""
        while self._held is None and not self.ended:
            self.fill()

    @property
    def last(self) -> bytes | None:
        """The last key that was read, whose rows may go on; None if all rows are read."""
        if self.ended:
            return None
        assert self._held is not None
        return self._held.key_at(len(self._held) - 1)

    @property
    def held_bytes(self) -> int:
        """The size of the held rows."""
        return 0 if self._held is None else self._held.rows.nbytes

    def below(self, bound: bytes | None) -> Rows | None:
        """Take the held rows with a smaller key, all if None; returns None if there are none."""
        return self._take(bound, through=False)

    def through(self, key: bytes) -> Iterator[Rows]:
        """Take all rows with a key that is not greater, batch by batch, reading what is left of them."""
        while (taken := self._take(key, through=True)) is not None:
            yield taken
            self.start()

    def _take(self, bound: bytes | None, *, through: bool) -> Rows | None:
        held = self._held
        if held is None:
            return None
        count = len(held)
        if bound is not None:
            count = (bisect_right if through else bisect_left)(range(count), bound, key=held.key_at)
        if not count:
            return None
        taken, left = held.cut(count)
        self._held = left if len(left) else None
        return taken


def differences(
    before: Iterator[pa.RecordBatch], after: Iterator[pa.RecordBatch], codec: KeyCodec, *, merged: bool
) -> Generator[Changed]:
    """Return the changes from one stream to the other, in key order; both are sorted by the codec's fields, and have
    them.

    If rows are ``merged``, a key with one row on each side was updated if they differ. Otherwise, and if a key has
    several rows, these are deletes and inserts.
    """
    sides = _Side(before, codec), _Side(after, codec)
    while True:
        for side in sides:
            side.start()
        lasts = [last for last in (side.last for side in sides) if last is not None]
        bound = min(lasts, default=None)
        past, present = (side.below(bound) for side in sides)
        if past is not None or present is not None:
            yield from _compared(past, present, merged=merged)
        elif bound is None:
            return
        elif max(side.held_bytes for side in sides) > HELD_BYTES_MAX:
            for side, kind in zip(sides, (ChangeKind.DELETE, ChangeKind.INSERT), strict=True):
                for taken in side.through(bound):
                    yield _all(taken, kind)
        else:
            # All held rows of a side have one key, which may have more rows.
            for side in sides:
                if side.last == bound:
                    side.fill()


def _compared(before: Rows | None, after: Rows | None, *, merged: bool) -> Iterator[Changed]:
    if after is None:
        if before is not None:
            yield _all(before, ChangeKind.DELETE)
    elif before is None:
        yield _all(after, ChangeKind.INSERT)
    else:
        found = _pairs(before, after, merged=merged)
        if found.num_rows:
            order = pc.sort_indices(found, [("key", "ascending"), ("kind", "ascending")])
            found = found.take(order)
            rows = pa.concat_batches([before.rows, after.rows])
            yield rows.take(found.column("row")), found.column("kind")


def _all(rows: Rows, kind: ChangeKind) -> Changed:
    return rows.rows, of_integers(np.full(len(rows), kind, np.int64))


def _pairs(before: Rows, after: Rows, *, merged: bool) -> pa.RecordBatch:
    """Return the changes, in no order: key, kind, and the position of the row among those of both sides."""
    doubled = _doubled(before, after)
    singles = [_positions(side.keys, doubled, among=False) for side in (before, after)]
    past, present = (side.keys.take(of_integers(some)) for side, some in zip((before, after), singles, strict=True))
    match = pc.index_in(past, value_set=present)
    paired = booleans(match.is_valid())
    ours, theirs = singles[0][paired], singles[1][integers(match.drop_null().cast(pa.int64()))]
    changed = ~_same_rows(before.rows.take(of_integers(ours)), after.rows.take(of_integers(theirs)))
    gone = singles[0][~paired]
    came = singles[1][~booleans(pc.is_in(present, value_set=past))]
    kinds = (ChangeKind.UPDATE_BEFORE, ChangeKind.UPDATE_AFTER) if merged else (ChangeKind.DELETE, ChangeKind.INSERT)
    more_gone, more_came = _unmatched(before, after, doubled)
    parts = [
        (ChangeKind.DELETE, before, gone, 0),
        (ChangeKind.DELETE, before, more_gone, 0),
        (kinds[0], before, ours[changed], 0),
        (kinds[1], after, theirs[changed], len(before)),
        (ChangeKind.INSERT, after, came, len(before)),
        (ChangeKind.INSERT, after, more_came, len(before)),
    ]
    keys = pa.concat_arrays([side.keys.take(of_integers(some)) for _, side, some, _ in parts])
    numbers = np.concatenate([np.full(len(some), kind, np.int64) for kind, _, some, _ in parts])
    rows = np.concatenate([some + offset for _, _, some, offset in parts])
    return pa.RecordBatch.from_arrays([keys, of_integers(numbers), of_integers(rows)], ["key", "kind", "row"])


def _positions(keys: pa.Array, some: Sequence[bytes], *, among: bool) -> Integers:
    """Return the positions of the keys that are among some, or are not."""
    if not some:
        return np.arange(0 if among else len(keys))
    found = booleans(pc.is_in(keys, value_set=of_binary(some)))
    return np.flatnonzero(found if among else ~found)


def _doubled(before: Rows, after: Rows) -> list[bytes]:
    """Return the keys that more than one row of a side has."""
    found: set[bytes] = set()
    for keys in (before.keys, after.keys):
        again = keys.slice(1).filter(pc.equal(keys.slice(1), keys.slice(0, len(keys) - 1)))
        found.update(again.to_pylist())
    return sorted(found)


def _unmatched(before: Rows, after: Rows, keys: Sequence[bytes]) -> tuple[Integers, Integers]:
    """Return the rows with one of these keys that the other side has fewer times, by position."""
    sides = [(side, _positions(side.keys, keys, among=True)) for side in (before, after)]
    texts = [_texts(side.rows.take(of_integers(some))) for side, some in sides]
    missing = [Counter(texts[0]), Counter(texts[1])]
    missing = [missing[0] - missing[1], missing[1] - missing[0]]
    found = []
    for (_, some), ours, left in zip(sides, texts, missing, strict=True):
        chosen = []
        for position, text in zip(some.tolist(), ours, strict=True):
            if left[text] > 0:
                left[text] -= 1
                chosen.append(position)
        found.append(np.array(chosen, np.int64))
    return found[0], found[1]


def _texts(rows: pa.RecordBatch) -> list[str]:
    """Return a text for each row, the same for the same values."""
    return [repr(row) for row in zip(*(column.to_pylist() for column in map(by_bits, rows.columns)), strict=True)]


def _same_rows(before: pa.RecordBatch, after: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return whether each row is the same on both sides."""
    same = np.ones(before.num_rows, np.bool_)
    for ours, theirs in zip(map(by_bits, before.columns), map(by_bits, after.columns), strict=True):
        if ours.equals(theirs):
            continue
        if pa.types.is_nested(ours.type):
            texts = zip(map(repr, ours.to_pylist()), map(repr, theirs.to_pylist()), strict=True)
            same &= np.array([one == other for one, other in texts], np.bool_)
            continue
        equal = pc.equal(ours, theirs)
        # Null if either side is null: then both are null, or the values differ.
        same &= booleans(pc.coalesce(equal, pc.and_(ours.is_null(), theirs.is_null())))
    return same
