"""The state of one table at one version: an immutable value, derived from the log alone.

Invariants (:mod:`lakebed.model.state.invariants` has all of them). The partitions tile the key space. A reference
names an existing partition and a committed file that is not retired and reaches the partition.
``CommittedFile.references`` counts the references of a file. A file without references has the version at which the
last one was dropped, and its facts; the facts of others are with their references. Applying is deterministic and total
over valid transactions: no clock, no randomness, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from rpds import HashTrieMap

from lakebed.errors import Code
from lakebed.model.merge_modes import KEEP_ALL, MergeMode
from lakebed.model.partitions import Partitions
from lakebed.model.row_filters import NO_FILTER, RowFilter
from lakebed.model.state.partition_files import PartitionFiles
from lakebed.model.state.persistent_table import PersistentTable
from lakebed.model.state.visibility import Visibility

if TYPE_CHECKING:
    from lakebed.model.files import CommittedFile, DataFile, PartitionFile, Reference
    from lakebed.model.keys import EncodedRange
    from lakebed.model.schema import Schema
    from lakebed.model.state.transactions import Job, Request
    from lakebed.model.state.view_source import ViewSource


class Answer(Struct, frozen=True):
    """The version at which a request was committed, returned when it is repeated; expires by its base version."""

    version: int
    base_version: int


class Fence(Struct, frozen=True):
    """Keeps proposals and jobs from before a removal's ``version`` out of its range.

    A fence is dropped once the request watermark refuses these proposals and no job from before it is open.
    """

    keys: EncodedRange
    version: int

    def stops(self, jobs: Iterable[Job]) -> bool:
        """Return whether a job over keys of the range was opened before the fence, or by the same entry."""
        return any(job.opened <= self.version and not job.keys.intersect(self.keys).empty for job in jobs)


class TableState(Struct, frozen=True, dict=True):
    """A table at ``version``. ``references`` are by partition id, in the order of arrival.

    ``schemas`` are all schemas of the table, in the order of their versions. No file needed by a version from
    ``earliest_retained_version`` on, or by a tagged one, has been retired. A file whose last-modified time is before
    ``orphan_cutoff_us`` can no longer be added. ``requests`` are by request key; those with a base version below the
    ``request_watermark`` are dropped. ``open_requests`` are by id, which is also a request key; ``rejected`` are the
    latest rejected requests, oldest first. ``merge`` is the mode by which rows with equal keys are merged; it was set
    at ``merge_version``, or at the creation of the table if that is 0. Rows that do not match ``row_filter``, last
    changed at ``filter_version``, are hidden; so are rows with a time before ``age_off_cut_us`` if the table has an
    age-off. A table with a ``view`` is fed from another table.
    """

    version: int = 0
    table: str = ""
    schemas: tuple[Schema, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    partitions: Partitions = field(default_factory=Partitions)
    files: PersistentTable[str, CommittedFile] = field(default_factory=PersistentTable)
    references: PartitionFiles = field(default_factory=PartitionFiles)
    jobs: HashTrieMap[str, Job] = field(default_factory=HashTrieMap)
    requests: PersistentTable[str, Answer] = field(default_factory=PersistentTable)
    open_requests: PersistentTable[str, Request] = field(default_factory=PersistentTable)
    rejected: tuple[Request, ...] = ()
    next_sequence: int = 1
    tags: Mapping[str, int] = field(default_factory=dict)
    fences: tuple[Fence, ...] = ()
    earliest_retained_version: int = 0
    request_watermark: int = 0
    orphan_cutoff_us: int = 0
    dropped: bool = False
    merge: MergeMode = KEEP_ALL
    merge_version: int = 0
    row_filter: RowFilter = NO_FILTER
    filter_version: int = 0
    age_off_cut_us: int = 0
    view: ViewSource | None = None

    @cached_property
    def created(self) -> Schema:
        """The latest schema. Raises DamagedError for a log that does not begin with a creation."""
        if not self.schemas:
            raise Code.STATE_INCONSISTENT(f"the log of table {self.table or '?'} does not begin with its creation")
        return self.schemas[-1]

    @cached_property
    def visibility(self) -> Visibility:
        """The rows that the table's filter and age-off show."""
        return Visibility.of(self)

    def held_by(self, partition: int) -> tuple[PartitionFile, ...]:
        """Return the references of a partition with the facts of their files, in the order of arrival."""
        return self.references.get(partition, ())

    def references_of(self, partition: int) -> tuple[Reference, ...]:
        """Return the references of a partition."""
        return tuple(held.reference(partition) for held in self.held_by(partition))

    def files_of(self, partition: int) -> tuple[DataFile, ...]:
        """Return the files that a partition refers to."""
        return tuple([held.file for held in self.held_by(partition)])

    def referenced(self) -> dict[str, DataFile]:
        """Return all files that partitions refer to, by id. Linear."""
        return {held.file.id: held.file for every in self.references.values() for held in every}

    def answered(self, request_key: str) -> int | None:
        """Return the version at which the request was committed; None if it was not, or its key has expired."""
        answer = self.requests.get(request_key)
        return None if answer is None else answer.version

    def retains(self, version: int) -> bool:
        """Return whether all files of the table at that version are retained."""
        return version >= self.earliest_retained_version or version in self.tags.values()

    def tagged(self, committed: CommittedFile) -> bool:
        """Return whether a tagged version needs the file."""
        return any(map(committed.needed_at, self.tags.values()))
