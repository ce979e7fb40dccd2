"""Offers and transactions: closed unions of values.

An *offer* is what a caller wants; a *transaction* is what the log holds: resolved, naming files, leaves and counts
outright, so that a reader in another language only adds and drops. Most offers need no resolving and are their own
transaction; :class:`OfferFiles`, :class:`OfferOutput`, :class:`OfferSplit`, :class:`OfferJoin` and
:class:`OfferRemove` are mapped onto the leaves in force when they are committed, :class:`OfferSchema` onto the newest
schema. A split offers leaves and keys only: the references it moves are those found at commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from lakebed.keys import EncodedRange

if TYPE_CHECKING:
    from lakebed.files import DataFile, NewFile, Reference
    from lakebed.schema import Schema
    from lakebed.state.evolution import SchemaChange
    from lakebed.summaries import Summary


@dataclass(frozen=True, slots=True)
class Job:
    """An open unit of work over the references that ``inputs`` have inside ``keys``.

    ``owner`` names the process that opened it (a hint, to release what a dead process left); the job may be closed by
    anyone once its opening entry is ``deadline_s`` old. ``began_us`` is a stamp of the store of the data, taken before
    the job was offered: none of its files is older. (Stamps of entries are no measure of that: the log may lie
    elsewhere, under another clock.) ``opened`` is the number of the entry that opened it, 0 before.
    """

    id: str
    keys: EncodedRange
    inputs: tuple[str, ...]
    owner: str
    deadline_s: int
    began_us: int
    opened: int = 0


class Mark(Enum):
    """What a table only ever raises. The value is the name of the field of the state."""

    RETAINED_FROM = "retained_from"
    """The least number whose files are all kept. Marking files dead raises it too."""

    FORGET_LINE = "forget_line"
    """Request keys of a lower base number are dropped, and offers of one are not judged any more."""

    ORPHAN_HORIZON = "orphan_horizon_us"
    """A stamp of the store of the data: no file that is older may be added, so a sweep may delete those."""


@dataclass(frozen=True, slots=True)
class Source:
    """A user's file as it was found. ``version`` is stamp and ETag: the same URL with other bytes is another file."""

    url: str
    size_bytes: int
    version: str


@dataclass(frozen=True, slots=True)
class Request:
    """What a user has asked for and is not done yet: to ingest these files, all or none. ``id`` is a request key.

    ``base_number`` is that of its first offer, ``submitted`` the number that it is on record from (0 before),
    ``failures`` how often it was tried in vain, ``rejected`` the number that it was given up at (0: it was not), and
    ``reason`` why, or why it failed last.
    """

    id: str
    files: tuple[Source, ...]
    base_number: int = 0
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
class OfferFiles:
    """New files, for every leaf they reach. A repeated ``request_key`` answers with the first outcome.

    ``base_number`` is the head as it was when the request was offered first, in whichever process; 0 is older than any.
    ``requests`` are the open requests that the files carry out, all of which it closes. They are refused for a leaf
    that has more than ``runs_max`` runs; 0: never.
    """

    files: tuple[NewFile, ...]
    request_key: str | None = None
    base_number: int = 0
    requests: tuple[str, ...] = ()
    runs_max: int = 0


@dataclass(frozen=True, slots=True)
class AddFiles:
    """New files with their references, resolved."""

    files: tuple[DataFile, ...]
    references: tuple[Reference, ...]
    request_key: str | None = None
    base_number: int = 0
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenJob:
    """Claim input references for a job."""

    job: Job


@dataclass(frozen=True, slots=True)
class OfferOutput:
    """The files that a job made of its inputs; may be none if no row was left."""

    job: str
    files: tuple[NewFile, ...]


@dataclass(frozen=True, slots=True)
class Replace:
    """A job's commit, resolved: drop ``(file, leaf)`` pairs, add files and references, close the job."""

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
"""Leaves by id, each with the ascending keys strictly inside it to cut it at. Their order is that of the new ids."""


@dataclass(frozen=True, slots=True)
class ChainRuns:
    """Make one run of what a leaf has of these files, which do not overlap: the references take another run id."""

    leaf: int
    files: tuple[str, ...]
    run: str


