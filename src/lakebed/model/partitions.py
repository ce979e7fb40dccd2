"""The partitions: key ranges that cover the key space without gap or overlap, as a sorted array of boundary keys.

Partition ``ids[i]`` holds the keys in ``[lower(i), lower(i + 1))``; the first begins at the empty string, below every
key, and the last has no end. Ids are never reused: the parts of a split and the partition that a join makes get new
ones, and their parents (one, or those that were joined) are remembered, for history and pictures only. Pure: no I/O.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from rpds import HashTrieMap

from lakebed.errors import Code
from lakebed.model.keys import EncodedRange

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Partitions:
    """All partitions of a table. ``boundaries`` ascend strictly; there is one id more than boundaries."""

    boundaries: tuple[bytes, ...] = ()
    ids: tuple[int, ...] = (1,)
    next_id: int = 2
    parents: HashTrieMap[int, tuple[int, ...]] = field(default_factory=HashTrieMap)
    _lower: HashTrieMap[int, bytes] = field(default_factory=lambda: HashTrieMap({1: b""}), repr=False, compare=False)

    @classmethod
    def at(cls, boundaries: tuple[bytes, ...]) -> Self:
        """Fresh partitions cut at these ascending boundaries. Raises DamagedError if they do not ascend."""
        count = len(boundaries) + 1
        return cls.of(boundaries, tuple(range(1, count + 1)), count + 1, {})

    @classmethod
    def of(
        cls, boundaries: tuple[bytes, ...], ids: tuple[int, ...], next_id: int, parents: Mapping[int, tuple[int, ...]]
    ) -> Self:
        """Partitions as they were written. Raises DamagedError if they do not tile the key space."""
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
        """Where the partition that holds the key stands, by binary search."""
        return bisect_right(self.boundaries, key)

    def range_at(self, position: int) -> EncodedRange:
        """The key range of the partition at a position."""
        lower = self.boundaries[position - 1] if position else b""
        upper = self.boundaries[position] if position < len(self.boundaries) else None
        return EncodedRange(lower, upper)

    def position_of(self, partition: int) -> int | None:
        """Where the partition of that id stands; None if it is gone."""
        low = self._lower.get(partition)
        return None if low is None else self.position(low)

    def overlapping(self, keys: EncodedRange) -> range:
        """Positions of the partitions that share a key with the range, in key order."""
        if keys.empty:
            return range(0)
        last = len(self.boundaries) if keys.max is None else bisect_left(self.boundaries, keys.max)
        return range(self.position(keys.min), last + 1)

    def inside(self, keys: EncodedRange) -> tuple[bytes, ...]:
        """Boundaries strictly inside the range."""
        last = len(self.boundaries) if keys.max is None else bisect_left(self.boundaries, keys.max)
        return self.boundaries[bisect_right(self.boundaries, keys.min) : last]

    def split(self, cuts: Mapping[int, tuple[bytes, ...]]) -> Partitions:
        """The partitions with some cut at ascending keys strictly inside them; the parts get the next ids, cut by cut.

        Raises DamagedError if there is no such partition, or a key is not inside it.
        """
        if not cuts:
            return self
        parents, lower, next_id = self.parents, self._lower, self.next_id
        found: list[tuple[int, range, tuple[bytes, ...]]] = []
        for partition, keys in cuts.items():
            refused = self.refuses(partition, keys)
            if refused is not None:
                raise Code.TRANSACTION_IMPOSSIBLE(refused, partition=partition)
            low = lower[partition]
            parts = range(next_id, next_id + len(keys) + 1)
            next_id = parts.stop
            parents = parents.update(dict.fromkeys(parts, (partition,)))
            lower = lower.remove(partition).update(dict(zip(parts, (low, *keys), strict=True)))
            found.append((self.position(low), parts, keys))
        boundaries: list[bytes] = []
        ids: list[int] = []
        done = 0
        for position, parts, keys in sorted(found):
            boundaries += (*self.boundaries[done:position], *keys)
            ids += (*self.ids[done:position], *parts)
            boundaries += self.boundaries[position : position + 1]
            done = position + 1
        return replace(
            self,
            boundaries=(*boundaries, *self.boundaries[done:]),
            ids=(*ids, *self.ids[done:]),
            next_id=next_id,
            parents=parents,
            _lower=lower,
        )

    def refuses(self, partition: int, keys: tuple[bytes, ...]) -> str | None:
        """Why a partition cannot be cut at these keys; None: it can."""
        position = self.position_of(partition)
        if position is None:
            return f"partition {partition} is gone: it was split or joined before"
        inside = self.range_at(position)
        ascending = all(a < b for a, b in zip((inside.min, *keys), keys, strict=False))
        if not keys or not ascending or (inside.max is not None and keys[-1] >= inside.max):
            return f"the keys to split partition {partition} at do not ascend strictly inside it"
        return None

    def join(self, partitions: tuple[int, ...]) -> Partitions:
        """The partitions with two or more neighbours made one, which takes the next id.

        Raises DamagedError if they are no neighbours, given in key order.
        """
        first = self.position_of(partitions[0]) if partitions else None
        if first is None or len(partitions) < 2 or self.ids[first : first + len(partitions)] != partitions:
            raise Code.STATE_INCONSISTENT(
                f"cannot join partitions {', '.join(map(str, partitions))}: they are not neighbours in key order"
            )
        lower = self._lower
        for partition in partitions:
            lower = lower.remove(partition)
        return replace(
            self,
            boundaries=(*self.boundaries[:first], *self.boundaries[first + len(partitions) - 1 :]),
            ids=(*self.ids[:first], self.next_id, *self.ids[first + len(partitions) :]),
            next_id=self.next_id + 1,
            parents=self.parents.insert(self.next_id, partitions),
            _lower=lower.insert(self.next_id, self._lower[partitions[0]]),
        )
