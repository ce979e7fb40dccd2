"""Proposals and transactions: closed unions of values.

An *proposal* is what a caller wants; a *transaction* is what the log holds: resolved, naming files, partitions and
counts outright, so that a reader in another language only adds and drops. Most proposals need no resolving and are
their own transaction; :class:`ProposeFiles`, :class:`ProposeOutput`, :class:`ProposeSplit`, :class:`ProposeJoin` and
:class:`ProposeRemoval` are mapped onto the partitions in force when they are committed, :class:`ProposeSchema` onto the
newest schema. A split proposals partitions and keys only: the references it moves are those found at commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from lakebed.model.keys import EncodedRange

if TYPE_CHECKING:
    from lakebed.model.files import DataFile, NewFile, Reference
    from lakebed.model.key_summaries import Summary
    from lakebed.model.schema import Schema
    from lakebed.state.evolution import SchemaChange


@dataclass(frozen=True, slots=True)
class Job:
    """An open unit of work over the references that ``inputs`` have inside ``keys``.

    ``owner`` names the process that opened it (a hint, to release what a dead process left); the job may be closed by
    anyone once its opening entry is ``deadline_s`` old. ``began_us`` is a last-modified time of the store of the data,
    taken before the job was proposed: none of its files is older. (LastModifiedTimes of entries are no measure of that:
    the log may lie elsewhere, under another clock.) ``opened`` is the number of the entry that opened it, 0 before.
    """

    id: str
    keys: EncodedRange
    inputs: tuple[str, ...]
    owner: str
    deadline_s: int
    began_us: int
    opened: int = 0


class Watermark(Enum):
    """What a table only ever raises. The value is the name of the field of the state."""

    EARLIEST_RETAINED_VERSION = "earliest_retained_version"
    """The least version whose files are all kept. Retiring files raises it too."""

    REQUEST_WATERMARK = "request_watermark"
    """Request keys of a lower base version are dropped, and proposals of one are not validated any more."""

    ORPHAN_CUTOFF = "orphan_cutoff_us"
    """A last-modified time of the store of the data: no file that is older may be added, so a sweep may delete
    those."""


@dataclass(frozen=True, slots=True)
class Source:
    """A user's file as it was found. ``version`` is last-modified time and ETag: the same URL with other bytes is
    another file.
    """

    url: str
    size_bytes: int
    version: str


@dataclass(frozen=True, slots=True)
class Request:
    """What a user has asked for and is not done yet: to ingest these files, all or none. ``id`` is a request key.

    ``base_version`` is that of its first proposal, ``submitted`` the version that it is on record from (0 before),
    ``failures`` how often it was tried in vain, ``rejected`` the version that it was given up at (0: it was not), and
    ``reason`` why, or why it failed last.
    """

    id: str
    files: tuple[Source, ...]
    base_version: int = 0
    submitted: int = 0
    failures: int = 0
    rejected: int = 0
    reason: str = ""

    @property
    def size_bytes(self) -> int:
        """Of all of its files."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Entry 1 of every table's log."""

    table: str
    schema: Schema
    settings: Mapping[str, Any]
    boundaries: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ProposeFiles:
    """New files, for every partition they reach. A repeated ``request_key`` answers with the first outcome.

    ``base_version`` is the head as it was when the request was proposed first, in whichever process; 0 is older than
    any. ``requests`` are the open requests that the files carry out, all of which it closes. They are refused for a
    partition that has more than ``runs_max`` runs; 0: never.
    """

    files: tuple[NewFile, ...]
    request_key: str | None = None
    base_version: int = 0
    requests: tuple[str, ...] = ()
    runs_max: int = 0


@dataclass(frozen=True, slots=True)
class AddFiles:
    """New files with their references, resolved."""

    files: tuple[DataFile, ...]
    references: tuple[Reference, ...]
    request_key: str | None = None
    base_version: int = 0
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenJob:
    """Claim input references for a job."""

    job: Job


@dataclass(frozen=True, slots=True)
class ProposeOutput:
    """The files that a job made of its inputs; may be none if no row was left."""

    job: str
    files: tuple[NewFile, ...]


@dataclass(frozen=True, slots=True)
class Replace:
    """A job's commit, resolved: drop ``(file, partition)`` pairs, add files and references, close the job."""

    job: str
    drop: tuple[tuple[str, int], ...]
    files: tuple[DataFile, ...]
    references: tuple[Reference, ...]


@dataclass(frozen=True, slots=True)
class CloseJob:
    """Give a job up: failed, or past its deadline. A later commit of it is refused."""

    job: str
    reason: str


Cuts = Mapping[int, tuple[bytes, ...]]
"""Partitions by id, each with the ascending keys strictly inside it to cut it at. Their order is that of the new
ids."""


@dataclass(frozen=True, slots=True)
class ConcatenateRuns:
    """Make one run of what a partition has of these files, which do not overlap: the references take another run id."""

    partition: int
    files: tuple[str, ...]
    run: str