@dataclass(frozen=True, slots=True)
class OfferSplit:
    """Cut leaves, all or none of them. ``summaries`` (by file id) only sharpen the estimates of rows."""

    cuts: Cuts
    summaries: Mapping[str, Summary] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SplitLeaves:
    """A split, resolved: the references of the new leaves, which take the next leaf ids, cut by cut in key order."""

    cuts: Cuts
    references: tuple[Reference, ...]


@dataclass(frozen=True, slots=True)
class OfferJoin:
    """Make one leaf of two or more neighbours, given in key order."""

    leaves: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JoinLeaves:
    """A join, resolved: the references of the one leaf, which takes the next leaf id."""

    leaves: tuple[int, ...]
    references: tuple[Reference, ...]


@dataclass(frozen=True, slots=True)
class OfferRemove:
    """Take away all rows in the ranges that are there at the commit. ``summaries`` as in :class:`OfferSplit`.

    With a ``fence``, files offered first before it, and jobs opened before it, are kept out of the ranges as well.
    """

    ranges: tuple[EncodedRange, ...]
    fence: bool = False
    summaries: Mapping[str, Summary] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RemoveRange:
    """A removal, resolved: first this split, if it cuts any leaf, then every reference of these leaves goes."""

    ranges: tuple[EncodedRange, ...]
    fence: bool
    split: SplitLeaves
    leaves: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AlterSettings:
    """Change the table's own settings; None takes a value back to the instance's default."""

    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OfferSchema:
    """Changes of the schema, one after another; all of them, or none."""

    changes: tuple[SchemaChange, ...]


@dataclass(frozen=True, slots=True)
class AlterSchema:
    """The table's next schema, resolved. ``changes`` are the words for what led to it."""

    schema: Schema
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MarkDead:
    """Files without a reference that will be deleted: nothing may bring them back. First step of a deletion.

    Those that a tag needs are left out when it is committed.
    """

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ForgetFiles:
    """Dead files whose objects are gone. Last step of a deletion."""

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RaiseMark:
    """Raise a mark; one that would not rise is refused."""

    mark: Mark
    value: int


@dataclass(frozen=True, slots=True)
class SetTag:
    """Give a number a name: its files, and its snapshot, are kept as long as the tag is there."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class RemoveTag:
    """Take a tag away."""

    name: str


@dataclass(frozen=True, slots=True)
class SubmitRequests:
    """Put requests on record. Those that are there already, or were carried out, are left out when it is committed.

    ``forget_line`` is the one that the submitter knew: he asks for files only that were not there before it.
    """

    requests: tuple[Request, ...]
    forget_line: int = 0


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
    """The table's last entry; every later offer is refused."""


Offer = (
    CreateTable
    | OfferFiles
    | OpenJob
    | OfferOutput
    | CloseJob
    | ChainRuns
    | OfferSplit
    | OfferJoin
    | OfferRemove
    | AlterSettings
    | OfferSchema
    | MarkDead
    | ForgetFiles
    | RaiseMark
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
    | ChainRuns
    | SplitLeaves
    | JoinLeaves
    | RemoveRange
    | AlterSettings
    | AlterSchema
    | MarkDead
    | ForgetFiles
    | RaiseMark
    | SetTag
    | RemoveTag
    | SubmitRequests
    | FailRequest
    | RejectRequest
    | DropTable
)


@dataclass(frozen=True, slots=True)
class Rejected:
    """The state does not allow the offer; ``reason`` says why and what to do."""

    reason: str


@dataclass(frozen=True, slots=True)
class TooOld:
    """First offered below the forget line, and not on record: an earlier offer may be in the log, and forgotten.

    So it is unknown whether the request was committed; this offer was not. (Decision 0011.)
    """

    base_number: int
    forget_line: int


@dataclass(frozen=True, slots=True)
class TooManyRuns:
    """A leaf that the files reach has more runs than ``runs_max``; ``job_open``: a job is at work there."""

    leaf: int
    runs: int
    runs_max: int
    job_open: bool


@dataclass(frozen=True, slots=True)
class Repeated:
    """The request was committed before, at ``number``; the offer changes nothing."""

    number: int
