"""What each leaf refers to: a base that never changes, and on top of it, leaf by leaf, what came and went since.

A commit notes what it changed and looks at nothing else: to add a file to a leaf is to remember it there, whatever the
leaf holds already. So a commit of files reads no part of a snapshot, and one that reaches all leaves of a large table
takes the memory of its own references and not of all. The two are put together when someone asks for the leaf.

What was put together stays at hand, up to a bound, for as long as no file goes; what comes is put behind it. A hundred
files of a leaf take a third of a millisecond to decode, longer than a lookup among them takes.

Pure. Order of iteration over leaves means nothing; the files of a leaf are in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rpds import HashTrieMap

from lakebed.files import LeafFile
from lakebed.state.columns import Columns

Held = tuple[LeafFile, ...]


FACTS_BYTES = 150
"""A part has the facts of each file that it names: two ids of 36 characters, two digests of 32, counts."""

AT_HAND_MAX = 16_384
"""References at hand: about 0.7 kB each, so 11 MB of each open table."""


@dataclass(frozen=True, slots=True)
class _Change:
    """What differs from the base in one leaf: ids of files that went, and files that came."""

    gone: frozenset[str] = frozenset()
    came: Held = ()

    def since(self, then: _Change) -> _Change:
        """What differs from the base with an earlier change on it, of which this one came."""
        count = len(then.came)
        if self.gone == then.gone and self.came[:count] == then.came:
            return _Change(frozenset(), self.came[count:])
        # What had come goes, and comes again as far as it is there. None of it is in the base still: a leaf refers to a
        # file once, so one that came again had gone.
        return _Change((self.gone - then.gone).union(one.file.id for one in then.came), self.came)


_NONE = _Change()


class _AtHand:
    """What leaves over one base held when they were looked at last. Safe to use from many threads."""

    __slots__ = ("_count", "_held")

    def __init__(self) -> None:
        self._held: dict[int, tuple[_Change, Held]] = {}
        self._count = 0

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._held))

    def of(self, changes: Mapping[int, _Change]) -> _AtHand:
        """What leaves hold with these changes on their base, for a base that has them."""
        made = _AtHand()
        for leaf, change in changes.items():
            if held := self.get(leaf, change):
                made.keep(leaf, _NONE, held)
        return made

    def get(self, leaf: int, change: _Change) -> Held | None:
        """What the leaf holds with this change on its base, if that is at hand, or all but what came last."""
        change_then, held = self._held.get(leaf, (change, None))
        if held is None or change_then is change:
            return held
        count = len(change_then.came)
        if change.gone != change_then.gone or change.came[:count] != change_then.came:
            return None
        held = (*held, *change.came[count:])
        self.keep(leaf, change, held)
        return held

    def keep(self, leaf: int, change: _Change, held: Held) -> None:
        """Have it at hand; when there is too much, begin anew."""
        # Two threads may count past one another, which moves the bound by a leaf.
        if self._count >= AT_HAND_MAX:
            self._held, self._count = {}, 0
        _, before = self._held.get(leaf, (None, ()))
        self._count += len(held) - len(before)
        self._held[leaf] = (change, held)


class LeafFiles(Mapping[int, Held]):
    """An immutable mapping from leaf ids to the files that they refer to; a leaf that refers to none is not in it."""

    __slots__ = ("_at_hand", "_base", "_changes")

    def __init__(self, base: Mapping[int, Held] | None = None) -> None:
        self._base: Mapping[int, Held] = {} if base is None else base
        self._changes: HashTrieMap[int, _Change] = HashTrieMap()
        self._at_hand = _AtHand()

    @property
    def base(self) -> Mapping[int, Held]:
        """What lies below the changes."""
        return self._base

    @property
    def changes(self) -> Mapping[int, Held | None]:
        """The leaves that differ from the base and what they hold now; None: nothing. Put together as it is asked."""
        return _Changed(self, self._changes)

    def exceeds(self, leaf: int, count: int) -> bool:
        """Whether the leaf refers to more files than ``count``. Decodes none; reads no part that cannot hold them."""
        change = self._changes.get(leaf, _NONE)
        left = count - len(change.came) + len(change.gone)
        if left < 0:
            return True
        if isinstance(self._base, Columns):
            return self._base.length(leaf, "file", bytes_min=left * FACTS_BYTES) > left
        return len(self._base.get(leaf, ())) > left

    def added(self, came: Mapping[int, Sequence[LeafFile]]) -> LeafFiles:
        """With these files behind those that the leaves hold."""
        old = {leaf: self._changes.get(leaf, _NONE) for leaf in came}
        return self._with({leaf: _Change(old[leaf].gone, (*old[leaf].came, *files)) for leaf, files in came.items()})

    def dropped(self, gone: Mapping[int, Collection[str]]) -> LeafFiles:
        """Without the files of these ids, which the leaves hold."""
        changes = {}
        for leaf, ids in gone.items():
            old = self._changes.get(leaf, _NONE)
            changes[leaf] = _Change(old.gone.union(ids), tuple(one for one in old.came if one.file.id not in ids))
        return self._with(changes)

    def rested(self, base: Mapping[int, Held]) -> LeafFiles:
        """The same over a base that holds all of it. What is at hand stays so."""
        made = LeafFiles(base)
        made._at_hand = self._at_hand.of({leaf: self._changes.get(leaf, _NONE) for leaf in self._at_hand})
        return made

    def resting_on(self, rested: LeafFiles, then: LeafFiles) -> LeafFiles:
        """The same over ``rested``, which ``then`` became, an earlier one that this came of; itself if it did not."""
        if self._base is not then._base:
            return self
        made: LeafFiles = LeafFiles.__new__(LeafFiles)
        since = {leaf: (change, then._changes.get(leaf, _NONE)) for leaf, change in self._changes.items()}
        changed = {leaf: change.since(old) for leaf, (change, old) in since.items() if change is not old}
        made._base, made._changes, made._at_hand = rested._base, HashTrieMap(changed), rested._at_hand
        return made

    def _with(self, changes: Mapping[int, _Change]) -> LeafFiles:
        made: LeafFiles = LeafFiles.__new__(LeafFiles)
        made._base, made._changes, made._at_hand = self._base, self._changes.update(changes), self._at_hand
        return made

    def __getitem__(self, leaf: int) -> Held:
        change = self._changes.get(leaf, _NONE)
        found = self._at_hand.get(leaf, change)
        if found is not None:
            return found
        held = self._base.get(leaf, ())
        if change is not _NONE:
            kept = (one for one in held if one.file.id not in change.gone) if change.gone else held
            held = (*kept, *change.came)
        if not held:
            raise KeyError(leaf)
        self._at_hand.keep(leaf, change, held)
        return held

    def __iter__(self) -> Iterator[int]:
        yield from (leaf for leaf in self._base if leaf not in self._changes)
        yield from (leaf for leaf in self._changes if leaf in self)

    def __len__(self) -> int:
        changed = self._changes
        return len(self._base) + sum((leaf in self) - (leaf in self._base) for leaf in changed)

    def __repr__(self) -> str:
        return f"LeafFiles({dict(self)!r})"


class _Changed(Mapping[int, "Held | None"]):
    __slots__ = ("_all", "_changes")

    def __init__(self, held: LeafFiles, changes: HashTrieMap[int, _Change]) -> None:
        self._all = held
        self._changes = changes

    def __getitem__(self, leaf: int) -> Held | None:
        if leaf not in self._changes:
            raise KeyError(leaf)
        return self._all.get(leaf)

    def __contains__(self, leaf: object) -> bool:
        return leaf in self._changes

    def __iter__(self) -> Iterator[int]:
        return iter(self._changes)

    def __len__(self) -> int:
        return len(self._changes)
