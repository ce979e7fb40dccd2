"""A table as the operations of maintenance see it: sums and what is due, and the record of each operation. Pure.

Core types: :class:`TableView`, :class:`TableSummary`, :class:`Backlog`, :class:`Record`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backlog:
    """The backlog of a table: open requests, and runs that compaction would merge now.

    ``oldest_s`` is the age of the oldest open request in seconds; None without one.
    """

    requests: int = 0
    files: int = 0
    size_bytes: int = 0
    oldest_s: float | None = None
    runs_due: int = 0
    bytes_due: int = 0

    @property
    def all_bytes(self) -> int:
        """The bytes to ingest and to merge."""
        return self.size_bytes + self.bytes_due


NO_BACKLOG = Backlog()


@dataclass(frozen=True, slots=True)
class TableSummary:
    """A table at ``version``.

    ``rows`` are those of all files, before any merge. ``files`` counts the references of partitions to files.
    ``backlog`` has no age yet; ``oldest_request`` is the version that the oldest open request is on record from.
    ``splits`` and ``joins`` count partitions to be cut and groups to be joined. ``crowded``: compaction waits for
    ingest, because too many requests are open. ``piled``: a partition has more runs than merges should leave, and
    merges are due. ``unreferenced_files``, and their bytes, are those without references that are not deleted yet.
    ``ages``: rows expire. A view has ``fed``, the version of its ``source``, the id of a table, that it has.
    ``published``: other engines read its latest version.
    """

    version: int = 0
    rows: int = 0
    size_bytes: int = 0
    partitions: int = 0
    files: int = 0
    files_max: int = 0
    backlog: Backlog = NO_BACKLOG
    oldest_request: int = 0
    ingest_bytes_min: int = 0
    ingest_age_s: int = 0
    jobs: int = 0
    splits: int = 0
    joins: int = 0
    crowded: bool = False
    piled: bool = False
    unreferenced_files: int = 0
    unreferenced_bytes: int = 0
    ages: bool = False
    source: str | None = None
    fed: int = 0
    published: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """The record of one operation on one table, in seconds of a monotonic clock.

    ``version`` is that of the table after the last success, ``idle`` how many runs in a row changed nothing,
    ``failures`` how many failed, ``faults`` how many of them through their own fault. It does not begin before
    ``next_s``.
    """

    begun_s: float = -math.inf
    ended_s: float = -math.inf
    version: int = 0
    idle: int = 0
    failures: int = 0
    faults: int = 0
    next_s: float = -math.inf
    parked: bool = False


_NEVER = Record()


@dataclass(frozen=True, slots=True)
class TableView:
    """A table as operations see it. ``records`` are by the names of operations.

    ``oldest_s`` is the age of the oldest open request; ``source_version`` that of a view's source, if it is known;
    ``now_s`` the time by the clock of the records. A status that is read from the store has ``source_error``, why the
    source cannot be read, ``garbage``, what a collection would do, and ``published_version``, which other engines read:
    0 if there is none yet, None if that is not known.
    """

    id: str
    online: bool
    paused: Collection[str]
    summary: TableSummary
    records: Mapping[str, Record]
    oldest_s: float = 0.0
    source_version: int = 0
    now_s: float = 0.0
    source_error: str | None = None
    garbage: str | None = None
    published_version: int | None = None

    def record(self, operation: str) -> Record:
        """Return the record of an operation."""
        return self.records.get(operation, _NEVER)
