"""What this process keeps of data files between reads: one cache for all its tables, of a size that it is told.

Files are immutable, so what is kept is right for ever; what is not kept is read again, and no answer depends on it.
Kept are

* ``files``: decoded footers, and whole copies of small files from stores that are not local disk;
* ``pages``: decoded page indexes;
* ``filters``: the membership filters of files that overlap, and which of them a partition's files have.

What was used least recently goes first. Sizes are estimates from above: a decoded footer takes some times the bytes
that it has in the file. Not counted are what a query holds while it runs, and what the engine of wide reads keeps of
footers (256 MiB at the most for each table).

Core types: :class:`ReadCache`, and :class:`ReadStatistics`, which counts what one read did beside it: the same counters
on every read, shown by ``Table.explain``.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from lakebed import clock
from lakebed.errors import Code
from lakebed.model.checks import is_whole, shown

READ_CACHE_BYTES = 1024 * 1024 * 1024


@dataclass(slots=True)
class ReadStatistics:
    """Counts of one read, used by one thread. Bytes are those of pages, indexes and dictionaries as they are stored.

    ``files`` are those that were opened to read rows. ``steps`` has seconds by name, in the order in which the steps
    began; a repeated step adds to its own.
    """

    files_by_filter: int = 0
    files: set[str] = field(default_factory=set)
    row_groups: int = 0
    pages: int = 0
    size_bytes: int = 0
    rows: int = 0
    engine: bool = False
    steps: dict[str, float] = field(default_factory=dict)

    def add(self, other: ReadStatistics) -> None:
        """Count what another thread did for the same read, but for its steps, which are this one's."""
        self.files_by_filter += other.files_by_filter
        self.files |= other.files
        self.row_groups += other.row_groups
        self.pages += other.pages
        self.size_bytes += other.size_bytes
        self.rows += other.rows
        self.engine |= other.engine

    def step(self, name: str) -> _Step:
        """Time what is done inside the block."""
        return _Step(self.steps, name)


@dataclass(slots=True)
class _Step:
    """A class, not a generator: a lookup has several steps of microseconds each."""

    steps: dict[str, float]
    name: str
    began_s: float = 0.0

    def __enter__(self) -> None:
        self.began_s = clock.monotonic_s()

    def __exit__(self, *raised: object) -> None:
        self.steps[self.name] = self.steps.get(self.name, 0.0) + clock.monotonic_s() - self.began_s


class CacheKind(StrEnum):
    """What is kept."""

    FILES = "files"
    PAGES = "pages"
    FILTERS = "filters"


