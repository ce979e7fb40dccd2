"""Where the reducers of a bulk import divide the keys: even shares by weight, along partition boundaries where that is
possible. Pure: no I/O, no Spark.

What is known is a sample: encoded keys, each with the rows it stands for. A key here is the row key and the sort key
encoded as one, so that even one row key with half of all rows can be shared out. (Every table keeps all rows, so where
rows of one key part does not matter; the files then touch.)

A partition as large as a reducer's share is cut by itself, so that no file reaches over its ends; small partitions are
put together until they make a share, so that thousands of them do not mean thousands of files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lakebed.model.keys import successor


@dataclass(frozen=True, slots=True)
class InputPart:
    """Rows of the input that lie together, as far as known: their number, sampled keys, bounds of the first field.

    ``keys`` are encoded, in any order, spread evenly over the rows; empty if the part was not sampled. The bounds are
    encodings of the first key field alone, None where they are not known.
    """

    rows: int
    keys: tuple[bytes, ...] = ()
    min: bytes | None = None
    max: bytes | None = None


@dataclass(frozen=True, slots=True)
class WeightedKeys:
    """Ascending keys, each with the rows it stands for."""

    keys: tuple[bytes, ...]
    weights: tuple[float, ...]


def weigh(parts: Sequence[InputPart]) -> WeightedKeys:
    """Share all rows among the sampled keys.

    The rows of a part without samples go to the sampled keys within its bounds, evenly: a part of unsorted input
    spans nearly all of them, one of sorted input hardly any. With none inside, its lower bound stands for it.
    """
    found: dict[bytes, float] = {}
    for part in parts:
        for key in part.keys:
            found[key] = found.get(key, 0.0) + part.rows / len(part.keys)
    sampled = sorted(found)
    spread = np.zeros(len(sampled) + 1)
    for part in parts:
        if part.keys or not part.rows:
            continue
        low = 0 if part.min is None else bisect_left(sampled, part.min)
        end = None if part.max is None else successor(part.max)
        high = len(sampled) if end is None else bisect_left(sampled, end)
        if high > low:
            spread[low] += part.rows / (high - low)
            spread[high] -= part.rows / (high - low)
        elif part.min is not None:
            found[part.min] = found.get(part.min, 0.0) + part.rows
    for key, weight in zip(sampled, np.cumsum(spread)[:-1].tolist(), strict=True):
        found[key] += weight
    keys = sorted(found)
    return WeightedKeys(tuple(keys), tuple(found[key] for key in keys))


def divide(sample: WeightedKeys, partitions: Sequence[bytes], reducers: int) -> tuple[bytes, ...]:
    """Ascending keys that divide the rows among about ``reducers`` reducers; ``partitions`` are the partition
    boundaries.
    """
    if reducers < 2 or not sample.keys:
        return ()
    below = np.concatenate([[0.0], np.cumsum(sample.weights)])
    share = float(below[-1]) / reducers
    edges = [0, *(bisect_left(sample.keys, boundary) for boundary in partitions), len(sample.keys)]
    lows: list[bytes] = [b"", *partitions]
    cuts: list[bytes] = []
    held = 0.0
    for low, first, last in zip(lows, edges[:-1], edges[1:], strict=True):
        rows = float(below[last] - below[first])
        large = rows >= share / 2
        if held and (large or held + rows > share):
            _append(cuts, low)
            held = 0.0
        if not large:
            held += rows
            continue
        # The partition before ended with a cut, or was small: the large one begins at its own boundary.
        _append(cuts, low)
        parts = max(1, round(rows / share))
        for part in range(1, parts):
            position = min(int(np.searchsorted(below, below[first] + rows * part / parts)), last - 1)
            if position > first:
                _append(cuts, sample.keys[position])
        # As much as a share: whatever follows begins anew.
        held = share
    return tuple(cuts)


def _append(cuts: list[bytes], key: bytes) -> None:
    if key > (cuts[-1] if cuts else b""):
        cuts.append(key)
