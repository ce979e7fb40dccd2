"""The state of one table at one version: an immutable value, derived from the log alone.

Invariants (:mod:`lakebed.model.state.invariants` has all of them). The partitions tile the key space. A reference
names an existing partition and a committed file that is not retired and reaches the partition.
``CommittedFile.references`` counts the references of a file. A file without references has the version at which the
last one was dropped, and its facts; the facts of others are with their references. Applying is deterministic and total
over valid transactions: no clock, no randomness, no I/O.

Core types: :class:`TableState`, and the records in it that transactions keep: :class:`Job`, :class:`IngestRequest`
with its :class:`Source`, :class:`ViewSource`, :class:`Fence`. Transactions import them; this module imports no
transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, field
from rpds import HashTrieMap

from lakebed.errors import Code
from lakebed.model.documents import SQL_DIALECT
from lakebed.model.keys import EncodedRange
from lakebed.model.merge_modes import KEEP_ALL, MergeMode
from lakebed.model.partitions import Partitions
from lakebed.model.row_filters import NO_FILTER, RowFilter
from lakebed.model.state.fields import Id, Positive, Whole
from lakebed.model.state.partition_files import PartitionFiles
from lakebed.model.state.persistent_table import PersistentTable
from lakebed.model.state.visibility import Visibility

if TYPE_CHECKING:
    from lakebed.model.features import RequiredFeatures
    from lakebed.model.files import CommittedFile, DataFile, PartitionFile, Reference
    from lakebed.model.schema import Field, Schema


class Answer(Struct, frozen=True):
    """The version at which a request was committed, returned when it is repeated; expires by its base version."""

    version: int
    base_version: int


class Job(Struct, frozen=True):
    """An open unit of work over the references that ``inputs`` have inside ``keys``.

    ``owner`` names the process that opened it (a hint, for releasing the jobs of a dead process); any process may close
    the job once its opening entry is ``deadline_s`` old. ``began_us`` is a last-modified time of the data's store,
    taken before the job was proposed: none of its files is older. (Entries may be in another store, with another
    clock.) ``opened`` is the version of the entry that opened it, 0 before. ``complete``: no reference inside ``keys``
    is older than the inputs, so merged deletes may be dropped.
    """

    id: str
    keys: EncodedRange
    inputs: tuple[str, ...]
    owner: str
    deadline_s: int
    began_us: int
    opened: int = 0
    complete: bool = False


class Source(Struct, frozen=True, array_like=True):
    """A user's file as it was found. ``version`` is last-modified time and ETag: other bytes are another source."""

    url: str
    size_bytes: Whole
    version: str


class IngestRequest(Struct, frozen=True):
    """Files that a user asked to ingest, all or none, and that are not ingested yet. ``id`` is a request key.

    ``base_version`` is that of its first proposal. ``submitted`` is the version that recorded it (0 before).
    ``failures`` counts its failed attempts. ``rejected`` is the version at which it was rejected (0: it was not).
    ``reason`` is the reason for the rejection or for the last failure.
    """

    id: str
    files: Annotated[tuple[Source, ...], Meta(min_length=1)]
    base_version: Whole
    submitted: Whole
    failures: Whole
    rejected: Whole
    reason: str

    @classmethod
    def new(cls, id: str, files: tuple[Source, ...], base_version: int) -> IngestRequest:
        """Make a request that is not on record yet."""
        return cls(id, files, base_version, 0, 0, 0, "")

    @property
    def size_bytes(self) -> int:
        """Total bytes of its files."""
        return sum(file.size_bytes for file in self.files)


class IndexCoverage(Struct, frozen=True, omit_defaults=True):
    """Which rows of its source an index has entries of.

    An entry has the values of the fields ``fields`` of the source, and the other row key fields, by their ids. There is
    one for each stored row of each file whose sequence numbers are below ``sequence``, merged away or hidden as the row
    may be. ``built`` is the version of the source when the index was last built anew, without entries of files that
    had no reference then; 0: it never was. While it is fed in parts, it has the entries of the ``files`` of the source
    as well. ``earlier`` has some of the versions of the source that the index had since it was built, each with the
    ``sequence`` then, ascending: files that a later feed did not find any more are in older versions.
    """

    fields: tuple[Positive, ...]
    key_fields: tuple[Positive, ...]
    sequence: Positive = 1
    built: Whole = 0
    files: tuple[Id, ...] = ()
    earlier: tuple[tuple[Positive, Positive], ...] = ()


class TableIndex(Struct, frozen=True, array_like=True):
    """An index of a table: the table that has its entries, and the ids of the indexed fields, in order."""

    table: Id
    fields: tuple[Positive, ...]


class ViewSource(Struct, frozen=True, omit_defaults=True):
    """The id of the source table, a query over its rows, and its version up to which the view has them; 0: none.

    ``schema`` is the version of the source's schema when the view was declared, by whose names the query reads fields;
    0: by the names that they have now. A view with an ``index`` has the entries of an index in place of a query's rows.
    """

    table: Id
    select: str
    version: Whole
    schema: Whole = 0
    index: IndexCoverage | None = None

    def columns(self, source: TableState) -> tuple[tuple[str, str], ...]:
        """Return the fields of the source that the query knows: the name in the query, and the name now."""
        names = {field.id: field.name for field in source.created.fields}
        return tuple((field.name, names[field.id]) for field in self._declared(source) if field.id in names)

    def dropped(self, source: TableState) -> tuple[str, ...]:
        """Return the names in the query of fields that the source no longer has."""
        ids = {field.id for field in source.created.fields}
        return tuple(field.name for field in self._declared(source) if field.id not in ids)

    def _declared(self, source: TableState) -> tuple[Field, ...]:
        known = next((schema for schema in source.schemas if schema.version == self.schema), source.created)
        return known.fields


def sql_features(
    schemas: Sequence[Schema],
    merge: MergeMode = KEEP_ALL,
    row_filter: RowFilter = NO_FILTER,
    view: ViewSource | None = None,
) -> tuple[str, ...]:
    """Return the feature that a document with these needs: the dialect of SQL, if a part of them is text in SQL."""
    has_sql = bool(merge.query or row_filter.predicate or (view and view.select)) or any(
        schema.generated for schema in schemas
    )
    return (SQL_DIALECT,) if has_sql else ()


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
    age-off. A table with a ``view`` is fed from another table. ``indexes`` are those of the table. Since it has
    any, the entry ``rewritten_version`` was the last to replace files by files with other rows, and
    ``restored_version`` the last to bring back references. ``features`` are those that the table requires.
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
    open_requests: PersistentTable[str, IngestRequest] = field(default_factory=PersistentTable)
    rejected: tuple[IngestRequest, ...] = ()
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
    indexes: tuple[TableIndex, ...] = ()
    rewritten_version: int = 0
    restored_version: int = 0
    features: RequiredFeatures = field(default_factory=dict)

    @cached_property
    def created(self) -> Schema:
        """The latest schema. Raises DamagedError for a log that does not begin with a creation."""
        if not self.schemas:
            raise Code.STATE_INCONSISTENT(f"the log of table {self.table or '?'} does not begin with its creation")
        return self.schemas[-1]

    @property
    def is_index(self) -> bool:
        """Whether the rows are the entries of an index."""
        return self.view is not None and self.view.index is not None

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