@dataclass(frozen=True, slots=True)
class KindStats:
    """What is kept of one kind, and how often it was asked for since the process began."""

    entries: int
    size_bytes: int
    hits: int
    misses: int

    @property
    def hit_rate(self) -> float:
        """The share of asks that were answered; 0 where nothing was asked."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0


@dataclass(frozen=True, slots=True)
class ReadCacheStats:
    """What this process keeps of data files, and its bound. ``str()`` is for people, :meth:`to_dict` for programs."""

    bytes_max: int
    files: KindStats
    pages: KindStats
    filters: KindStats

    @property
    def size_bytes(self) -> int:
        """What is kept in all."""
        return self.files.size_bytes + self.pages.size_bytes + self.filters.size_bytes

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        kinds = {
            kind.value: {
                "entries": found.entries,
                "size_bytes": found.size_bytes,
                "hits": found.hits,
                "misses": found.misses,
                "hit_rate": found.hit_rate,
            }
            for kind in CacheKind
            for found in (getattr(self, kind.value),)
        }
        return {"bytes_max": self.bytes_max, "size_bytes": self.size_bytes, **kinds}

    def __str__(self) -> str:
        lines = [f"{self.size_bytes:,} of {self.bytes_max:,} bytes"]
        for kind in CacheKind:
            found: KindStats = getattr(self, kind.value)
            lines.append(
                f"{kind.value:8}{found.entries:10,} entries {found.size_bytes:15,} bytes"
                f" {found.hits:12,} hits {found.misses:10,} misses {found.hit_rate:7.1%}"
            )
        return "\n".join(lines)


class ReadCache:
    """Values by kind and name, each with the bytes that it counts for. Safe to use from many threads."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._size_bytes = 0
        self._entries: OrderedDict[tuple[CacheKind, Hashable], tuple[Any, int]] = OrderedDict()
        self._hits = dict.fromkeys(CacheKind, 0)
        self._misses = dict.fromkeys(CacheKind, 0)
        self._changing = threading.Lock()

    def get(self, kind: CacheKind, name: Hashable) -> Any | None:
        """The value; None: it is not kept."""
        key = (kind, name)
        with self._changing:
            found = self._entries.get(key)
            if found is None:
                self._misses[kind] += 1
                return None
            self._hits[kind] += 1
            self._entries.move_to_end(key)
            return found[0]

    def get_many(self, kind: CacheKind, keys: Sequence[tuple[CacheKind, Hashable]]) -> list[Any | None]:
        """As :meth:`get` for many of one kind, whose keys the caller has at hand."""
        entries = self._entries
        with self._changing:
            found = [entries.get(key) for key in keys]
            missing = found.count(None)
            self._misses[kind] += missing
            self._hits[kind] += len(keys) - missing
            for key, value in zip(keys, found, strict=True):
                if value is not None:
                    entries.move_to_end(key)
        return [None if value is None else value[0] for value in found]

    def keep(self, kind: CacheKind, name: Hashable, value: Any, size_bytes: int) -> None:
        """Keep the value, as what was used last. One that is larger than the bound is not kept."""
        key = (kind, name)
        with self._changing:
            self._drop(key)
            if size_bytes > self._bytes_max:
                return
            self._entries[key] = (value, size_bytes)
            self._size_bytes += size_bytes
            self._shrink()

    def drop(self, *names: str) -> None:
        """Drop all values of these names, and of names that are tuples which begin with one. Linear in what is kept."""
        gone = set(names)
        with self._changing:
            for key in list(self._entries):
                if (key[1][0] if isinstance(key[1], tuple) else key[1]) in gone:
                    self._drop(key)

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether so much may be kept together without pushing out most of the rest."""
        return size_bytes <= self._bytes_max // 2

    def limit(self, bytes_max: int) -> None:
        """Change the bound; what is above it goes at once."""
        with self._changing:
            self._bytes_max = bytes_max
            self._shrink()

    def stats(self) -> ReadCacheStats:
        """What is kept now, and what was asked for so far. Linear in what is kept."""
        with self._changing:
            entries, sizes = dict.fromkeys(CacheKind, 0), dict.fromkeys(CacheKind, 0)
            for (kind, _), (_, size_bytes) in self._entries.items():
                entries[kind] += 1
                sizes[kind] += size_bytes
            kinds = [KindStats(entries[k], sizes[k], self._hits[k], self._misses[k]) for k in CacheKind]
            return ReadCacheStats(self._bytes_max, *kinds)

    def _drop(self, key: tuple[CacheKind, Hashable]) -> None:
        gone = self._entries.pop(key, None)
        self._size_bytes -= 0 if gone is None else gone[1]

    def _shrink(self) -> None:
        while self._size_bytes > self._bytes_max and self._entries:
            _, (_, size_bytes) = self._entries.popitem(last=False)
            self._size_bytes -= size_bytes


READ_CACHE = ReadCache(READ_CACHE_BYTES)
"""The one of this process: memory is the process's, however many instances and tables it opens."""


def set_read_cache_bytes(size_bytes: int) -> None:
    """Bound what this process keeps of data files, of all its tables; 1 GiB unless it is changed. 0 keeps nothing.

    See :mod:`lakebed.parquet.read_cache` for what is counted. Raises UsageError.
    """
    if not is_whole(size_bytes):
        raise Code.ARGUMENT_INVALID(f"size_bytes = {shown(size_bytes)}: must be a whole number of bytes, 0 or more")
    READ_CACHE.limit(size_bytes)


def read_cache_stats() -> ReadCacheStats:
    """What this process keeps of data files, and how often what was asked for was there."""
    return READ_CACHE.stats()
