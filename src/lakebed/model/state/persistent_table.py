"""A mapping whose versions share structure: an immutable base, and a delta of changes on top of it.

A table may have millions of files and references, and each commit makes a new state of them. Copying a dictionary of
132,000 would take some milliseconds a commit, so states share unchanged parts: the delta is a hash trie of which a
commit copies a few nodes, and the base never changes. The base may be the columns of a checkpoint, which are decoded
row by row when they are looked up.

Core types. :class:`PersistentTable`, and the :class:`MergeOperator` that defines what a change is: with
:data:`REPLACE`, the new value, or None for a removed key.

Rules. Pure. The order of iteration is not defined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar, overload

from msgspec import Struct
from rpds import HashTrieMap

from lakebed.model.state.columns import Columns

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

_UNTOUCHED: Any = object()

_Trail = tuple[Any, tuple[Any, ...]] | None
"""The keys of the last change, behind those of the changes before it since the base."""


class MergeOperator(Struct, Generic[K, V], frozen=True):
    """How the changes of a key are merged; the term is RocksDB's.

    ``merge`` applies a change to the base value of a key; None: removed. ``compose`` combines an older and a newer
    change. ``since`` returns the rest of a change after an earlier one became part of the base. Without ``compose`` and
    ``since``, the newer change replaces the older.
    """

    merge: Callable[[Mapping[K, V], K, Any], V | None]
    compose: Callable[[Any, Any], Any] | None = None
    since: Callable[[Any, Any], Any] | None = None


REPLACE: MergeOperator[Any, Any] = MergeOperator(lambda _base, _key, change: change)


class PersistentTable(Mapping[K, V], Generic[K, V]):
    """An immutable mapping; :meth:`changed` gives another, in time that does not grow with its size."""

    __slots__ = ("_base", "_delta", "_operator", "_trail")

    def __init__(
        self,
        base: Mapping[K, V] | None = None,
        operator: MergeOperator[K, V] = REPLACE,
        delta: HashTrieMap[K, Any] | None = None,
        trail: _Trail = None,
    ) -> None:
        self._base: Mapping[K, V] = {} if base is None else base
        self._operator = operator
        self._delta: HashTrieMap[K, Any] = HashTrieMap() if delta is None else delta
        self._trail = trail

    @property
    def base(self) -> Mapping[K, V]:
        """The mapping below the changes."""
        return self._base

    @property
    def changes(self) -> Changes[K, V]:
        """The keys that differ from the base, with their values; None: removed."""
        return Changes(self._delta, self.get)

    @property
    def delta(self) -> HashTrieMap[K, Any]:
        """The changes since the base, by key."""
        return self._delta

    def changed(self, changes: Mapping[K, Any]) -> PersistentTable[K, V]:
        """Return a table with changes of some keys, each composed with earlier changes."""
        if compose := self._operator.compose:
            older = ((key, self._delta.get(key, _UNTOUCHED), change) for key, change in changes.items())
            changes = {key: change if old is _UNTOUCHED else compose(old, change) for key, old, change in older}
        trail = (self._trail, tuple(changes))
        return PersistentTable(self._base, self._operator, self._delta.update(changes), trail)

    def changed_since(self, earlier: PersistentTable[K, V]) -> Iterable[K]:
        """Return the keys that were changed since an earlier version; all changed ones, if this was not made of it."""
        keys: set[K] = set()
        trail = self._trail
        while trail is not earlier._trail:
            if trail is None:
                return self._delta.keys()
            keys.update(trail[1])
            trail = trail[0]
        return keys if self._base is earlier._base else self._delta.keys()

    def updated(self, changed: Mapping[K, V], deletions: Iterable[K] = ()) -> PersistentTable[K, V]:
        """Return a table with these values and without the keys of ``deletions``. Raises KeyError if one is missing."""
        changes: dict[K, V | None] = dict(changed)
        for key in deletions:
            if key not in self:
                raise KeyError(key)
            changes[key] = None
        return self.changed(changes)

    def rebased_onto(self, rebased: PersistentTable[K, V], then: PersistentTable[K, V]) -> PersistentTable[K, V]:
        """Rebase onto ``rebased``, the rewritten form of the ancestor ``then``. Returns self if it is none."""
        if self._base is not then._base:
            return self
        since, changes = self._operator.since, {}
        for key, change in self._delta.items():
            old = then._delta.get(key, _UNTOUCHED)
            if old is not change:
                changes[key] = change if old is _UNTOUCHED or since is None else since(change, old)
        return PersistentTable(rebased._base, self._operator, HashTrieMap(changes))

    def having(self, name: str) -> Iterator[V]:
        """Return the items whose attribute is not None. Columns decode no other items."""
        rows = self._base.having(name) if isinstance(self._base, Columns) else self._base.items()
        yield from (value for key, value in rows if key not in self._delta and getattr(value, name) is not None)
        yield from (v for v in self.changes.values() if v is not None and getattr(v, name) is not None)

    def at_least(self, name: str, least: int) -> PersistentTable[K, V]:
        """Return the items whose attribute is at least ``least``. Columns decode none, and share unchanged segments."""
        base = self._base
        if isinstance(base, Columns):
            kept: Mapping[K, V] = base.at_least(name, least)
        else:
            kept = {key: value for key, value in base.items() if getattr(value, name) >= least}
        changed = {k: v for k, v in self.changes.items() if v is not None and getattr(v, name) >= least}
        return PersistentTable(kept).updated(changed, [k for k in self._delta if k not in changed and k in kept])

    def __getitem__(self, key: K) -> V:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    @overload
    def get(self, key: K, default: None = None, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D, /) -> V | D: ...
    def get(self, key: K, default: Any = None, /) -> Any:
        """As Mapping.get, without an exception for each missing key: a commit may look up 132,000."""
        change = self._delta.get(key, _UNTOUCHED)
        if change is _UNTOUCHED:
            return self._base.get(key, default)
        value = self._operator.merge(self._base, key, change)
        return default if value is None else value

    def __contains__(self, key: object) -> bool:
        change = self._delta.get(key, _UNTOUCHED)  # type: ignore[arg-type]
        if change is _UNTOUCHED:
            return key in self._base
        return self._operator.merge(self._base, key, change) is not None  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[K]:
        yield from (key for key in self._base if key not in self._delta)
        yield from (key for key in self._delta if key in self)

    def __len__(self) -> int:
        """Looks up each changed key in the base."""
        base, merge = self._base, self._operator.merge
        return len(base) + sum(
            (merge(base, key, change) is not None) - (key in base) for key, change in self._delta.items()
        )

    def __repr__(self) -> str:
        return f"PersistentTable({dict(self)!r})"


class Changes(Mapping[K, "V | None"], Generic[K, V]):
    """The changed keys of a table; a value is merged when it is looked up."""

    __slots__ = ("_delta", "_get")

    def __init__(self, delta: HashTrieMap[K, Any], get: Callable[[K], V | None]) -> None:
        self._delta = delta
        self._get = get

    def __getitem__(self, key: K) -> V | None:
        if key not in self._delta:
            raise KeyError(key)
        return self._get(key)

    def __contains__(self, key: object) -> bool:
        return key in self._delta

    def __iter__(self) -> Iterator[K]:
        return iter(self._delta)

    def __len__(self) -> int:
        return len(self._delta)
