"""Rows, key ranges and data files of the protocol model, small enough to enumerate.

A key is an integer in `[0, KEYS)`. A row is one bit, `key * WRITES + write`: bits are in key order, so a key range is a
run of bits, a set of rows is an integer, and "this row shows twice" is one `&`. No two writes share a row, so a reader
that meets a bit twice has doubled a row.
"""

from collections.abc import Iterable
from typing import NamedTuple

KEYS = 8
WRITES = 9
SAMPLED_KEYS = frozenset(range(0, KEYS + 1, 2))  # the keys whose exact rank is in a file's summary

BELOW = tuple((1 << (key * WRITES)) - 1 for key in range(KEYS + 1))


class DataFile(NamedTuple):
    """An immutable sorted file: a unique name, and a set of rows that is not empty."""

    name: str
    rows: int

    def __repr__(self) -> str:
        return f"{self.name}{keys_of(self.rows)}"


def write_rows(write: int, keys: Iterable[int]) -> int:
    """Return the rows that one write puts at these keys."""
    return sum(1 << (key * WRITES + write) for key in keys)


def within(rows: int, lower: int, upper: int) -> int:
    """Return the rows whose key is in `[lower, upper)`."""
    return rows & BELOW[upper] & ~BELOW[lower]


def keys_of(rows: int) -> tuple[int, ...]:
    """Return the distinct keys of some rows, for messages."""
    return tuple(key for key in range(KEYS) if within(rows, key, key + 1))


def proven_empty(file: DataFile, lower: int, upper: int) -> bool:
    """Return whether bounds, or two exact ranks, prove that the file has no row in `[lower, upper)`.

    A range may be empty without such proof: one that ends between two sampled keys is checked by the bounds alone.
    """
    if not file.rows & BELOW[upper] or not file.rows & ~BELOW[lower]:
        return True
    return lower in SAMPLED_KEYS and upper in SAMPLED_KEYS and not within(file.rows, lower, upper)


def estimated_rows(file: DataFile, lower: int, upper: int) -> int:
    """Estimate the rows of the file in `[lower, upper)` from only its bounds and row count: an even spread."""
    first = ((file.rows & -file.rows).bit_length() - 1) // WRITES
    last = (file.rows.bit_length() - 1) // WRITES
    overlap = min(last + 1, upper) - max(first, lower)
    return file.rows.bit_count() * max(0, overlap) // (last + 1 - first)
