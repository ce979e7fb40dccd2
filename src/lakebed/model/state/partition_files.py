"""The files of each partition: a persistent table whose delta has the added and dropped files.

A commit records its changes and reads nothing else: adding a file to a partition does not read the partition's files.
So a commit reads no segment of a checkpoint, and one that reaches all partitions of a large table takes the memory of
its own references only. Base and changes are merged when a partition is looked up.

Merged values are cached, up to a bound. Files added later are appended to the cached value: decoding the hundred files
of a partition takes a third of a millisecond, longer than a lookup in them.

Rules. Pure. The files of a partition are in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from lakebed.model.files import PartitionFile
from lakebed.model.state.columns import Columns
from lakebed.model.state.persistent_table import Changes, MergeOperator, PersistentTable

if TYPE_CHECKING:
    from rpds import HashTrieMap

Held = tuple[PartitionFile, ...]
Sums = TypeVar("Sums")


FACTS_BYTES = 150
"""The stored bytes of a file's facts in a segment: two ids of 36 characters, two digests of 32, counts."""

CACHED_MAX = 16_384
"""References in the cache: about 0.7 kB each, so 11 MB of each open table."""


class _Change(Struct, frozen=True):
    """The changes of one partition since the base: ids of dropped files, and added files."""

    removals: frozenset[str] = frozenset()
    additions: Held = ()


_NONE = _Change()


def _merge(base: Mapping[int, Held], partition: int, change: _Change) -> Held | None:
    references = base.get(partition, ())
    kept = [one for one in references if one.file.id not in change.removals] if change.removals else references
    return (*kept, *change.additions) or None


def _compose(old: _Change, new: _Change) -> _Change:
    if not new.removals:
        return _Change(old.removals, (*old.additions, *new.additions))
    # A file that was added since the base, and is not in it, leaves no trace.
    removals = old.removals | new.removals.difference([one.file.id for one in old.additions])
    return _Change(removals, (*(one for one in old.additions if one.file.id not in new.removals), *new.additions))


def _since(change: _Change, then: _Change) -> _Change:
    count = len(then.additions)
    if change.removals == then.removals and change.additions[:count] == then.additions:
        return _Change(frozenset(), change.additions[count:])
    # Drop all files that the earlier change added, and add those that are still there. A partition refers to a file
    # once, so a file that was added again had been dropped before.
    return _Change((change.removals - then.removals).union(one.file.id for one in then.additions), change.additions)


_FILES: MergeOperator[int, Held] = MergeOperator(_merge, _compose, _since)


class _Cache:
    """The files of partitions over one base, as of their last lookup. Safe to use from many threads."""

    __slots__ = ("_count", "_held")

    def __init__(self) -> None:
        self._held: dict[int, tuple[_Change, Held]] = {}
        self._count = 0

    def rebased(self, delta: HashTrieMap[int, _Change]) -> _Cache:
        """Return the cache for a base that includes the changes of ``delta``."""
        cache = _Cache()
        for partition in tuple(self._held):
            if references := self.get(partition, delta.get(partition, _NONE)):
                cache.keep(partition, _NONE, references)
        return cache

    def get(self, partition: int, change: _Change) -> Held | None:
        """Return a partition's files with this change: the cached ones and those added since; None if not cached."""
        change_then, references = self._held.get(partition, (change, None))
        if references is None or change_then is change:
            return references
        count = len(change_then.additions)
        if change.removals != change_then.removals or change.additions[:count] != change_then.additions:
            return None
        references = (*references, *change.additions[count:])
        self.keep(partition, change, references)
        return references

    def keep(self, partition: int, change: _Change, references: Held) -> None:
        """Cache the files of a partition; a full cache is emptied first."""
        # A race of two threads makes the count wrong by one partition.
        if self._count >= CACHED_MAX:
            self._held, self._count = {}, 0
        _, before = self._held.get(partition, (None, ()))
        self._count += len(references) - len(before)
        self._held[partition] = (change, references)


