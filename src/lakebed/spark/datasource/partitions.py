"""How a query is shared out among Spark's tasks: leaves in key order, small ones together, large ones cut.

A task's rows are then sorted, and those of one task lie below those of the next. Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lakebed.files import DataFile
from lakebed.keys import EncodedRange
from lakebed.query.plan import LeafQuery
from lakebed.spark.boundaries import Part, divide, weigh

Share = tuple[LeafQuery, ...]
"""What one task reads: leaf queries in key order."""

Sample = Callable[[Sequence[DataFile]], Mapping[str, tuple[bytes, ...]]]
"""Keys of files, evenly spread over their rows, by file id; a file may be left out."""


def share_out(leaves: Sequence[LeafQuery], weights: Mapping[int, int], share_bytes: int, sample: Sample) -> list[Share]:
    """Leaf queries in shares of about ``share_bytes``. ``weights`` are the bytes of each whole leaf, by its id."""
    shares: list[Share] = []
    held: list[LeafQuery] = []
    held_bytes = 0.0
    for leaf in leaves:
        size: float = weights[leaf.leaf]
        parts = [leaf]
        if size >= 2 * share_bytes:
            parts, asked = _cut(leaf, share_bytes, sample)
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


def _cut(leaf: LeafQuery, share_bytes: int, sample: Sample) -> tuple[list[LeafQuery], float]:
    """The leaf's query in parts of about equal weight, as far as is known where its keys lie; and what it weighs."""
    sampled = sample(leaf.files)
    parts = [_inside(leaf, file, sampled.get(file.id, (file.min_key, file.max_key))) for file in leaf.files]
    size = sum(
        # Of a file whose keys nobody noted, all may be asked for.
        file.size_bytes * (part.rows / file.rows if file.id in sampled else 1)
        for file, part in zip(leaf.files, parts, strict=True)
    )
    cuts = divide(weigh([part for part in parts if part.keys]), (), round(size / share_bytes))
    spans = zip((b"", *cuts), (*cuts, None), strict=True)
    found = (_within(leaf, EncodedRange(low, high)) for low, high in spans)
    return [part for part in found if part.ranges and part.files], size


def _inside(leaf: LeafQuery, file: DataFile, keys: Sequence[bytes]) -> Part:
    """What the query asks of a file, by those of its keys that are asked for."""
    asked = tuple(key for key in keys if any(one.contains(key) for one in leaf.ranges))
    return Part(round(file.rows * len(asked) / len(keys)), asked)


def _within(leaf: LeafQuery, span: EncodedRange) -> LeafQuery:
    ranges = tuple(keys for keys in (one.intersect(span) for one in leaf.ranges) if not keys.empty)
    files = tuple(file for file in leaf.files if any(file.reaches(keys) for keys in ranges))
    return LeafQuery(leaf.leaf, ranges, files)
