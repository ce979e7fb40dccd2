"""Adds files to a table; other transactions share its functions that move references.

A writer names files, never partitions. :class:`ProposeFiles` is mapped onto the current partitions at each attempt to
commit it, and becomes :class:`AddFiles`. A reference is omitted only if the file's bounds or two exact ranks prove that
the partition has no row of the file, never because an estimate is 0. The shares of a count sum to the count.

A transaction in a log was valid when it was written, so one that does not fit the state is damaged or shows a bug:
applying it raises DamagedError. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from lakebed.errors import Code
from lakebed.model.files import CommittedFile, DataFile, NewFile, PartitionFile, Reference
from lakebed.model.key_summaries import shares
from lakebed.model.keys import ALL_KEYS
from lakebed.model.row_filters import ages_by_sort_key
from lakebed.model.state.fields import FileDocument, Whole
from lakebed.model.state.reference_lists import ReferenceList, decode_references, encode_references
from lakebed.model.state.table_state import Answer
from lakebed.model.state.transactions.key_guard import KeyGuard
from lakebed.model.state.transactions.resolution import (
    Description,
    Rejected,
    Repeated,
    TooManyRuns,
    TooOld,
    refused_change,
)
from lakebed.model.state.transactions.schema_growth import grow
from lakebed.model.wording import count_text

if TYPE_CHECKING:
    from lakebed.errors import Facts
    from lakebed.model.keys import EncodedRange
    from lakebed.model.state.reference_lists import ReferenceCounts, SidecarData, Sidecars
    from lakebed.model.state.table_state import IngestRequest, TableState
    from lakebed.model.state.transactions.schema_changes import AlterSchema

CHECKED_PARTITIONS_MAX = 2
"""Maximum partitions that one commit of files checks for too many runs. A commit may reach 100,000 partitions and
should take 1 ms."""


class ProposeFiles(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="propose_files"):
    """New files, for every partition they reach. A repeated ``request_key`` returns the first outcome.

    ``base_version`` is the head when the request was first proposed, in any process; 0 is older than any version.
    ``requests`` are the open requests that the files carry out; the commit closes all of them. The files are refused if
    a partition has more than ``runs_max`` runs; 0: no limit. New fields of the files are added to the schema in the
    same entry. The rows were merged by the mode of version ``merged_at``, by default the base version. With a
    ``guard``, the files are refused if its keys were written since they were read; with a ``sequence``, unless it is
    the next one of the table, so if any rows were added since it was.
    """

    files: tuple[NewFile, ...]
    request_key: str | None = None
    base_version: Whole = 0
    requests: tuple[str, ...] = ()
    runs_max: Whole = 0
    merged_at: Whole | None = None
    guard: KeyGuard | None = None
    sequence: Whole | None = None

    def resolve(
        self, state: TableState
    ) -> AddFiles | tuple[AlterSchema, AddFiles] | Rejected | Repeated | TooOld | TooManyRuns:
        """Return the files with their references, preceded by the schema change that their new fields need."""
        first = None if self.request_key is None else state.answered(self.request_key)
        if first is not None:
            return Repeated(first)
        if self.base_version < state.request_watermark and self.request_key is not None:
            return TooOld(self.base_version, state.request_watermark)
        if refused := refused_change(state) or self._refused(state):
            return refused
        fitted = grow(self.files, state)
        if isinstance(fitted, Rejected):
            return fitted
        references = [r for new in fitted.files for r in references_to(new, state, ALL_KEYS)]
        if self.runs_max and (crowded := _crowded(references, state, self.runs_max)):
            return crowded
        files = tuple(new.file for new in fitted.files)
        added = AddFiles(files, tuple(references), self.request_key, self.base_version, self.requests)
        return added if fitted.change is None else (fitted.change, added)

    def _refused(self, state: TableState) -> Rejected | None:
        base: Facts = {"base_version": self.base_version}
        if self.base_version < state.request_watermark:
            return Rejected(
                Code.WRITE_TOO_OLD,
                f"it was begun at version {self.base_version}, and writes begun before version "
                f"{state.request_watermark} are not validated any more; write it again",
                base,
            )
        if self.base_version > state.version:
            text = f"its base version {self.base_version} is not there yet; the newest is {state.version}"
            return Rejected(Code.PROPOSAL_INVALID, text, base)
        # A repeat may have the base version of its first attempt.
        merged_at = self.base_version if self.merged_at is None else self.merged_at
        if merged_at < state.merge_version:
            # The rows were merged by another mode, or not at all.
            text = (
                f"it was begun at version {merged_at}, and version {state.merge_version} changed the merge "
                "mode; write it again"
            )
            return Rejected(Code.MERGE_CHANGED, text, base)
        marked = merged_at < state.filter_version and any(new.file.markers for new in self.files)
        if marked and ages_by_sort_key(state.row_filter, state.merge, state.created):
            # The rows may be partial, which a table with this age-off does not accept.
            text = f"it was begun at version {merged_at}, and rows age off by the sort key since; write it again"
            return Rejected(Code.MERGE_CHANGED, text, base)
        if self.guard is not None and (file := self.guard.broken_by(state)) is not None:
            text = (
                f"keys that it read at version {self.guard.version} may have been written since, by file {file}; read "
                "them again"
            )
            return Rejected(Code.KEYS_CHANGED, text, {**base, "file": file})
        if self.sequence is not None and self.sequence != state.next_sequence:
            return Rejected(Code.KEYS_CHANGED, "rows were added since it was begun; begin it again", base)
        if refused := refused_files(self.files, state) or self._fenced(state):
            return refused
        closed = [name for name in self.requests if name not in state.open_requests]
        if closed:
            return request_not_open(closed[0], state)
        if len(set(self.requests)) != len(self.requests):
            return Rejected(Code.PROPOSAL_INVALID, "a request is named twice")
        if self.request_key in self.requests:
            text = f"{self.request_key} is the key of the add, and of a request that it carries out"
            return Rejected(Code.PROPOSAL_INVALID, text, {"request": self.request_key or ""})
        return None

    def _fenced(self, state: TableState) -> Rejected | None:
        for fence in state.fences:
            if self.base_version < fence.version and any(new.file.reaches(fence.keys) for new in self.files):
                return Rejected(
                    Code.RANGE_REMOVED,
                    f"it was begun at version {self.base_version}, and version {fence.version} removed a range for "
                    "good that its files reach into; leave those rows out, or write them again if they are meant to "
                    "come back",
                    {"base_version": self.base_version, "version": fence.version},
                )
        return None


class AddFiles(Struct, frozen=True):
    """New files with their references."""

    files: tuple[DataFile, ...]
    references: tuple[Reference, ...]
    request_key: str | None = None
    base_version: int = 0
    requests: tuple[str, ...] = ()

    def apply(self, state: TableState) -> TableState:
        """Return the state with the files; records the request key, and the requests that they carry out, as done."""
        _check_whole(self.files, self.references)
        done = {name: Answer(state.version, open_request(state, name).base_version) for name in self.requests}
        if self.request_key is not None:
            done[self.request_key] = Answer(state.version, self.base_version)
        if done:
            still_open = state.open_requests.updated({}, self.requests)
            state = replace(state, requests=state.requests.updated(done), open_requests=still_open)
        return append_files(state, self.files, self.references, None)

    def describe(self, added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the rows and bytes of the files."""
        return Description(
            f"{count_text(added.references, 'reference')} in {count_text(added.partitions, 'partition')}",
            rows_added=sum(file.rows for file in self.files),
            files_added=len(self.files),
            bytes_added=sum(file.size_bytes for file in self.files),
            request_key=self.request_key,
            job=self.files[0].job if self.files else None,
        )

    def document(self, sidecars: Sidecars) -> AddFilesDocument:
        """Return the document that the log stores."""
        files, references = [FileDocument.of(file) for file in self.files], encode_references(self.references, sidecars)
        return AddFilesDocument(self.request_key, self.base_version, list(self.requests), files, references)