class PartitionFiles(Mapping[int, Held]):
    """An immutable mapping from partition ids to their files. It has no partitions without files."""

    __slots__ = ("_cache", "_delta", "_sums", "_table")

    def __init__(
        self,
        base: Mapping[int, Held] | None = None,
        *,
        table: PersistentTable[int, Held] | None = None,
        cache: _Cache | None = None,
    ) -> None:
        """Make a table over ``base`` without changes, or a view of ``table`` with a cache."""
        self._table = PersistentTable(base, _FILES) if table is None else table
        self._delta: HashTrieMap[int, _Change] = self._table.delta
        self._cache = cache or _Cache()
        self._sums: Mapping[int, Any] | None = None

    @property
    def base(self) -> Mapping[int, Held]:
        """The mapping below the changes."""
        return self._table.base

    @property
    def changes(self) -> Changes[int, Held]:
        """The partitions that differ from the base, with their current files; None: no files."""
        return Changes(self._delta, self.get)

    def sums(self, compute: Callable[[], Mapping[int, Sums]]) -> Mapping[int, Sums]:
        """Return what ``compute`` returns of these files, which is called once for them."""
        if self._sums is None:
            self._sums = MappingProxyType(compute())
        return self._sums

    def changed_since(self, earlier: PartitionFiles) -> Iterable[int]:
        """Return the partitions whose files were changed since, as :meth:`PersistentTable.changed_since` does."""
        return self._table.changed_since(earlier._table)

    def moves(self, partition: int, earlier: PartitionFiles) -> tuple[Sequence[PartitionFile], Collection[str]]:
        """Return the files that joined a partition since an earlier version of the same base, and the ids of those that
        left. Reads neither.
        """
        new, old = self._delta.get(partition, _NONE), earlier._delta.get(partition, _NONE)
        if new.removals is old.removals and new.additions[: len(old.additions)] == old.additions:
            return new.additions[len(old.additions) :], ()
        before, after = {one.file.id for one in old.additions}, {one.file.id for one in new.additions}
        # Files that the base has, and that were there before.
        before |= new.removals - old.removals
        return [one for one in new.additions if one.file.id not in before], before - after

    def exceeds(self, partition: int, count: int) -> bool:
        """Return whether the partition has more than ``count`` files. Decodes none; reads only segments large
        enough.
        """
        change = self._delta.get(partition, _NONE)
        room = count - len(change.additions) + len(change.removals)
        if room < 0:
            return True
        if isinstance(self.base, Columns):
            return self.base.length(partition, "file", bytes_min=room * FACTS_BYTES) > room
        return len(self.base.get(partition, ())) > room

    def add(self, additions: Mapping[int, Sequence[PartitionFile]]) -> PartitionFiles:
        """Return a table with these files appended to those of their partitions."""
        return self._with({partition: _Change(additions=tuple(files)) for partition, files in additions.items()})

    def drop(self, removals: Mapping[int, Collection[str]]) -> PartitionFiles:
        """Return a table without the files of these ids, by partition. Requires that the partitions have them."""
        return self._with({partition: _Change(removals=frozenset(ids)) for partition, ids in removals.items()})

    def rebased(self, base: Mapping[int, Held]) -> PartitionFiles:
        """Return the same mapping over a base that includes all changes. The cache is kept."""
        return PartitionFiles(base, cache=self._cache.rebased(self._delta))

    def rebased_onto(self, rebased: PartitionFiles, then: PartitionFiles) -> PartitionFiles:
        """Rebase as :meth:`PersistentTable.rebased_onto` does."""
        table = self._table.rebased_onto(rebased._table, then._table)
        return self if table is self._table else PartitionFiles(table=table, cache=rebased._cache)

    def _with(self, changes: Mapping[int, _Change]) -> PartitionFiles:
        return PartitionFiles(table=self._table.changed(changes), cache=self._cache)

    def __getitem__(self, partition: int) -> Held:
        change = self._delta.get(partition, _NONE)
        references = self._cache.get(partition, change)
        if references is None:
            references = self._table[partition]
            self._cache.keep(partition, change, references)
        return references

    def __iter__(self) -> Iterator[int]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return f"PartitionFiles({dict(self)!r})"
