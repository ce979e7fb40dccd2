"""Partitions that an import would make too large are cut before it, by the keys that were sampled for its shuffle.

So a table begins with the partitions that it would have had after some rounds of splitting, and no file reaches over
the ends of large ones: nothing has to be compacted to be split well. Choosing is pure (:func:`full_partitions`,
:func:`cut`);
:func:`split_before` reads summaries and commits. If the import fails then, the table has more partitions and the same
rows.

A partition is looked at if the import alone brings it a fair share of its limit; what smaller ones add up to is for
splitting to see to. With an open job it is left alone: the job's files were made for the partition as it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from lakebed.maintenance.splitting.plan import FEW_SHARE, FILL, LargePartition, SplitAt, Unsplittable
from lakebed.maintenance.splitting.run import cut_partitions
from lakebed.model.key_summaries import separator
from lakebed.model.keys import EncodedRange, KeyCodec
from lakebed.spark.boundaries import WeightedKeys

if TYPE_CHECKING:
    from lakebed.model.key_summaries import Summary
    from lakebed.settings import Settings
    from lakebed.state.table_state import TableState
    from lakebed.table.table import Table

SHARE_MIN = 0.1
"""Of its limit an import must bring a partition so much to have it cut, or each import would add up every partition's
files."""

PART_KEYS_MIN = 8
"""Sampled keys for each part at least: its size is then known to about a third."""


def full_partitions(
    state: TableState, sample: WeightedKeys, row_bytes: float, settings: Settings
) -> tuple[LargePartition, ...]:
    """The partitions that the sampled rows, of about ``row_bytes`` each, would bring above a limit, in key order."""
    below = np.concatenate([[0.0], np.cumsum(sample.weights)])
    edges = [0, *(bisect_left(sample.keys, boundary) for boundary in state.partitions.boundaries), len(sample.keys)]
    arriving = np.diff(below[edges])
    fullness = max(1 / settings.split_rows, row_bytes / settings.split_bytes)
    found = []
    for position in np.flatnonzero(arriving * fullness > SHARE_MIN).tolist():
        partition, keys = state.partitions.ids[position], state.partitions.range_at(position)
        held = state.held_by(partition)
        rows = sum(one.rows for one in held) + float(arriving[position])
        size = sum(one.file.size_bytes * one.rows / max(1, one.file.rows) for one in held)
        size += float(arriving[position]) * row_bytes
        times = max(rows / settings.split_rows, size / settings.split_bytes)
        if times <= 1 or any(not job.keys.intersect(keys).empty for job in state.jobs.values()):
            continue
        known = (edges[position + 1] - edges[position]) // PART_KEYS_MIN
        parts = min(max(2, ceil(times / FILL)), known)
        if parts > 1:
            files, runs = tuple(one.file for one in held), len({one.run for one in held})
            found.append(LargePartition(partition, keys, round(rows), round(size), runs, parts, files))
    return tuple(found)


def cut(
    partition: LargePartition, summaries: Sequence[Summary], sample: WeightedKeys, codec: KeyCodec
) -> SplitAt | Unsplittable:
    """Where to cut the partition into about even parts of what it holds and what comes; ``summaries`` are of its files.

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
    at = np.clip(np.searchsorted(below, wanted), 1, max(1, len(keys) - 1))
    at -= (at > 1) & (wanted - below[at - 1] < below[at] - wanted)
    cuts = [separator(keys, p, rows[keys[p]], FEW_SHARE * below[-1]) for p in np.unique(at).tolist() if p < len(keys)]
    found = tuple(dict.fromkeys(cuts))
    return (
        SplitAt(partition.partition, found)
        if found
        else Unsplittable(partition.partition, "a single key comes, as far as sampled")
    )


def _within(sample: WeightedKeys, keys: EncodedRange) -> tuple[tuple[bytes, ...], tuple[float, ...]]:
    low = bisect_left(sample.keys, keys.min)
    high = len(sample.keys) if keys.max is None else bisect_left(sample.keys, keys.max)
    return sample.keys[low:high], sample.weights[low:high]


def split_before(table: Table, state: TableState, sample: WeightedKeys, row_bytes: float, settings: Settings) -> int:
    """Cut the partitions that would grow too large; says how many. One that changed meanwhile is left alone.

    Raises:
        DamagedError: a summary, or a file whose summary is gone, is damaged.
        ContentionError, UnknownOutcomeError, StorageError: the log; partitions cut before stay cut.
    """
    codec = table.schema.codec
    full = full_partitions(state, sample, row_bytes, settings)
    return len(cut_partitions(table, full, lambda partition, summaries: cut(partition, summaries, sample, codec)).split)
