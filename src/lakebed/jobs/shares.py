"""Shares the rows of a table out among tasks that read it: in key order, of about equal bytes.

Small partitions share a task; large ones are cut where the summaries of their files show keys. Core types:
:data:`Share`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeAlias

from lakebed.jobs.bulk_import.boundaries import InputPart, divide, weigh
from lakebed.model.keys import EncodedRange
from lakebed.read.rows.plan import PartitionQuery

if TYPE_CHECKING:
    from lakebed.model.files import DataFile
    from lakebed.model.state.table_state import TableState
    from lakebed.table.table import Table

PARTITION_BYTES = 128 * 1024 * 1024
"""About what a task reads, compressed: some seconds of work, beside which its start is nothing."""

SUMMARY_THREADS = 16

Share: TypeAlias = tuple[PartitionQuery, ...]
"""What one task reads: partition queries in key order."""

Sample: TypeAlias = "Callable[[Sequence[DataFile]], Mapping[str, tuple[bytes, ...]]]"
"""Keys of files, evenly spread over their rows, by file id; a file may be left out."""


def weights(state: TableState, partitions: Sequence[PartitionQuery]) -> dict[int, int]:
    """Return the bytes of each partition: of each file as much as its share of the rows."""
    return {
        partition.partition: sum(
            held.file.size_bytes * held.rows // max(1, held.file.rows) for held in state.held_by(partition.partition)
        )
        for partition in partitions
    }


def sampled(table: Table, files: Sequence[DataFile]) -> Mapping[str, tuple[bytes, ...]]:
    """Return keys of those files that have a summary beside them, spread evenly over their rows."""
    from lakebed.read.rows.summaries import load_summaries

    def load(file: DataFile) -> tuple[bytes, ...]:
        return load_summaries(table.storage, table.id, [file], table.schema)[file.id].spread()

    summarised = [file for file in files if file.summarised]
    with ThreadPoolExecutor(SUMMARY_THREADS) as pool:
        return dict(zip([file.id for file in summarised], pool.map(load, summarised), strict=True))


def share_out(
    partitions: Sequence[PartitionQuery], weights: Mapping[int, int], share_bytes: int, sample: Sample
) -> list[Share]:
    """Partition queries in shares of about ``share_bytes``. ``weights`` are the bytes of each whole partition, by its
    id.
    """
    shares: list[Share] = []
    held: list[PartitionQuery] = []
    held_bytes = 0.0
    for partition in partitions:
        size: float = weights[partition.partition]
        parts = [partition]
        if size >= 2 * share_bytes:
            parts, asked = _divide_query(partition, share_bytes, sample)
            size = min(size, asked)
        if held and held_bytes + size > share_bytes:
            shares.append(tuple(held))
            held, held_bytes = [], 0
        if len(parts) > 1:
            shares += [(part,) for part in parts]
            continue
        held += parts
        held_bytes += size
    return [*shares, tuple(held)] if held else shares


def _divide_query(partition: PartitionQuery, share_bytes: int, sample: Sample) -> tuple[list[PartitionQuery], float]:
    """Return the partition's query in parts of about equal weight, as far as summaries show keys; and its weight."""
    sampled = sample(partition.files)
    parts = [
        _part_of_file(partition, file, sampled.get(file.id, (file.min_key, file.max_key))) for file in partition.files
    ]
    size = sum(
        # A file without a summary may be needed whole.
        file.size_bytes * (part.rows / file.rows if file.id in sampled else 1)
        for file, part in zip(partition.files, parts, strict=True)
    )
    cuts = divide(weigh([part for part in parts if part.keys]), (), round(size / share_bytes))
    spans = zip((b"", *cuts), (*cuts, None), strict=True)
    found = (_within(partition, EncodedRange(low, high)) for low, high in spans)
    return [part for part in found if part.ranges and part.files], size


def _part_of_file(partition: PartitionQuery, file: DataFile, keys: Sequence[bytes]) -> InputPart:
    """Return the share of a file that the query reads, by the sampled keys inside its ranges."""
    asked = tuple(key for key in keys if any(one.contains(key) for one in partition.ranges))
    return InputPart(round(file.rows * len(asked) / len(keys)), asked)


def _within(partition: PartitionQuery, span: EncodedRange) -> PartitionQuery:
    ranges = tuple(keys for keys in (one.intersect(span) for one in partition.ranges) if not keys.empty)
    files = tuple(file for file in partition.files if any(file.reaches(keys) for keys in ranges))
    return PartitionQuery(partition.partition, ranges, files)
