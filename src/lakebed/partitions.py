"""The leaves: key ranges that cover the key space without gap or overlap, as a sorted array of boundary keys.

Leaf ``ids[i]`` holds the keys in ``[lower(i), lower(i + 1))``; the first begins at the empty string, below every key,
and the last has no end. Ids are never reused: a split gives every part a new one and remembers the parent, for
history and pictures only. Pure: no I/O.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace

from lakebed.errors import DamagedError
from lakebed.keys import EncodedRange


@dataclass(frozen=True, slots=True)
class Leaves:
    """All leaves of a table. ``boundaries`` ascend strictly; there is one id more than boundaries."""

    boundaries: tuple[bytes, ...] = ()
    ids: tuple[int, ...] = (1,)
    next_id: int = 2
    parents: dict[int, int] = field(default_factory=dict)
    _positions: dict[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ascending = all(a < b for a, b in zip((b"", *self.boundaries), self.boundaries, strict=False))
        if not ascending or len(self.ids) != len(self.boundaries) + 1 or len(set(self.ids)) != len(self.ids):
            raise DamagedError("the leaves do not tile the key space", boundaries=self.boundaries, ids=self.ids)
        object.__setattr__(self, "_positions", {leaf: position for position, leaf in enumerate(self.ids)})

    @classmethod
    def at(cls, boundaries: tuple[bytes, ...]) -> Leaves:
        """Fresh leaves cut at these ascending boundaries."""
        count = len(boundaries) + 1
        return cls(boundaries, tuple(range(1, count + 1)), count + 1)

    def __len__(self) -> int:
        return len(self.ids)

    def position(self, key: bytes) -> int:
        """Where the leaf that holds the key stands, by binary search."""
        return bisect_right(self.boundaries, key)

    def range_at(self, position: int) -> EncodedRange:
        """The key range of the leaf at a position."""
        lower = self.boundaries[position - 1] if position else b""
        upper = self.boundaries[position] if position < len(self.boundaries) else None
        return EncodedRange(lower, upper)

    def position_of(self, leaf: int) -> int | None:
        """Where the leaf of that id stands; None if it is gone."""
        return self._positions.get(leaf)

    def overlapping(self, keys: EncodedRange) -> range:
        """Positions of the leaves that share a key with the range, in key order."""
        if keys.empty:
            return range(0)
        last = len(self.boundaries) if keys.max is None else bisect_left(self.boundaries, keys.max)
        return range(self.position(keys.min), last + 1)

    def inside(self, keys: EncodedRange) -> tuple[bytes, ...]:
        """Boundaries strictly inside the range."""
        last = len(self.boundaries) if keys.max is None else bisect_left(self.boundaries, keys.max)
        return self.boundaries[bisect_right(self.boundaries, keys.min) : last]

    def split(self, leaf: int, keys: tuple[bytes, ...]) -> Leaves:
        """The leaves with one cut at ascending keys strictly inside it; the parts get the next ids in key order."""
        position = self._positions[leaf]
        parts = tuple(range(self.next_id, self.next_id + len(keys) + 1))
        return replace(
            self,
            boundaries=(*self.boundaries[:position], *keys, *self.boundaries[position:]),
            ids=(*self.ids[:position], *parts, *self.ids[position + 1 :]),
            next_id=self.next_id + len(parts),
            parents={**self.parents, **dict.fromkeys(parts, leaf)},
        )
