"""Reads encoded keys as integers of eight bytes, and sorts rows by them.

The *word* of a key at a position is the big-endian number of the eight bytes of its encoding
(:mod:`lakebed.model.keys`) from there on, with zeros after the end. Words are in the order of the keys that agree
before the position. So a few integers of each row take the place of comparisons of bytes:

* the words of all rows at one position are one array, which NumPy sorts and searches with vector instructions;
* only rows with equal words are looked at again, by the words that follow.

If the encodings of all rows have the same length, which those of numbers, times and texts of one length have, a word is
read where the value lies, and nothing is encoded. Otherwise the keys are encoded first.

Core types: :class:`KeyWords`; :func:`key_words` makes them; :func:`ascending` sorts, within :func:`chunk_limits`. Pure:
no I/O.

Source: most-significant-digit radix sort, with a comparison sort for each digit (Bentley and McIlroy's multikey
quicksort is the same idea).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from lakebed.model.arrays import Integers
from lakebed.model.byte_keys import TERMINATOR
from lakebed.model.key_type import Bytes, FixedWidth
from lakebed.model.keys import KeyCodec

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.model.schema import Field

WORD_BYTES = 8

_ROW_BYTES = 120
"""The share of the memory limit that is counted for each row of a sort or a division. Words and positions take 30 to 40
bytes a row, which is more than rows of few columns have."""

_CHUNK_BYTES_MAX = 1024 * 1024 * 1024
"""Offsets of Arrow strings have 32 bits: a chunk must stay below 2 GiB whatever the memory limit."""

_WORD_BITS = 64

_READ_ALL = 4
"""If words are wanted of more than a quarter of the rows, those of all are read in their order, which takes a tenth of
the time for each."""

Words: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]


class KeyWords(Protocol):
    """The encoded keys of ``count`` rows, none longer than ``bytes_max``."""

    count: int
    bytes_max: int

    def words(self, begin: int, rows: Integers | None = None) -> Words:
        """Return the words at a position of some rows, or of all."""


def chunk_limits(memory_limit_bytes: int, share: int) -> tuple[int, int]:
    """Return how many rows are sorted or divided at once, and of how many bytes: a ``share``-th of the memory limit."""
    return max(1, memory_limit_bytes // _ROW_BYTES), min(memory_limit_bytes // share, _CHUNK_BYTES_MAX)


def key_words(rows: pa.RecordBatch, fields: Sequence[Field]) -> KeyWords:
    """Return the keys of rows; ``fields`` are those of a :class:`~lakebed.model.keys.KeyCodec`, in order."""
    parts: list[Bytes | bytes] = []
    for field in fields:
        part = _column_bytes(rows.column(field.name), field)
        if part is None:
            return _UnevenKeys(KeyCodec(tuple(fields)).encode_columns(rows))
        parts.append(part)
        if not field.width:
            parts.append(TERMINATOR)
    return _EvenKeys(rows.num_rows, parts)


def ascending(keys: KeyWords, begin: int = 0) -> Integers:
    """Return the positions of rows in the order of their keys; rows with equal keys keep their order.

    All keys agree in their first ``begin`` bytes.

    A step sorts the rows that the steps before could not tell apart, by a word that has their group, what can be kept
    of the key's word, and the position. Sorting such integers is stable, and much faster than an indirect sort.
    """
    order = np.arange(keys.count)
    # The places in the order that are not decided yet, in groups, and where the groups begin among them.
    open_places: Integers | None = None
    starts = np.zeros(1, np.int64)
    while begin < keys.bytes_max and keys.count > 1 and len(starts):
        rows = order if open_places is None else order[open_places]
        words = keys.words(begin, None if open_places is None else rows)
        lows, highs = np.minimum.reduceat(words, starts), np.maximum.reduceat(words, starts)
        agreeing = (_WORD_BITS - int((lows ^ highs).max()).bit_length()) // 8
        if agreeing:
            # Every group has the same bytes here: more of those that follow come into the words.
            begin += agreeing
            continue
        group_bits, place_bits = (len(starts) - 1).bit_length(), (len(rows) - 1).bit_length()
        lost = max(0, int((highs - lows).max()).bit_length() + group_bits + place_bits - _WORD_BITS)
        packed = _packed(words, lows, starts, lost=lost, place_bits=place_bits)
        packed.sort()
        places = (packed & np.uint64((1 << place_bits) - 1)).view(np.int64)
        packed >>= np.uint64(place_bits)
        if open_places is None:
            order = places
        else:
            order[open_places] = rows[places]
        tied = packed[1:] == packed[:-1]
        if not tied.any():
            break
        goes_on = np.concatenate([[False], tied])
        is_open = goes_on | np.concatenate([tied, [False]])
        starts = np.flatnonzero(~goes_on[is_open])
        open_places = np.flatnonzero(is_open) if open_places is None else open_places[is_open]
        if not lost:
            begin += WORD_BYTES
    return order


def _packed(words: Words, lows: Words, starts: Integers, *, lost: int, place_bits: int) -> Words:
    """Return integers in the order of group, word without its ``lost`` last bits, and place."""
    count = len(words)
    sizes = np.diff(np.append(starts, count))
    packed: Words = words - (lows if len(starts) == 1 else np.repeat(lows, sizes))
    packed >>= np.uint64(lost)
    packed <<= np.uint64(place_bits)
    packed |= np.arange(count, dtype=np.uint64)
    if len(starts) > 1:
        groups = np.arange(len(starts), dtype=np.uint64) << np.uint64(_WORD_BITS - (len(starts) - 1).bit_length())
        packed |= np.repeat(groups, sizes)
    return packed


# -- encodings --------------------------------------------------------------------------------------------------------


class _EvenKeys:
    """Keys whose encodings have one length. The parts are joined in each row: rows of bytes, or the same bytes."""

    def __init__(self, count: int, parts: Sequence[Bytes | bytes]) -> None:
        self.count = count
        self._parts: list[tuple[int, int, Bytes | bytes]] = []
        self.bytes_max = 0
        for part in parts:
            width = len(part) if isinstance(part, bytes) else part.shape[1]
            self._parts.append((self.bytes_max, self.bytes_max + width, part))
            self.bytes_max += width

    def words(self, begin: int, rows: Integers | None = None) -> Words:
        """As :meth:`KeyWords.words`."""
        end = begin + WORD_BYTES
        found = np.uint64(0)
        words: Words | None = None
        for low, high, part in self._parts:
            first, last = max(low, begin), min(high, end)
            if first >= last:
                continue
            shift = np.uint64(8 * (end - last))
            if isinstance(part, bytes):
                found |= np.uint64(int.from_bytes(part[first - low : last - low], "big")) << shift
                continue
            piece = _bytes_between(part, first - low, last - low, rows)
            if last < end:
                piece <<= shift
            words = piece if words is None else words | piece
        if words is None:
            return np.full(self.count if rows is None else len(rows), found)
        return words | found if found else words


def _bytes_between(part: Bytes, first: int, last: int, rows: Integers | None) -> Words:
    """Return the bytes ``[first, last)`` of each row, at most eight, as a number."""
    count, width = part.shape
    if rows is not None and len(rows) * _READ_ALL > count:
        return _bytes_between(part, first, last, None)[rows]
    if width >= WORD_BYTES:
        # Eight bytes are read at once, among which these are.
        at = min(first, width - WORD_BYTES)
        column: Any = np.ndarray((count,), ">u8", part, at, (width,))
        words: Words = (column if rows is None else column[rows]).astype(np.uint64)
        if at + WORD_BYTES > last:
            words >>= np.uint64(8 * (at + WORD_BYTES - last))
        if last - first < WORD_BYTES and at < first:
            words &= np.uint64((1 << 8 * (last - first)) - 1)
        return words
    words = np.zeros(count if rows is None else len(rows), np.uint64)
    for index in range(first, last):
        words <<= np.uint64(8)
        words |= part[:, index] if rows is None else part[rows, index]
    return words


class _UnevenKeys:
    """Keys whose encodings have several lengths, in a binary array."""

    def __init__(self, encoded: pa.Array) -> None:
        self.count = len(encoded)
        _, ends, content = encoded.buffers()
        offsets = np.frombuffer(ends, np.int32, self.count + 1, 4 * encoded.offset) if self.count else np.zeros(1)
        self._offsets = offsets.astype(np.int64)
        self.bytes_max = int(np.diff(self._offsets).max(initial=0))
        # A word may begin up to the last byte.
        self._content = np.concatenate([np.frombuffer(content or b"", np.uint8), np.zeros(WORD_BYTES, np.uint8)])

    def words(self, begin: int, rows: Integers | None = None) -> Words:
        """As :meth:`KeyWords.words`."""
        chosen = slice(None) if rows is None else rows
        ends = self._offsets[1:][chosen]
        starts = np.minimum(self._offsets[:-1][chosen] + begin, ends)
        column: Any = np.ndarray((len(self._content) - WORD_BYTES + 1,), ">u8", self._content, 0, (1,))
        words: Words = column[starts].astype(np.uint64)
        # Shifted by all bits, a number is zero.
        missing = (8 * (WORD_BYTES - np.minimum(ends - starts, WORD_BYTES))).view(np.uint64)
        words >>= missing
        words <<= missing
        return words


def _column_bytes(column: pa.Array, field: Field) -> Bytes | None:
    """Return the encodings of a column without their terminators, a row of bytes for each value; None if they have
    several lengths, or zeros that are escaped.
    """
    kind, count = field.key_type, len(column)
    if isinstance(kind, FixedWidth):
        codes = np.ascontiguousarray(kind.codes(column))
        return codes.view(np.uint8).reshape(count, kind.width)
    _, ends, content = column.buffers()
    if not count or content is None:
        return None
    offsets = np.frombuffer(ends, np.int32, count + 1, 4 * column.offset)
    width = int(offsets[1] - offsets[0])
    if not width or not (np.diff(offsets) == width).all():
        return None
    data = np.frombuffer(content, np.uint8, width * count, int(offsets[0]))
    return data.reshape(count, width) if data.min() else None
