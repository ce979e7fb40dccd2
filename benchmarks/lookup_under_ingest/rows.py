"""The rows for every peer, and the keys to look up; both are computed from a row's number.

Keys are ``user-`` and 16 hex digits of a one-to-one hash (the last step of splitmix64): each commit's keys are spread
over those of all others, and no key is repeated. A row is about 80 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

COLUMNS = pa.schema([("key", pa.string()), ("ts", pa.int64()), ("count", pa.int64()), ("value", pa.string())])
FIRST_TS = 1_600_000_000_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the measures. A measure that has taken ``seconds`` stops, and reports its progress."""

    commits: int = 100
    rows: int = 50_000
    gets: int = 1_000
    tiny: int = 1_000
    writers: int = 4
    writer_commits: int = 50
    processes: int = 5
    seconds: float = 60.0


DELETED_ROWS = 10_000
"""The approximate number of rows that the measured delete removes."""


def hashed(numbers: np.ndarray) -> np.ndarray:
    """Return a different number for each, spread evenly over all of 64 bits."""
    mixed = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def key_of(number: int) -> str:
    """Return the key of a row."""
    return f"user-{int(hashed(np.array([number]))[0]):016x}"


def ts_of(number: int, version: int = 0) -> int:
    """Return the time of a row, which identifies the row and its version."""
    return FIRST_TS + number + version * 10**12


def rows_of(numbers: np.ndarray, version: int = 0) -> pa.Table:
    """Return the rows of these numbers, in their order."""
    keys = hashed(numbers)
    columns = [
        pa.array(np.char.add("user-", np.char.mod("%016x", keys))),
        pa.array(ts_of(numbers.astype(np.int64), version)),
        pa.array(numbers.astype(np.int64) % 1_000),
        pa.array(np.char.mod("%032x", hashed(keys))),
    ]
    return pa.Table.from_arrays(columns, schema=COLUMNS)


def rows_between(begin: int, end: int) -> pa.Table:
    """Return the rows of the numbers from ``begin`` on, below ``end``."""
    return rows_of(np.arange(begin, end))


def some_numbers(total: int, count: int) -> list[int]:
    """Return random numbers below the total, always the same."""
    return np.random.default_rng(7).integers(0, total, count).tolist()


def some_ranges(total: int, rows: int, count: int) -> Iterator[tuple[str, str, int]]:
    """Return key ranges ``[min, max)`` of about ``rows`` of the rows below the total, each with its exact number of
    rows.
    """
    keys = np.sort(hashed(np.arange(total)))
    width = min(2**63, rows * 2**64 // max(total, 1))
    for begin in np.random.default_rng(8).integers(0, 2**64 - width, count, dtype=np.uint64).tolist():
        low, high = np.searchsorted(keys, np.array([begin, begin + width], dtype=np.uint64))
        yield f"user-{begin:016x}", f"user-{begin + width:016x}", int(high - low)
