"""The state of one table at one log number: an immutable value, derived from the log alone.

Holds of every state: the leaves tile the key space; a reference is of a known leaf and a known, living file that
reaches it; ``CommittedFile.references`` counts them; a file with none has the number at which the last one went, and
its facts, which otherwise are with the leaves that refer to it.
Applying is deterministic and total over valid transactions: no clock, no randomness, no reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakebed.errors import DamagedError
from lakebed.partitions import Leaves
from lakebed.state.layers import Layers
from lakebed.state.leaf_files import LeafFiles

if TYPE_CHECKING:
    from lakebed.files import CommittedFile, DataFile, LeafFile, Reference
    from lakebed.keys import EncodedRange
    from lakebed.schema import Schema
    from lakebed.state.transactions import Job, Request


@dataclass(frozen=True, slots=True)
class Answer:
    """What a repeat of a request is told: the number that it was committed at. Its base number says when it may go."""

    number: int
    base_number: int


@dataclass(frozen=True, slots=True)
class Fence:
    """What a removal for good leaves behind at its ``number``: nothing of before passes into the range.

    It stands until the forget line keeps out the same offers, and no job that was opened before it is there any more.
    """

    keys: EncodedRange
    number: int

    def stops(self, jobs: Iterable[Job]) -> bool:
        """Whether one of the jobs was opened before it, or by the same entry, over keys of its range."""
        return any(job.opened <= self.number and not job.keys.intersect(self.keys).empty for job in jobs)


@dataclass(frozen=True, slots=True)
class TableState:
    """Everything that is known of a table at ``number``. ``references`` are by leaf id, in the order of arrival.

    ``schemas`` are all that the table ever had, in the order of their versions. From ``retained_from`` on, and at every
    tag, no file of an older state has been given up for deletion. No file that the store stamped before
    ``orphan_horizon_us`` can be added any more. ``requests`` are by request key; those of a base number below the
    ``forget_line`` are dropped. ``open_requests`` are by id, which is a request key too; ``rejected`` are the last that
    were given up, in that order.
    """

    number: int = 0
    table: str = ""
    schemas: tuple[Schema, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    leaves: Leaves = field(default_factory=Leaves)
    files: Layers[str, CommittedFile] = field(default_factory=Layers)
    references: LeafFiles = field(default_factory=LeafFiles)
    jobs: Mapping[str, Job] = field(default_factory=dict)
    requests: Layers[str, Answer] = field(default_factory=Layers)
    open_requests: Layers[str, Request] = field(default_factory=Layers)
    rejected: tuple[Request, ...] = ()
    next_sequence: int = 1
    tags: Mapping[str, int] = field(default_factory=dict)
    fences: tuple[Fence, ...] = ()
    retained_from: int = 0
    forget_line: int = 0
    orphan_horizon_us: int = 0
    dropped: bool = False

    @property
    def created(self) -> Schema:
        """The newest schema of a table that exists. Raises DamagedError for a log without its creation."""
        if not self.schemas:
            raise DamagedError(f"the log of table {self.table or '?'} does not begin with its creation")
        return self.schemas[-1]

    def held_by(self, leaf: int) -> tuple[LeafFile, ...]:
        """What a leaf refers to, with the facts of the files, in the order of arrival."""
        return self.references.get(leaf, ())

    def references_of(self, leaf: int) -> tuple[Reference, ...]:
        """The references of a leaf."""
        return tuple(held.reference(leaf) for held in self.held_by(leaf))

    def files_of(self, leaf: int) -> tuple[DataFile, ...]:
        """The files that a leaf refers to."""
        return tuple([held.file for held in self.held_by(leaf)])

    def referenced(self) -> dict[str, DataFile]:
        """All files that leaves refer to, by id. Linear."""
        return {held.file.id: held.file for every in self.references.values() for held in every}

    def answered(self, request_key: str) -> int | None:
        """The number at which the request was committed; None: it was not, or is forgotten."""
        answer = self.requests.get(request_key)
        return None if answer is None else answer.number

    def retains(self, number: int) -> bool:
        """Whether all files of the table at that older number are kept."""
        return number >= self.retained_from or number in self.tags.values()

    def tagged(self, committed: CommittedFile) -> bool:
        """Whether a tag stands at a number that needs the file."""
        return any(map(committed.needed_at, self.tags.values()))


def check_invariants(state: TableState) -> None:
    """Raise DamagedError if something that holds of every state does not hold of this one. Linear; for verification."""
    counted: dict[str, int] = {}
    facts: dict[str, DataFile] = {}
    for leaf, held in state.references.items():
        position = state.leaves.position_of(leaf)
        if position is None:
            raise DamagedError(f"references of a leaf that is not there: {leaf}", leaf=leaf)
        keys = state.leaves.range_at(position)
        if len({one.file.id for one in held}) != len(held):
            raise DamagedError(f"leaf {leaf} references a file twice", leaf=leaf)
        for file in (one.file for one in held):
            committed = state.files.get(file.id)
            if committed is None or committed.dead:
                raise DamagedError(f"leaf {leaf} references {file.id}, which is forgotten or dead", leaf=leaf)
            if not file.reaches(keys):
                raise DamagedError(f"leaf {leaf} references {file.id}, which does not reach it", leaf=leaf)
            if facts.setdefault(file.id, file) != file:
                raise DamagedError(f"leaf {leaf} has other facts of {file.id} than another leaf", leaf=leaf)
            counted[file.id] = counted.get(file.id, 0) + 1
    for job in state.jobs.values():
        if not job.inputs or job.keys.empty or not 0 < job.opened <= state.number:
            raise DamagedError(f"job {job.id} has no inputs, or no keys, or was opened at {job.opened}", job=job.id)
    for request in state.open_requests.values():
        if request.id in state.requests or not request.files or not 0 < request.submitted <= state.number:
            raise DamagedError(f"request {request.id} is carried out, or empty, or of number {request.submitted}")
    for request in state.rejected:
        if request.id in state.open_requests or not 0 < request.submitted <= request.rejected <= state.number:
            raise DamagedError(f"request {request.id} is open, or was rejected at {request.rejected}")
    for fence in state.fences:
        if fence.keys.empty or not 0 < fence.number <= state.number:
            raise DamagedError(f"a fence of number {fence.number} over {fence.keys}")
    for file_id, committed in state.files.items():
        if committed.references != counted.get(file_id, 0):
            raise DamagedError(f"file {file_id} has {counted.get(file_id, 0)} references, not {committed.references}")
        if (committed.dropped is None) != (committed.references > 0):
            raise DamagedError(f"file {file_id}: dropped at {committed.dropped} with {committed.references} references")
        own = committed.file
        if (own is None) != (committed.references > 0) or (own is not None and own.id != file_id):
            raise DamagedError(f"file {file_id} of {committed.references} references has the wrong facts: {own}")
