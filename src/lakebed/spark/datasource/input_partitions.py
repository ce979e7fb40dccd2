"""How a query is shared out among Spark's tasks: partitions in key order, small ones together, large ones cut.

A task's rows are then sorted, and those of one task lie below those of the next. Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lakebed.model.files import DataFile
from lakebed.model.keys import EncodedRange
from lakebed.read.plan import PartitionQuery
from lakebed.spark.boundaries import InputPart, divide, weigh

Share = tuple[PartitionQuery, ...]
"""What one task reads: partition queries in key order."""

Sample = Callable[[Sequence[DataFile]], Mapping[str, tuple[bytes, ...]]]
"""Keys of files, evenly spread over their rows, by file id; a file may be left out."""


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
            parts, asked = _cut(partition, share_bytes, sample)
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


def _cut(partition: PartitionQuery, share_bytes: int, sample: Sample) -> tuple[list[PartitionQuery], float]:
    """The partition's query in parts of about equal weight, as far as is known where its keys lie; and what it
    weighs.
    """
    sampled = sample(partition.files)
    parts = [_inside(partition, file, sampled.get(file.id, (file.min_key, file.max_key))) for file in partition.files]
    size = sum(
        # Of a file whose keys nobody noted, all may be asked for.
        file.size_bytes * (part.rows / file.rows if file.id in sampled else 1)
        for file, part in zip(partition.files, parts, strict=True)
    )
    cuts = divide(weigh([part for part in parts if part.keys]), (), round(size / share_bytes))
    spans = zip((b"", *cuts), (*cuts, None), strict=True)
    found = (_within(partition, EncodedRange(low, high)) for low, high in spans)
    return [part for part in found if part.ranges and part.files], size


def _inside(partition: PartitionQuery, file: DataFile, keys: Sequence[bytes]) -> InputPart:
    """What the query asks of a file, by those of its keys that are asked for."""
    asked = tuple(key for key in keys if any(one.contains(key) for one in partition.ranges))
    return InputPart(round(file.rows * len(asked) / len(keys)), asked)


def _within(partition: PartitionQuery, span: EncodedRange) -> PartitionQuery:
    ranges = tuple(keys for keys in (one.intersect(span) for one in partition.ranges) if not keys.empty)
    files = tuple(file for file in partition.files if any(file.reaches(keys) for keys in ranges))
    return PartitionQuery(partition.partition, ranges, files)