class AddFilesDocument(Struct, frozen=True, tag_field="type", tag="add_files"):
    """The stored document; docs/format.md describes its fields."""

    request_key: str | None
    base_version: Whole
    requests: list[str]
    files: list[FileDocument]
    references: ReferenceList

    def transaction(self, sidecars: SidecarData) -> AddFiles:
        """Return the transaction of this document."""
        files, references = tuple([one.value() for one in self.files]), decode_references(self.references, sidecars)
        return AddFiles(files, references, self.request_key, self.base_version, tuple(self.requests))


# -- resolving --------------------------------------------------------------------------------------------------


def refused_files(files: Sequence[NewFile], state: TableState) -> Rejected | None:
    """Return why the table does not accept these files; None if it does."""
    names = [new.file.id for new in files]
    known = [name for name in names if name in state.files]
    if known:
        return Rejected(Code.FILE_ALREADY_ADDED, f"file {known[0]} is in the table already", {"file": known[0]})
    if len(set(names)) != len(names):
        return Rejected(Code.FILE_ALREADY_ADDED, "a file is there twice in one transaction")
    for new in files:
        name, version = new.file.id, new.file.schema_version - bool(new.added)
        # Any version that the table had is valid: readers find fields by their ids.
        if not 1 <= version <= len(state.schemas):
            return Rejected(
                Code.PROPOSAL_INVALID,
                f"file {name} was written for schema version {version}; the table has versions 1 to "
                f"{len(state.schemas)}",
                {"file": name},
            )
        if new.file.last_modified_us < state.orphan_cutoff_us:
            # Garbage collection may have deleted it. Checked after every lost race: the cutoff may have risen.
            text = f"file {name} was written before the orphan cutoff; write it again"
            return Rejected(Code.FILE_TOO_OLD, text, {"file": name})
    return None


