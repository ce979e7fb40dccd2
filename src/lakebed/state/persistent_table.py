"""A mapping that is cheap to change and keeps what it was: a base, and the changes since on top of it.

A table may have millions of files and references, and each commit makes a new state of them. Copying a dictionary of
132,000 would cost some milliseconds a commit, so a state shares all that a commit did not touch: changes are a hash
trie, of which a commit copies a few nodes, over a base that never changes. The base may be columns that were read from
a checkpoint and are decoded row by row as they are asked for.

Pure. Order of iteration means nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar, overload

from rpds import HashTrieMap

from lakebed.state.columns import Columns

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

_GONE: Any = object()
_UNTOUCHED: Any = object()


class PersistentTable(Mapping[K, V], Generic[K, V]):
    """An immutable mapping; :meth:`updated` gives a changed one, in time that does not grow with its size."""

    __slots__ = ("_base", "_changes", "_count")

    def __init__(self, base: Mapping[K, V] | None = None) -> None:
        self._base: Mapping[K, V] = {} if base is None else base
        self._changes: HashTrieMap[K, Any] = HashTrieMap()
        self._count = len(self._base)

    @property
    def base(self) -> Mapping[K, V]:
        """What lies below the changes."""
        return self._base

    @property
    def changes(self) -> dict[K, V | None]:
        """What differs from the base; None: gone."""
        return {key: None if value is _GONE else value for key, value in self._changes.items()}

    def having(self, name: str) -> Iterator[V]:
        """The values of which that attribute is not None. Columns decode no others."""
        if isinstance(self._base, Columns):
            yield from (value for key, value in self._base.having(name) if key not in self._changes)
        else:
            yield from (v for k, v in self._base.items() if k not in self._changes and getattr(v, name) is not None)
        yield from (v for v in self._changes.values() if v is not _GONE and getattr(v, name) is not None)

    def updated(self, changed: Mapping[K, V], gone: Iterable[K] = ()) -> PersistentTable[K, V]:
        """With these values, and without those keys. Raises KeyError if one that should go is not there."""
        changes: dict[K, Any] = dict(changed)
        count = self._count + sum(key not in self for key in changed)
        for key in gone:
            if key not in self:
                raise KeyError(key)
            count -= 1
            changes[key] = _GONE
        made: PersistentTable[K, V] = PersistentTable.__new__(PersistentTable)
        made._base, made._changes, made._count = self._base, self._changes.update(changes), count
        return made

    def rebased_onto(self, rebased: PersistentTable[K, V], then: PersistentTable[K, V]) -> PersistentTable[K, V]:
        """The same over ``rested``, which ``then`` became, an earlier one that this came of; itself if it did not."""
        if self._base is not then._base:
            return self
        made: PersistentTable[K, V] = PersistentTable.__new__(PersistentTable)
        changed = {k: v for k, v in self._changes.items() if then._changes.get(k, _UNTOUCHED) is not v}
        made._base, made._changes, made._count = rebased._base, HashTrieMap(changed), self._count
        return made

    def at_least(self, name: str, least: int) -> PersistentTable[K, V]:
        """Without the values of which that attribute is less. Columns decode none, and keep what loses nothing."""
        base = self._base
        if isinstance(base, Columns):
            kept: PersistentTable[K, V] = PersistentTable(base.at_least(name, least))
        else:
            kept = PersistentTable({key: value for key, value in base.items() if getattr(value, name) >= least})
        changed = {k: v for k, v in self._changes.items() if v is not _GONE and getattr(v, name) >= least}
        return kept.updated(changed, [k for k in self._changes if k not in changed and k in kept])

    def __getitem__(self, key: K) -> V:
        found = self._changes.get(key, _UNTOUCHED)
        if found is _UNTOUCHED:
            return self._base[key]
        if found is _GONE:
            raise KeyError(key)
        return found  # type: ignore[no-any-return]

    @overload
    def get(self, key: K, default: None = None, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D, /) -> V | D: ...
    def get(self, key: K, default: Any = None, /) -> Any:
        """As of any mapping, without an exception for each key that is not there: a commit may ask for 132,000."""
        found = self._changes.get(key, _UNTOUCHED)
        if found is _UNTOUCHED:
            return self._base.get(key, default)
        return default if found is _GONE else found

    def __contains__(self, key: object) -> bool:
        found = self._changes.get(key, _UNTOUCHED)  # type: ignore[arg-type]
        return key in self._base if found is _UNTOUCHED else found is not _GONE

    def __iter__(self) -> Iterator[K]:
        yield from (key for key in self._base if key not in self._changes)
        yield from (key for key, value in self._changes.items() if value is not _GONE)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"PersistentTable({dict(self)!r})"
