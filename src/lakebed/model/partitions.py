"""The partitions: key ranges that cover the key space without gap or overlap, as a sorted array of boundary keys.

Partition ``ids[i]`` holds the keys in ``[lower(i), lower(i + 1))``; the first begins at the empty string, below every
key, and the last has no end. Ids are never reused: the parts of a split and the result of a join get new ids, and their
parents (the split partition, or the joined ones) are recorded, for history and drawings only. Pure: no I/O.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Self

from rpds import HashTrieMap

from lakebed.errors import Code
from lakebed.model.keys import EncodedRange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


Region = tuple[tuple[int, ...], tuple[bytes, ...]]
"""Neighbouring partitions by id, and the ascending keys strictly inside them that bound the partitions replacing
them."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """All partitions of a table. ``boundaries`` ascend strictly; there is one more id than boundaries."""

    boundaries: tuple[bytes, ...] = ()
    ids: tuple[int, ...] = (1,)
    next_id: int = 2
    parents: HashTrieMap[int, tuple[int, ...]] = field(default_factory=HashTrieMap)
    _lower: HashTrieMap[int, bytes] = field(default_factory=lambda: HashTrieMap({1: b""}), repr=False, compare=False)

    @classmethod
    def at(cls, boundaries: tuple[bytes, ...]) -> Self:
        """Make new partitions with these boundaries. Raises DamagedError unless they ascend strictly."""
        count = len(boundaries) + 1
        return cls.of(boundaries, tuple(range(1, count + 1)), count + 1, {})

    @classmethod
    def of(
        cls, boundaries: tuple[bytes, ...], ids: tuple[int, ...], next_id: int, parents: Mapping[int, tuple[int, ...]]
    ) -> Self:
        """Make partitions from their stored form. Raises DamagedError if they do not tile the key space."""
        lows = (b"", *boundaries)
        ascending = all(a < b for a, b in zip(lows, boundaries, strict=False))
        if not ascending or len(ids) != len(lows) or len(set(ids)) != len(ids):
            raise Code.STATE_INCONSISTENT(
                "the partitions do not cover the key space exactly once",
                partitions=len(ids),
                boundaries=len(boundaries),
            )
        return cls(boundaries, ids, next_id, HashTrieMap(parents), HashTrieMap(zip(ids, lows, strict=True)))

    def __len__(self) -> int:
        return len(self.ids)

    def position(self, key: bytes) -> int:
        """Return the position of the partition that contains the key, by binary search."""
        return bisect_right(self.boundaries, key)

    def range_at(self, position: int) -> EncodedRange:
        """Return the key range of the partition at a position."""
        lower = self.boundaries[position - 1] if position else b""
        upper = self.boundaries[position] if position < len(self.boundaries) else None
        return EncodedRange(lower, upper)

    def position_of(self, partition: int) -> int | None:
        """Return the position of the partition with that id; None if it does not exist."""
        low = self._lower.get(partition)
        return None if low is None else self.position(low)

    def overlapping(self, keys: EncodedRange) -> range:
        """Return the positions of the partitions that overlap the range, in key order."""
        if keys.empty:
            return range(0)
        last = len(self.boundaries) if keys.max is None else bisect_left(self.boundaries, keys.max)
        return range(self.position(keys.min), last + 1)

    def inside(self, keys: EncodedRange) -> tuple[bytes, ...]:
        """Return the boundaries strictly inside the range."""
        last = len(self.boundaries) if keys.max is None else bisect_left(self.boundaries, keys.max)
        return self.boundaries[bisect_right(self.boundaries, keys.min) : last]

    def split(self, cuts: Mapping[int, tuple[bytes, ...]]) -> Partitions:
        """Cut some partitions at ascending keys strictly inside them; the parts get the next ids, cut by cut.

        Raises DamagedError if there is no such partition, or a key is not inside it.
        """
        for partition, keys in cuts.items():
            refused = self.refuses(partition, keys)
            if refused is not None:
                raise Code.TRANSACTION_IMPOSSIBLE(refused, partition=partition)
        return self.replace_regions([((partition,), keys) for partition, keys in cuts.items()])

    def refuses(self, partition: int, keys: tuple[bytes, ...]) -> str | None:
        """Return why a partition cannot be split at these keys; None if it can."""
        position = self.position_of(partition)
        if position is None:
            return f"partition {partition} is gone: it was split or joined before"
        inside = self.range_at(position)
        ascending = all(a < b for a, b in zip((inside.min, *keys), keys, strict=False))
        if not keys or not ascending or (inside.max is not None and keys[-1] >= inside.max):
            return f"the keys to split partition {partition} at do not ascend strictly inside it"
        return None

    def join(self, partitions: tuple[int, ...]) -> Partitions:
        """Join two or more neighbouring partitions into one, which gets the next id.

        Raises DamagedError if they are not neighbours in key order.
        """
        if len(partitions) < 2:
            raise Code.STATE_INCONSISTENT(f"cannot join {len(partitions)} partitions: two at least make one")
        return self.replace_regions([(partitions, ())])

    def replace_regions(self, regions: Sequence[Region]) -> Partitions:
        """Replace the partitions of each region by others, which get the next ids, region by region.

        Raises DamagedError if the partitions of a region are not neighbours in key order, if two regions share one, or
        if the keys of a region do not ascend strictly inside it.
        """
        if not regions:
            return self
        parents, lower, next_id = self.parents, self._lower, self.next_id
        found: list[tuple[int, int, range, tuple[bytes, ...]]] = []
        for partitions, keys in regions:
            first = self.position_of(partitions[0]) if partitions else None
            if first is None or self.ids[first : first + len(partitions)] != partitions:
                raise Code.STATE_INCONSISTENT(
                    f"cannot replace partitions {', '.join(map(str, partitions))}: they are not neighbours in key order"
                )
            low, high = self.range_at(first).min, self.range_at(first + len(partitions) - 1).max
            if not all(a < b for a, b in pairwise((low, *keys, *([] if high is None else [high])))):
                raise Code.STATE_INCONSISTENT(
                    f"cannot replace partitions {', '.join(map(str, partitions))}: the keys do not ascend inside them"
                )
            parts = range(next_id, next_id + len(keys) + 1)
            next_id = parts.stop
            parents = parents.update(dict.fromkeys(parts, partitions))
            for partition in partitions:
                lower = lower.discard(partition)
            lower = lower.update(dict(zip(parts, (low, *keys), strict=True)))
            found.append((first, len(partitions), parts, keys))
        boundaries: list[bytes] = []
        ids: list[int] = []
        done = 0
        for first, count, parts, keys in sorted(found, key=itemgetter(0)):
            if first < done:
                raise Code.STATE_INCONSISTENT(f"partition {self.ids[first]} is replaced twice")
            end = first + count
            boundaries += (*self.boundaries[done:first], *keys, *self.boundaries[end - 1 : end])
            ids += (*self.ids[done:first], *parts)
            done = end
        return replace(
            self,
            boundaries=(*boundaries, *self.boundaries[done:]),
            ids=(*ids, *self.ids[done:]),
            next_id=next_id,
            parents=parents,
            _lower=lower,
        )
