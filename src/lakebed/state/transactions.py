"""Offers and transactions: closed unions of values.

An *offer* is what a caller wants; a *transaction* is what the log holds: resolved, naming files, leaves and counts
outright, so that a reader in another language only adds and drops. Most offers need no resolving and are their own
transaction; :class:`OfferFiles`, :class:`OfferOutput` and :class:`OfferSplit` are mapped onto the leaves in force when
they are committed, :class:`OfferTag` onto a number, :class:`OfferSchema` onto the newest schema. A split offers the
leaf and the keys only: the references it moves are those found at commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakebed.keys import EncodedRange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebed.files import DataFile, NewFile, Reference
    from lakebed.schema import Schema
    from lakebed.state.evolution import SchemaChange
    from lakebed.summaries import Summary


@dataclass(frozen=True, slots=True)
class Job:
    """An open unit of work over the references that ``inputs`` have inside ``keys``.

    ``owner`` names the process that opened it (a hint, to release what a dead process left); the job may be closed by
    anyone once its opening entry is ``deadline_s`` old.
    """

    id: str
    keys: EncodedRange
    inputs: tuple[str, ...]
    owner: str
    deadline_s: int
    opened: int = 0


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Entry 1 of every table's log."""

    table: str
    schema: Schema
    settings: Mapping[str, Any]
    boundaries: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class OfferFiles:
    """New files, for every leaf they reach. A repeated ``request_key`` answers with the first outcome."""

    files: tuple[NewFile, ...]
    request_key: str | None = None


@dataclass(frozen=True, slots=True)
class AddFiles:
    """New files with their references, resolved."""

    files: tuple[DataFile, ...]
    references: tuple[Reference, ...]
    request_key: str | None = None


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


@dataclass(frozen=True, slots=True)
class OfferSplit:
    """Cut a leaf at keys strictly inside it. ``summaries`` (by file id) only sharpen the estimates of rows."""

    leaf: int
    keys: tuple[bytes, ...]
    summaries: Mapping[str, Summary] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SplitLeaf:
    """A split, resolved: the references of the new leaves, which take the next leaf ids in key order."""

    leaf: int
    keys: tuple[bytes, ...]
    references: tuple[Reference, ...]


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
class OfferTag:
    """Give a number a name; None: the head, as it is when the tag is committed."""

    name: str
    number: int | None


@dataclass(frozen=True, slots=True)
class SetTag:
    """A tag, resolved: the files of that number are kept as long as it is there."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class RemoveTag:
    """Take a tag away."""

    name: str


@dataclass(frozen=True, slots=True)
class DropTable:
    """The table's last entry; every later offer is refused."""


Offer = (
    CreateTable
    | OfferFiles
    | OpenJob
    | OfferOutput
    | CloseJob
    | OfferSplit
    | AlterSettings
    | OfferSchema
    | MarkDead
    | ForgetFiles
    | OfferTag
    | RemoveTag
    | DropTable
)
Transaction = (
    CreateTable
    | AddFiles
    | OpenJob
    | Replace
    | CloseJob
    | SplitLeaf
    | AlterSettings
    | AlterSchema
    | MarkDead
    | ForgetFiles
    | SetTag
    | RemoveTag
    | DropTable
)


@dataclass(frozen=True, slots=True)
class Rejected:
    """The state does not allow the offer; ``reason`` says why and what to do."""

    reason: str


@dataclass(frozen=True, slots=True)
class Repeated:
    """The request was committed before, at ``number``; the offer changes nothing."""

    number: int
