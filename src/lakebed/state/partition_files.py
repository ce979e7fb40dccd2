"""What each partition refers to: a base that never changes, and on top of it, partition by partition, what came and
went since.

A commit notes what it changed and looks at nothing else: to add a file to a partition is to remember it there, whatever
the partition holds already. So a commit of files reads no part of a checkpoint, and one that reaches all partitions of
a large table takes the memory of its own references and not of all. The two are put together when someone asks for the
partition.

What was put together stays at hand, up to a bound, for as long as no file goes; what comes is put behind it. A hundred
files of a partition take a third of a millisecond to decode, longer than a lookup among them takes.

Pure. Order of iteration over partitions means nothing; the files of a partition are in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rpds import HashTrieMap

from lakebed.model.files import PartitionFile
from lakebed.state.columns import Columns

Held = tuple[PartitionFile, ...]


FACTS_BYTES = 150
"""A part has the facts of each file that it names: two ids of 36 characters, two digests of 32, counts."""

AT_HAND_MAX = 16_384
"""References at hand: about 0.7 kB each, so 11 MB of each open table."""


@dataclass(frozen=True, slots=True)
class _Change:
    """What differs from the base in one partition: ids of files that went, and files that came."""

    gone: frozenset[str] = frozenset()
    came: Held = ()

    def since(self, then: _Change) -> _Change:
        """What differs from the base with an earlier change on it, of which this one came."""
        count = len(then.came)
        if self.gone == then.gone and self.came[:count] == then.came:
            return _Change(frozenset(), self.came[count:])
        # What had come goes, and comes again as far as it is there. None of it is in the base still: a partition refers
        # to a file once, so one that came again had gone.
        return _Change((self.gone - then.gone).union(one.file.id for one in then.came), self.came)


_NONE = _Change()


class _Cache:
    """What partitions over one base held when they were looked at last. Safe to use from many threads."""

    __slots__ = ("_count", "_held")

    def __init__(self) -> None:
        self._held: dict[int, tuple[_Change, Held]] = {}
        self._count = 0

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._held))

    def of(self, changes: Mapping[int, _Change]) -> _Cache:
        """What partitions hold with these changes on their base, for a base that has them."""
        made = _Cache()
        for partition, change in changes.items():
            if held := self.get(partition, change):
                made.keep(partition, _NONE, held)
        return made

    def get(self, partition: int, change: _Change) -> Held | None:
        """What the partition holds with this change on its base, if that is at hand, or all but what came last."""
        change_then, held = self._held.get(partition, (change, None))
        if held is None or change_then is change:
            return held
        count = len(change_then.came)
        if change.gone != change_then.gone or change.came[:count] != change_then.came:
            return None
        held = (*held, *change.came[count:])
        self.keep(partition, change, held)
        return held

    def keep(self, partition: int, change: _Change, held: Held) -> None:
        """Have it at hand; when there is too much, begin anew."""
        # Two threads may count past one another, which moves the bound by a partition.
        if self._count >= AT_HAND_MAX:
            self._held, self._count = {}, 0
        _, before = self._held.get(partition, (None, ()))
        self._count += len(held) - len(before)
        self._held[partition] = (change, held)


class PartitionFiles(Mapping[int, Held]):
    """An immutable mapping from partition ids to the files that they refer to; a partition that refers to none is not
    in it.
    """

    __slots__ = ("_base", "_cache", "_changes")

    def __init__(self, base: Mapping[int, Held] | None = None) -> None:
        self._base: Mapping[int, Held] = {} if base is None else base
        self._changes: HashTrieMap[int, _Change] = HashTrieMap()
        self._cache = _Cache()

    @property
    def base(self) -> Mapping[int, Held]:
        """What lies below the changes."""
        return self._base

    @property
    def changes(self) -> Mapping[int, Held | None]:
        """The partitions that differ from the base and what they hold now; None: nothing. Put together as it is
        asked.
        """
        return _Changed(self, self._changes)

    def exceeds(self, partition: int, count: int) -> bool:
        """Whether the partition refers to more files than ``count``. Decodes none; reads no part that cannot hold
        them.
        """
        change = self._changes.get(partition, _NONE)
        left = count - len(change.came) + len(change.gone)
        if left < 0:
            return True
        if isinstance(self._base, Columns):
            return self._base.length(partition, "file", bytes_min=left * FACTS_BYTES) > left
        return len(self._base.get(partition, ())) > left

    def added(self, came: Mapping[int, Sequence[PartitionFile]]) -> PartitionFiles:
        """With these files behind those that the partitions hold."""
        old = {partition: self._changes.get(partition, _NONE) for partition in came}
        return self._with(
            {
                partition: _Change(old[partition].gone, (*old[partition].came, *files))
                for partition, files in came.items()
            }
        )

    def dropped(self, gone: Mapping[int, Collection[str]]) -> PartitionFiles:
        """Without the files of these ids, which the partitions hold."""
        changes = {}
        for partition, ids in gone.items():
            old = self._changes.get(partition, _NONE)
            changes[partition] = _Change(old.gone.union(ids), tuple(one for one in old.came if one.file.id not in ids))
        return self._with(changes)

    def rebased(self, base: Mapping[int, Held]) -> PartitionFiles:
        """The same over a base that holds all of it. What is at hand stays so."""
        made = PartitionFiles(base)
        made._cache = self._cache.of({partition: self._changes.get(partition, _NONE) for partition in self._cache})
        return made

    def rebased_onto(self, rebased: PartitionFiles, then: PartitionFiles) -> PartitionFiles:
        """The same over ``rested``, which ``then`` became, an earlier one that this came of; itself if it did not."""
        if self._base is not then._base:
            return self
        made: PartitionFiles = PartitionFiles.__new__(PartitionFiles)
        since = {
            partition: (change, then._changes.get(partition, _NONE)) for partition, change in self._changes.items()
        }
        changed = {partition: change.since(old) for partition, (change, old) in since.items() if change is not old}
        made._base, made._changes, made._cache = rebased._base, HashTrieMap(changed), rebased._cache
        return made

    def _with(self, changes: Mapping[int, _Change]) -> PartitionFiles:
        made: PartitionFiles = PartitionFiles.__new__(PartitionFiles)
        made._base, made._changes, made._cache = self._base, self._changes.update(changes), self._cache
        return made

    def __getitem__(self, partition: int) -> Held:
        change = self._changes.get(partition, _NONE)
        found = self._cache.get(partition, change)
        if found is not None:
            return found
        held = self._base.get(partition, ())
        if change is not _NONE:
            kept = (one for one in held if one.file.id not in change.gone) if change.gone else held
            held = (*kept, *change.came)
        if not held:
            raise KeyError(partition)
        self._cache.keep(partition, change, held)
        return held

    def __iter__(self) -> Iterator[int]:
        yield from (partition for partition in self._base if partition not in self._changes)
        yield from (partition for partition in self._changes if partition in self)

    def __len__(self) -> int:
        changed = self._changes
        return len(self._base) + sum((partition in self) - (partition in self._base) for partition in changed)

    def __repr__(self) -> str:
        return f"PartitionFiles({dict(self)!r})"


class _Changed(Mapping[int, "Held | None"]):
    __slots__ = ("_all", "_changes")

    def __init__(self, held: PartitionFiles, changes: HashTrieMap[int, _Change]) -> None:
        self._all = held
        self._changes = changes

    def __getitem__(self, partition: int) -> Held | None:
        if partition not in self._changes:
            raise KeyError(partition)
        return self._all.get(partition)

    def __contains__(self, partition: object) -> bool:
        return partition in self._changes

    def __iter__(self) -> Iterator[int]:
        return iter(self._changes)

    def __len__(self) -> int:
        return len(self._changes)
