"""The read cache of a process, for data files of all its tables, and the statistics of one read.

Core types: :class:`ReadCache`, bounded in bytes, which evicts the least recently used entry first;
:class:`ReadStatistics`, which every read fills in and ``Table.explain`` shows. The cache has four kinds of entries:

* ``files``: decoded footers, and copies of small files from object stores;
* ``pages``: decoded page indexes;
* ``rows``: decoded pages of columns, of reads that take few pages, and decoded columns of small files that an index
  has no entries of;
* ``filters``: Bloom filters of files that overlap, and where they lie in these files.

Rules: files are immutable, so entries stay valid; an evicted entry is read again, and no result depends on the cache.
Sizes are upper estimates: a decoded footer takes several times its stored bytes. The memory of running queries is not
counted, nor are the footers that DataFusion caches (at most 256 MiB for each table).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from lakebed import clock
from lakebed.errors import Code
from lakebed.model.checks import is_whole, shown
from lakebed.storage import telemetry

READ_CACHE_BYTES = 1024 * 1024 * 1024


class ReadStatistics(Struct):
    """Counters of one read, for one thread. Bytes are stored bytes of pages, indexes and dictionaries that were read.

    ``pages`` includes those that were in the read cache, of which no bytes were read. ``pages_by_bounds`` are pages of
    keys that were skipped by the minima and maxima of columns. ``files`` are those opened to
    read rows. ``rows_merged`` are rows of files that went into a merge by the table's merge mode; ``rows`` are those
    returned. ``steps`` has seconds by the name of the step, in the order of the first start; a repeated step adds to
    its time.
    """

    files_by_filter: int = 0
    files: set[str] = field(default_factory=set)
    row_groups: int = 0
    pages: int = 0
    pages_by_bounds: int = 0
    size_bytes: int = 0
    rows: int = 0
    rows_merged: int = 0
    engine: bool = False
    steps: dict[str, float] = field(default_factory=dict)

    def add(self, other: ReadStatistics) -> None:
        """Add the counters of another thread of the same read; its steps run inside those of this one."""
        self.files_by_filter += other.files_by_filter
        self.files |= other.files
        self.row_groups += other.row_groups
        self.pages += other.pages
        self.pages_by_bounds += other.pages_by_bounds
        self.size_bytes += other.size_bytes
        self.rows += other.rows
        self.rows_merged += other.rows_merged
        self.engine |= other.engine

    def report(self, kind: str, table: str) -> None:
        """Measure the rows and the bytes of a read of this kind."""
        telemetry.measure("read_rows_total", self.rows, kind=kind, table=table)
        telemetry.measure("read_bytes_total", self.size_bytes, kind=kind, table=table)

    def step(self, name: str) -> _Step:
        """Return a context manager that adds the time of its block to a step."""
        return _Step(self.steps, name)


class _Step(Struct):
    """A class is faster than a generator: a lookup has several steps of microseconds each."""

    steps: dict[str, float]
    name: str
    began_s: float = 0.0

    def __enter__(self) -> None:
        self.began_s = clock.monotonic_s()

    def __exit__(self, *raised: object) -> None:
        self.steps[self.name] = self.steps.get(self.name, 0.0) + clock.monotonic_s() - self.began_s


class CacheKind(StrEnum):
    """The kinds of entries."""

    FILES = "files"
    PAGES = "pages"
    ROWS = "rows"
    FILTERS = "filters"


class KindStats(Struct, frozen=True):
    """The entries of one kind, and its hits and misses since the process started."""

    entries: int
    size_bytes: int
    hits: int
    misses: int

    @property
    def hit_rate(self) -> float:
        """Hits as a share of all look-ups; 0 if there were none."""
        lookups = self.hits + self.misses
        return self.hits / lookups if lookups else 0.0


class ReadCacheStats(Struct, frozen=True):
    """The contents and the bound of the read cache. ``str()`` is for people, :meth:`to_dict` for programs."""

    bytes_max: int
    files: KindStats
    pages: KindStats
    rows: KindStats
    filters: KindStats

    @property
    def size_bytes(self) -> int:
        """The size of all entries."""
        return sum(getattr(self, kind.value).size_bytes for kind in CacheKind)

    def to_dict(self) -> dict[str, Any]:
        """Return the same as plain values."""
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
    """Values by kind and name, each with a size. Safe to use from many threads."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._size_bytes = 0
        self._entries: OrderedDict[tuple[CacheKind, Hashable], tuple[Any, int]] = OrderedDict()
        self._hits = dict.fromkeys(CacheKind, 0)
        self._misses = dict.fromkeys(CacheKind, 0)
        self._changing = threading.Lock()

    def get(self, kind: CacheKind, name: Hashable) -> Any | None:
        """Return the value; None if it is not cached."""
        key = (kind, name)
        with self._changing:
            found = self._entries.get(key)
            if found is None:
                self._misses[kind] += 1
                return None
            self._hits[kind] += 1
            self._entries.move_to_end(key)
            return found[0]

    def has(self, kind: CacheKind, name: Hashable) -> bool:
        """Return whether the value is cached; neither a hit nor a miss, nor a use."""
        return (kind, name) in self._entries

    def get_many(self, kind: CacheKind, keys: Sequence[tuple[CacheKind, Hashable]]) -> list[Any | None]:
        """As :meth:`get`, for many names of one kind, as keys of the cache."""
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
        """Add or replace a value, as the most recently used. A value larger than the bound is not kept."""
        key = (kind, name)
        with self._changing:
            self._drop(key)
            if size_bytes > self._bytes_max:
                return
            self._entries[key] = (value, size_bytes)
            self._size_bytes += size_bytes
            self._shrink()

    def drop(self, *names: str) -> None:
        """Drop all values of these names, and of tuples that begin with one. Linear in the number of entries."""
        gone = set(names)
        with self._changing:
            for key in list(self._entries):
                if (key[1][0] if isinstance(key[1], tuple) else key[1]) in gone:
                    self._drop(key)

    def has_room_for(self, size_bytes: int) -> bool:
        """Return whether entries of this size together leave room for half of the cache."""
        return size_bytes <= self._bytes_max // 2

    def limit(self, bytes_max: int) -> None:
        """Change the bound, and evict at once what exceeds it."""
        with self._changing:
            self._bytes_max = bytes_max
            self._shrink()

    def stats(self) -> ReadCacheStats:
        """Return the statistics of the cache. Linear in the number of entries."""
        with self._changing:
            entries, sizes = dict.fromkeys(CacheKind, 0), dict.fromkeys(CacheKind, 0)
            for (kind, _), (_, size_bytes) in self._entries.items():
                entries[kind] += 1
                sizes[kind] += size_bytes
            kinds = [KindStats(entries[k], sizes[k], self._hits[k], self._misses[k]) for k in CacheKind]
            return ReadCacheStats(self._bytes_max, *kinds)

    def _drop(self, key: tuple[CacheKind, Hashable]) -> None:
        entry = self._entries.pop(key, None)
        self._size_bytes -= 0 if entry is None else entry[1]

    def _shrink(self) -> None:
        while self._size_bytes > self._bytes_max and self._entries:
            _, (_, size_bytes) = self._entries.popitem(last=False)
            self._size_bytes -= size_bytes


READ_CACHE = ReadCache(READ_CACHE_BYTES)
"""The cache of this process, for all its instances and tables."""


def set_read_cache_bytes(size_bytes: int) -> None:
    """Bound the read cache of this process, for all its tables; the default is 1 GiB, and 0 caches nothing.

    See :mod:`lakebed.files.parquet.read_cache` for what counts. Raises UsageError.
    """
    if not is_whole(size_bytes):
        raise Code.ARGUMENT_INVALID(f"size_bytes = {shown(size_bytes)}: must be a whole number of bytes, 0 or more")
    READ_CACHE.limit(size_bytes)


def read_cache_stats() -> ReadCacheStats:
    """Return the contents of the read cache of this process, with its hits and misses."""
    return READ_CACHE.stats()