def references_to(new: NewFile, state: TableState, within: EncodedRange) -> list[Reference]:
    """Return a reference, with its number of rows, for each partition inside ``within`` that the file reaches."""
    file, partitions = new.file, state.partitions
    first, last = partitions.position(file.min_key), partitions.position(file.max_key)
    counts = shares(new.summary, partitions.boundaries[first:last])
    references = []
    for position, (rows, exact) in zip(range(first, last + 1), counts, strict=True):
        if (rows or not exact) and within.covers(partitions.range_at(position)):
            references.append(Reference(file.id, partitions.ids[position], rows, exact, new.run))
    return references


def _crowded(references: Sequence[Reference], state: TableState, runs_max: int) -> TooManyRuns | None:
    """Return a partition that gains a file and has too many runs. Successive commits check different partitions."""
    for turn in range(min(CHECKED_PARTITIONS_MAX, len(references))):
        partition = references[(state.version * CHECKED_PARTITIONS_MAX + turn) % len(references)].partition
        if state.references.exceeds(partition, runs_max):
            # The number of files is only an upper bound of the number of runs.
            runs = len({one.run for one in state.held_by(partition)})
            if runs > runs_max:
                position = state.partitions.position_of(partition)
                assert position is not None
                keys = state.partitions.range_at(position)
                busy = any(not job.keys.intersect(keys).empty for job in state.jobs.values())
                return TooManyRuns(partition, runs, runs_max, busy)
    return None


def request_not_open(request: str, state: TableState) -> Rejected:
    """Return the rejection of a change of a request that is not open."""
    version = state.answered(request)
    text = f"request {request} is not open" + ("" if version is None else f": it was carried out at {version}")
    return Rejected(Code.REQUEST_NOT_OPEN, text, {"request": request})


# -- applying ---------------------------------------------------------------------------------------------------


def open_request(state: TableState, name: str) -> IngestRequest:
    """Return an open request by its id. Raises DamagedError if it is not open."""
    request = state.open_requests.get(name)
    if request is None:
        raise Code.TRANSACTION_IMPOSSIBLE(
            f"entry {state.version} names request {name}, which is not open", request=name
        )
    return request


def committed_file(state: TableState, name: str) -> CommittedFile:
    """Return a file of the table by its id. Raises DamagedError if the table does not have it."""
    committed = state.files.get(name)
    if committed is None:
        raise Code.TRANSACTION_IMPOSSIBLE(
            f"entry {state.version} names file {name}, which the table does not have", file=name
        )
    return committed