@dataclass(frozen=True, slots=True)
class ProposeSplit:
    """Cut partitions, all or none of them. ``summaries`` (by file id) only sharpen the estimates of rows."""

    cuts: Cuts
    summaries: Mapping[str, Summary] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SplitPartitions:
    """A split, resolved: the references of the new partitions, which take the next partition ids, cut by cut in key
    order.
    """

    cuts: Cuts
    references: tuple[Reference, ...]


@dataclass(frozen=True, slots=True)
class ProposeJoin:
    """Make one partition of two or more neighbours, given in key order."""

    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JoinPartitions:
    """A join, resolved: the references of the one partition, which takes the next partition id."""

    partitions: tuple[int, ...]
    references: tuple[Reference, ...]


@dataclass(frozen=True, slots=True)
class ProposeRemoval:
    """Take away all rows in the ranges that are there at the commit. ``summaries`` as in :class:`ProposeSplit`.

    With a ``fence``, files proposed first before it, and jobs opened before it, are kept out of the ranges as well.
    """

    ranges: tuple[EncodedRange, ...]
    fence: bool = False
    summaries: Mapping[str, Summary] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RemoveRange:
    """A removal, resolved: first this split, if it cuts any partition, then every reference of these partitions
    goes.
    """

    ranges: tuple[EncodedRange, ...]
    fence: bool
    split: SplitPartitions
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AlterSettings:
    """Change the table's own settings; None takes a value back to the instance's default."""

    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProposeSchema:
    """Changes of the schema, one after another; all of them, or none."""

    changes: tuple[SchemaChange, ...]


@dataclass(frozen=True, slots=True)
class AlterSchema:
    """The table's next schema, resolved. ``changes`` are the words for what led to it."""

    schema: Schema
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RetireFiles:
    """Files without a reference that will be deleted: nothing may bring them back. First step of a deletion.

    Those that a tag needs are left out when it is committed.
    """

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PurgeFiles:
    """Dead files whose objects are gone. Last step of a deletion."""

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RaiseWatermark:
    """Raise a mark; one that would not rise is refused."""

    mark: Watermark
    value: int


@dataclass(frozen=True, slots=True)
class SetTag:
    """Give a number a name: its files, and its checkpoint, are kept as long as the tag is there."""

    name: str
    version: int


@dataclass(frozen=True, slots=True)
class RemoveTag:
    """Take a tag away."""

    name: str


@dataclass(frozen=True, slots=True)
class SubmitRequests:
    """Put requests on record. Those that are there already, or were carried out, are left out when it is committed.

    ``request_watermark`` is the one that the submitter knew: he asks for files only that were not there before it.
    """

    requests: tuple[Request, ...]
    request_watermark: int = 0


@dataclass(frozen=True, slots=True)
class FailRequest:
    """A try of an open request failed; it stays open."""

    request: str
    reason: str


@dataclass(frozen=True, slots=True)
class RejectRequest:
    """Give an open request up. It may be submitted anew, and is remembered with the reason until then."""

    request: str
    reason: str


@dataclass(frozen=True, slots=True)
class DropTable:
    """The table's last entry; every later proposal is refused."""


Proposal = (
    CreateTable
    | ProposeFiles
    | OpenJob
    | ProposeOutput
    | CloseJob
    | ConcatenateRuns
    | ProposeSplit
    | ProposeJoin
    | ProposeRemoval
    | AlterSettings
    | ProposeSchema
    | RetireFiles
    | PurgeFiles
    | RaiseWatermark
    | SetTag
    | RemoveTag
    | SubmitRequests
    | FailRequest
    | RejectRequest
    | DropTable
)
Transaction = (
    CreateTable
    | AddFiles
    | OpenJob
    | Replace
    | CloseJob
    | ConcatenateRuns
    | SplitPartitions
    | JoinPartitions
    | RemoveRange
    | AlterSettings
    | AlterSchema
    | RetireFiles
    | PurgeFiles
    | RaiseWatermark
    | SetTag
    | RemoveTag
    | SubmitRequests
    | FailRequest
    | RejectRequest
    | DropTable
)


@dataclass(frozen=True, slots=True)
class Rejected:
    """The state does not allow the proposal; ``reason`` says why and what to do."""

    reason: str


@dataclass(frozen=True, slots=True)
class TooOld:
    """First proposed below the request watermark, and not on record: an earlier proposal may be in the log, and
    forgotten.

    So it is unknown whether the request was committed; this proposal was not. (Decision 0011.)
    """

    base_version: int
    request_watermark: int


@dataclass(frozen=True, slots=True)
class TooManyRuns:
    """A partition that the files reach has more runs than ``runs_max``; ``job_open``: a job is at work there."""

    partition: int
    runs: int
    runs_max: int
    job_open: bool


@dataclass(frozen=True, slots=True)
class Repeated:
    """The request was committed before, at ``version``; the proposal changes nothing."""

    version: int
