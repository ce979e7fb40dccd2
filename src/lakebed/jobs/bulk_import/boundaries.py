"""Chooses where a bulk import cuts the keys: for partitions before it, and for its reduce tasks. Pure: no I/O.

The input is known by a sample: encoded keys, each with the number of rows that it represents (:class:`WeightedKeys`). A
key here is the row key and the sort key encoded as one, so that even one row key with half of all rows can be divided.
Rows with equal row keys may lie in several files; the files then touch.

*Partitions* (:func:`full_partitions`, :func:`choose_split_keys`). A partition that the import would make too large is
split before it. The table then begins with the partitions that it would have had after some rounds of splitting, and
no file reaches over the ends of large ones. A partition is considered if the import alone brings it a fair share of
its limit; the rest is left to splitting. A partition with an open job is left alone, because the job's files were
made for the partition as it is. If the import fails, the table has more partitions and the same rows.

*Reducers* (:func:`divide`). They get even shares by weight, along partition boundaries where possible. A partition as
large as a share is cut by itself, so that no file reaches over its ends. Small partitions are put together until they
make a share, so that thousands of them do not become thousands of files.

*Ranges* (:func:`range_cuts`). A reducer sorts its rows range by range. A range fits into the processor's cache, and
there are few enough ranges that the pieces of a map task are not tiny.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.key_summaries import separator
from lakebed.model.keys import EncodedRange, KeyCodec, shortest_separator, successor
from lakebed.upkeep.splitting.plan import FEW_SHARE, FILL, LargePartition, SplitAt, Unsplittable

if TYPE_CHECKING:
    from lakebed.model.key_summaries import Summary
    from lakebed.model.settings import Settings
    from lakebed.model.state.table_state import TableState

Floats = np.ndarray[Any, np.dtype[np.float64]]


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
    """Ascending keys, each with the number of rows that it represents."""

    keys: tuple[bytes, ...]
    weights: tuple[float, ...]


def weigh(parts: Sequence[InputPart]) -> WeightedKeys:
    """Share all rows among the sampled keys.

    The rows of a part without samples go to the sampled keys within its bounds, evenly: a part of unsorted input
    spans nearly all of them, one of sorted input hardly any. With none inside, its lower bound stands for it.
    """
    sampled, weights = _sum_by_key([part for part in parts if part.keys])
    spread = np.zeros(len(sampled) + 1)
    alone: dict[bytes, float] = {}
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
            alone[part.min] = alone.get(part.min, 0.0) + part.rows
    weights += np.cumsum(spread)[:-1]
    if not alone:
        return WeightedKeys(tuple(sampled), tuple(weights.tolist()))
    of_key = dict(zip(sampled, weights.tolist(), strict=True))
    for key, rows in alone.items():
        of_key[key] = of_key.get(key, 0.0) + rows
    keys = sorted(of_key)
    return WeightedKeys(tuple(keys), tuple(of_key[key] for key in keys))


def _sum_by_key(parts: Sequence[InputPart]) -> tuple[list[bytes], Floats]:
    """Return the sampled keys of the parts, ascending, and the rows that each represents."""
    if not parts:
        return [], np.zeros(0)
    keys = pa.array([key for part in parts for key in part.keys], pa.large_binary())
    rows = np.repeat([part.rows / len(part.keys) for part in parts], [len(part.keys) for part in parts])
    order = pc.sort_indices(keys)
    ordered = keys.take(order)
    differs = pc.not_equal(ordered[1:], ordered[:-1]).to_numpy(zero_copy_only=False)
    firsts = np.flatnonzero(np.concatenate([[True], differs]))
    return ordered.take(pa.array(firsts)).to_pylist(), np.add.reduceat(rows[order.to_numpy()], firsts)


REDUCER_BYTES_MIN = 16 * 1024 * 1024
"""A reducer gets at least this much, even if cores are idle: small files cost every later read a request."""


def reducer_count(size_bytes: int, file_bytes: int, cores: int) -> int:
    """Return the number of reducers for an import of this size: one a file, or one a core that has enough to do."""
    return max(1, min(cores, size_bytes // REDUCER_BYTES_MIN), -(-size_bytes // file_bytes))


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
    open_rows = 0.0
    for low, first, last in zip(lows, edges[:-1], edges[1:], strict=True):
        rows = float(below[last] - below[first])
        large = rows >= share / 2
        if open_rows and (large or open_rows + rows > share):
            _append(cuts, low)
            open_rows = 0.0
        if not large:
            open_rows += rows
            continue
        # The previous partition ended with a cut, or was small: the large one begins at its own boundary.
        _append(cuts, low)
        parts = max(1, round(rows / share))
        for part in range(1, parts):
            position = min(int(np.searchsorted(below, below[first] + rows * part / parts)), last - 1)
            if position > first:
                _append(cuts, sample.keys[position])
        # A full share: the next partition begins another reducer.
        open_rows = share
    return tuple(cuts)


def _append(cuts: list[bytes], key: bytes) -> None:
    if key > (cuts[-1] if cuts else b""):
        cuts.append(key)


RANGE_ROWS, RANGE_BYTES = 64 * 1024, 4 * 1024 * 1024
"""The rows of a range, and the bytes of the input that it has at most: the smaller of the two counts."""

RANGES_MAX = 1024
"""A map task sends a batch for each range of a chunk, at some 50 µs each."""

RANGE_COLUMN_BYTES = 2048
"""The least bytes of a column in such a batch, on average, since each column of it costs 10 µs: to divide a large range
again costs less."""


def range_count(rows: int, size_bytes: int, *, columns: int, chunk_bytes: int) -> int:
    """Return the number of ranges for an import of ``rows`` and ``size_bytes``, sent in chunks of ``chunk_bytes``."""
    ranges_max = min(RANGES_MAX, chunk_bytes // (RANGE_COLUMN_BYTES * columns))
    return max(1, min(ranges_max, max(rows // RANGE_ROWS, size_bytes // RANGE_BYTES)))


def range_cuts(sample: WeightedKeys, boundaries: Sequence[bytes], ranges: int) -> tuple[bytes, ...]:
    """Return ascending keys, ``boundaries`` among them, that divide the rows into about ``ranges`` even ranges.

    Cuts are short: a row whose key differs from a cut's in the first bytes is compared by those.
    """
    below = np.concatenate([[0.0], np.cumsum(sample.weights)])
    wanted = below[-1] * np.arange(1, ranges) / ranges
    positions = np.unique(np.searchsorted(below[:-1], wanted)).tolist()
    cuts = {shortest_separator(*sample.keys[p - 1 : p + 1]) for p in positions if 0 < p < len(sample.keys)}
    return tuple(sorted(cuts.union(boundaries)))


SHARE_MIN = 0.1
"""A partition is cut only if the import brings it this share of its limit. Otherwise each import would sum up the files
of every partition."""

PART_KEYS_MIN = 8
"""Sampled keys for each part at least: its size is then known to about a third."""


def full_partitions(
    state: TableState, sample: WeightedKeys, row_bytes: float, settings: Settings
) -> tuple[LargePartition, ...]:
    """Return the partitions that the sampled rows, of about ``row_bytes`` each, bring above a limit, in key order."""
    below = np.concatenate([[0.0], np.cumsum(sample.weights)])
    edges = [0, *(bisect_left(sample.keys, boundary) for boundary in state.partitions.boundaries), len(sample.keys)]
    arriving = np.diff(below[edges])
    fullness = max(1 / settings.split_rows, row_bytes / settings.split_bytes)
    large = []
    for position in np.flatnonzero(arriving * fullness > SHARE_MIN).tolist():
        partition, keys = state.partitions.ids[position], state.partitions.range_at(position)
        references = state.held_by(partition)
        rows = sum(one.rows for one in references) + float(arriving[position])
        size = sum(one.file.size_bytes * one.rows / max(1, one.file.rows) for one in references)
        size += float(arriving[position]) * row_bytes
        times = max(rows / settings.split_rows, size / settings.split_bytes)
        if times <= 1 or any(not job.keys.intersect(keys).empty for job in state.jobs.values()):
            continue
        known = (edges[position + 1] - edges[position]) // PART_KEYS_MIN
        parts = min(max(2, ceil(times / FILL)), known)
        if parts > 1:
            files, runs = tuple(one.file for one in references), len({one.run for one in references})
            large.append(LargePartition(partition, keys, round(rows), round(size), runs, parts, files))
    return tuple(large)


def choose_split_keys(
    partition: LargePartition, summaries: Sequence[Summary], sample: WeightedKeys, codec: KeyCodec
) -> SplitAt | Unsplittable:
    """Return cuts that divide the present and new rows into about even parts; ``summaries`` are of its files.

    ``sample`` has row key and sort key as one; all rows of one row key stay together.
    """
    rows: dict[bytes, float] = {}
    for key, weight in zip(*_within(sample, partition.keys), strict=True):
        begins = codec.beginning(key)
        rows[begins] = rows.get(begins, 0.0) + weight
    for summary in summaries:
        for key, (low, high) in zip(summary.keys, pairwise((*summary.ranks, summary.rows)), strict=True):
            if partition.keys.contains(key):
                rows[key] = rows.get(key, 0.0) + high - low
    keys = sorted(rows)
    below = np.concatenate([[0.0], np.cumsum([rows[key] for key in keys])])
    wanted = below[-1] * np.arange(1, partition.parts) / partition.parts
    positions = np.clip(np.searchsorted(below, wanted), 1, max(1, len(keys) - 1))
    positions -= (positions > 1) & (wanted - below[positions - 1] < below[positions] - wanted)
    cuts = [
        separator(keys, p, rows[keys[p]], FEW_SHARE * below[-1]) for p in np.unique(positions).tolist() if p < len(keys)
    ]
    distinct = tuple(dict.fromkeys(cuts))
    return (
        SplitAt(partition.partition, distinct)
        if distinct
        else Unsplittable(partition.partition, "the sample has a single key for it")
    )


def _within(sample: WeightedKeys, keys: EncodedRange) -> tuple[tuple[bytes, ...], tuple[float, ...]]:
    low = bisect_left(sample.keys, keys.min)
    high = len(sample.keys) if keys.max is None else bisect_left(sample.keys, keys.max)
    return sample.keys[low:high], sample.weights[low:high]