def _check_whole(files: Iterable[DataFile], references: Iterable[Reference]) -> None:
    """Raise DamagedError unless the rows of a new file's references sum to the rows of the file."""
    rows: dict[str, int] = {}
    for reference in references:
        rows[reference.file] = rows.get(reference.file, 0) + reference.rows
    for file in files:
        if rows.get(file.id) != file.rows:
            raise Code.TRANSACTION_IMPOSSIBLE(
                f"references to {file.id} hold {rows.get(file.id, 0)} rows of {file.rows}", file=file.id
            )


def append_files(
    state: TableState,
    files: Sequence[DataFile],
    references: Sequence[Reference],
    sequence_span: tuple[int, int] | None,
) -> TableState:
    """Add files and references to them. Each takes the next sequence number, or all the span of their inputs."""
    known: dict[str, CommittedFile] = {}
    sequence = state.next_sequence
    for file in files:
        if file.id in known or file.id in state.files:
            raise Code.TRANSACTION_IMPOSSIBLE(f"entry {state.version} adds file {file.id} a second time", file=file.id)
        if not 1 <= file.schema_version <= len(state.schemas):
            raise Code.TRANSACTION_IMPOSSIBLE(
                f"file {file.id} is of schema version {file.schema_version}, which the table does not have"
            )
        lo, hi = sequence_span or (sequence, sequence)
        known[file.id] = CommittedFile(lo, hi, added=state.version, file=file)
        sequence += sequence_span is None
    return add_references(state, {file.id: file for file in files}, references, known)


def add_references(
    state: TableState,
    files: Mapping[str, DataFile],
    references: Sequence[Reference],
    new: Mapping[str, CommittedFile] = MappingProxyType({}),
) -> TableState:
    """Add references to these files: the ``new`` ones among them, and others that the table has."""
    known = dict(new)
    spans: dict[str, tuple[int, int]] = {}
    for name, count in Counter([reference.file for reference in references]).items():
        file = files.get(name)
        if file is None:
            raise Code.TRANSACTION_IMPOSSIBLE(
                f"entry {state.version} references {name}, which it neither adds nor moves", file=name
            )
        counted = new.get(name) or committed_file(state, name)
        known[name] = replace(counted, references=counted.references + count, dropped=None, file=None)
        spans[name] = state.partitions.position(file.min_key), state.partitions.position(file.max_key)
    files_added: dict[int, list[PartitionFile]] = {}
    ids, position = state.partitions.ids, None
    for reference in references:
        # A file's references are in partition order, so the next one is mostly in the next partition.
        beyond = 0 if position is None else position + 1
        following = beyond < len(ids) and ids[beyond] == reference.partition
        position = beyond if following else state.partitions.position_of(reference.partition)
        if position is None:
            raise Code.TRANSACTION_IMPOSSIBLE(
                f"entry {state.version} references {reference.file} from partition {reference.partition}"
            )
        first, last = spans[reference.file]
        if not first <= position <= last:
            raise Code.TRANSACTION_IMPOSSIBLE(
                f"entry {state.version}: {reference.file} does not reach partition {reference.partition}"
            )
        partition_file = PartitionFile(files[reference.file], reference.rows, reference.exact, reference.run)
        files_added.setdefault(reference.partition, []).append(partition_file)
    return replace(
        state,
        files=state.files.updated(known),
        references=state.references.add(files_added),
        next_sequence=max([state.next_sequence, *(committed.sequence_hi + 1 for committed in new.values())]),
    )


def drop_references(state: TableState, files_of: Mapping[int, Sequence[DataFile]]) -> TableState:
    """Drop files from partitions that have them.

    A file that loses its last reference records this version, and keeps its own facts.
    """
    facts = {file.id: file for files in files_of.values() for file in files}
    known: dict[str, CommittedFile] = {}
    for name, count in Counter(file.id for files in files_of.values() for file in files).items():
        counted = committed_file(state, name)
        references_left = counted.references - count
        version, own = (None, None) if references_left else (state.version, facts[name])
        known[name] = replace(counted, references=references_left, dropped=version, file=own)
    ids = {partition: {file.id for file in files} for partition, files in files_of.items() if files}
    return replace(state, files=state.files.updated(known), references=state.references.drop(ids))
