"""Resolving: a proposal and the state as it is now give a transaction, or a refusal. Pure.

The rules that random models broke when they were stated more simply (tests/model/protocol):

* A writer names files, never partitions: its files are mapped onto the partitions in force, again after every lost
  race.
* A split names the partition and the keys, never references: what arrived meanwhile moves too.
* A reference is left out only if the file's bounds or two exact ranks prove that no row is there, never because an
  estimate is 0. Shares of a count sum to the whole.
* A job commits partition by partition over the partitions now inside its range: a partition that still holds inputs of
  it loses those and gains the outputs that reach it; a partition that holds none gets nothing; none at all is a
  refusal. A closed job commits nothing. A job is opened over exactly one partition in force that refers to all of its
  inputs, or over several that together hold every row of its inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from lakebed.model.files import Reference
from lakebed.model.key_summaries import shares
from lakebed.model.keys import ALL_KEYS
from lakebed.state.evolution import resolve_changes
from lakebed.state.resolve_partitions import resolve_concatenation, resolve_join, resolve_remove, resolve_split
from lakebed.state.transactions import (
    AddFiles,
    AlterSettings,
    CloseJob,
    ConcatenateRuns,
    CreateTable,
    DropTable,
    FailRequest,
    JoinPartitions,
    OpenJob,
    ProposeFiles,
    ProposeJoin,
    ProposeOutput,
    ProposeRemoval,
    ProposeSchema,
    ProposeSplit,
    PurgeFiles,
    RaiseWatermark,
    Rejected,
    RejectRequest,
    RemoveRange,
    RemoveTag,
    Repeated,
    Replace,
    RetireFiles,
    SetTag,
    SplitPartitions,
    SubmitRequests,
    TooManyRuns,
    TooOld,
    Transaction,
    Watermark,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.model.files import NewFile
    from lakebed.model.keys import EncodedRange
    from lakebed.state.table_state import TableState
    from lakebed.state.transactions import Job, Proposal


Resolved = Transaction | Rejected | Repeated | TooOld | TooManyRuns
"""What becomes of a proposal."""

OPEN_REQUESTS_MAX = 100_000
"""Who submits faster than requests are carried out is to notice before the state is full of them."""

REFERENCES_MAX = 2_000_000
"""References that one transaction may add: some seconds of work for every reader, and half a gigabyte of memory."""

LOOKS_MAX = 2
"""Partitions at which a commit of files looks for too many runs: it may reach a hundred thousand, and is to take 1
ms."""


def resolve(proposal: Proposal, state: TableState) -> Resolved:
    """The transaction that the proposal means in this state, or why there is none."""
    resolved = _resolve(proposal, state)
    added = _added(resolved)
    if added > REFERENCES_MAX:
        return Rejected(
            f"its files reach partitions {added:,} times, which is more than {REFERENCES_MAX:,}: proposal fewer files "
            "at a time, or rows of a narrower range of keys"
        )
    return resolved


def _added(resolved: Resolved) -> int:
    """How many references it brings."""
    match resolved:
        case AddFiles() | Replace() | SplitPartitions() | JoinPartitions():
            return len(resolved.references)
        case RemoveRange():
            return len(resolved.split.references)
        case _:
            return 0


def _resolve(proposal: Proposal, state: TableState) -> Resolved:
    if isinstance(proposal, CreateTable):
        return proposal if state.version == 0 else Rejected("the table exists already")
    if state.version == 0:
        return Rejected("the table does not exist yet")
    if state.dropped:
        return Rejected("the table has been dropped")
    match proposal:
        case ProposeFiles():
            return _resolve_files(proposal, state)
        case ProposeOutput():
            return _resolve_output(proposal, state)
        case ConcatenateRuns():
            return resolve_concatenation(proposal, state)
        case ProposeSplit():
            return resolve_split(proposal, state)
        case ProposeJoin():
            return resolve_join(proposal, state)
        case ProposeRemoval():
            return resolve_remove(proposal, state)
        case OpenJob():
            return _resolve_open(proposal, state)
        case CloseJob():
            return proposal if proposal.job in state.jobs else Rejected(f"job {proposal.job} is not open")
        case RetireFiles():
            return _resolve_dead(proposal, state)
        case PurgeFiles():
            alive = [f for f in proposal.files if f not in state.files or not state.files[f].retired]
            return Rejected(f"files not retired: {', '.join(alive[:3])}") if alive else proposal
        case RaiseWatermark():
            return _resolve_mark(proposal, state)
        case SetTag():
            return _resolve_tag(proposal, state)
        case RemoveTag():
            return proposal if proposal.name in state.tags else Rejected(f"there is no tag {proposal.name}")
        case SubmitRequests():
            return _resolve_submit(proposal, state)
        case FailRequest() | RejectRequest():
            return proposal if proposal.request in state.open_requests else _not_open(proposal.request, state)
        case ProposeSchema():
            return resolve_changes(proposal, state.schemas)
        case AlterSettings() | DropTable():
            return proposal
        case _:
            assert_never(proposal)


def _refused_files(files: Sequence[NewFile], state: TableState) -> Rejected | None:
    names = [new.file.id for new in files]
    known = [name for name in names if name in state.files]
    if known or len(set(names)) != len(names):
        return Rejected(f"file {known[0] if known else 'twice in one transaction'} is in the table already")
    for new in files:
        # Any version that the table had will do: readers find fields by their ids.
        if not 1 <= new.file.schema_version <= len(state.schemas):
            return Rejected(
                f"file {new.file.id} was written for schema version {new.file.schema_version}; the table has versions "
                f"1 to {len(state.schemas)}"
            )
        if new.file.last_modified_us < state.orphan_cutoff_us:
            # A sweep may have deleted it. Validated again after every lost race: the cutoff may have come meanwhile.
            return Rejected(f"file {new.file.id} was written before the orphan cutoff; write it again")
    return None


def _resolve_files(proposal: ProposeFiles, state: TableState) -> AddFiles | Rejected | Repeated | TooOld | TooManyRuns:
    first = None if proposal.request_key is None else state.answered(proposal.request_key)
    if first is not None:
        return Repeated(first)
    if proposal.base_version < state.request_watermark:
        if proposal.request_key is not None:
            return TooOld(proposal.base_version, state.request_watermark)
        return Rejected(
            f"it was begun at version {proposal.base_version}, and what is older than number "
            f"{state.request_watermark} is not validated any more; write it again"
        )
    if proposal.base_version > state.version:
        return Rejected(f"its base version {proposal.base_version} is not there yet; the newest is {state.version}")
    if refused := _refused_files(proposal.files, state) or _fenced_files(proposal, state):
        return refused
    closed = [name for name in proposal.requests if name not in state.open_requests]
    if closed or len(set(proposal.requests)) != len(proposal.requests):
        return _not_open(closed[0], state) if closed else Rejected("a request is named twice")
    if proposal.request_key in proposal.requests:
        return Rejected(f"{proposal.request_key} is the key of the add, and of a request that it carries out")
    references = [r for new in proposal.files for r in _references(new, state, ALL_KEYS)]
    if proposal.runs_max and (crowded := _crowded(references, state, proposal.runs_max)):
        return crowded
    return AddFiles(
        tuple(new.file for new in proposal.files),
        tuple(references),
        proposal.request_key,
        proposal.base_version,
        proposal.requests,
    )


def _crowded(references: Sequence[Reference], state: TableState, runs_max: int) -> TooManyRuns | None:
    """Whether a partition that gains a file has more runs than it may; of many partitions, each commit looks at two
    others.
    """
    for turn in range(min(LOOKS_MAX, len(references))):
        partition = references[(state.version * LOOKS_MAX + turn) % len(references)].partition
        if state.references.exceeds(partition, runs_max):
            # As many files may be few runs.
            runs = len({one.run for one in state.held_by(partition)})
            if runs > runs_max:
                position = state.partitions.position_of(partition)
                assert position is not None
                keys = state.partitions.range_at(position)
                busy = any(not job.keys.intersect(keys).empty for job in state.jobs.values())
                return TooManyRuns(partition, runs, runs_max, busy)
    return None


def _fenced_files(proposal: ProposeFiles, state: TableState) -> Rejected | None:
    for fence in state.fences:
        if proposal.base_version < fence.version and any(new.file.reaches(fence.keys) for new in proposal.files):
            return Rejected(
                f"it was begun at version {proposal.base_version}, and version {fence.version} removed a range for "
                "good that its files reach into; leave those rows out, or write them again if they are meant to come "
                "back"
            )
    return None


def _references(new: NewFile, state: TableState, within: EncodedRange) -> list[Reference]:
    """One reference for each partition inside ``within`` that the file reaches, with the rows it has there."""
    file, partitions = new.file, state.partitions
    first, last = partitions.position(file.min_key), partitions.position(file.max_key)
    counts = shares(new.summary, partitions.boundaries[first:last])
    references = []
    for position, (rows, exact) in zip(range(first, last + 1), counts, strict=True):
        if (rows or not exact) and within.covers(partitions.range_at(position)):
            references.append(Reference(file.id, partitions.ids[position], rows, exact, new.run))
    return references


def _resolve_open(proposal: OpenJob, state: TableState) -> OpenJob | Rejected:
    job = proposal.job
    if job.id in state.jobs:
        return Rejected(f"job {job.id} is open already")
    if not job.inputs:
        return Rejected(f"job {job.id} has no inputs")
    position = state.partitions.position(job.keys.min)
    if state.partitions.range_at(position) == job.keys:
        # One partition, as it is now, with all of the inputs. Anything looser doubles rows: planned on a partition that
        # was split meanwhile, an input that another job has merged away in one half would come back there with the
        # output.
        held = {r.file for r in state.references_of(state.partitions.ids[position])}
        if gone := [name for name in job.inputs if name not in held]:
            return Rejected(f"input {gone[0]} of job {job.id} is not referenced there any more; plan again")
    elif refused := _part_missing(job, state):
        return refused
    inputs = set(job.inputs)
    for other in state.jobs.values():
        if not other.keys.intersect(job.keys).empty and (shared := inputs.intersection(other.inputs)):
            return Rejected(f"input {min(shared)} belongs to open job {other.id}")
    return proposal


def _part_missing(job: Job, state: TableState) -> Rejected | None:
    """Why a job over several partitions may not be opened; None if every row of its inputs counts, so that it may.

    Exact counts prove it: those of the partitions inside the range sum to the rows of each input.
    """
    counted = dict.fromkeys(job.inputs, 0)
    rows: dict[str, int] = {}
    for position in state.partitions.overlapping(job.keys):
        if job.keys.covers(state.partitions.range_at(position)):
            for one in state.held_by(state.partitions.ids[position]):
                if one.file.id in counted:
                    counted[one.file.id] += one.rows if one.exact else -one.file.rows
                    rows[one.file.id] = one.file.rows
    for name, count in counted.items():
        if count != rows.get(name):
            return Rejected(
                f"job {job.id} is over no single partition, and its partitions do not hold all rows of its input "
                f"{name}: a partition was split or joined, or the input was merged or removed in one; plan again"
            )
    return None


def _resolve_output(proposal: ProposeOutput, state: TableState) -> Replace | Rejected:
    job = state.jobs.get(proposal.job)
    if job is None:
        return Rejected(f"job {proposal.job} is not open: it was closed, or committed before")
    if refused := _refused_files(proposal.files, state):
        return refused
    for fence in state.fences:
        if fence.stops((job,)):
            # The output would hold the bytes that were to go, though no reader saw them.
            return Rejected(f"version {fence.version} removed a range for good that job {job.id} reads; plan again")
    inputs = set(job.inputs)
    oldest = min((new.file.schema_version for new in proposal.files), default=len(state.schemas))
    drop: list[tuple[str, int]] = []
    served: set[int] = set()
    for position in state.partitions.overlapping(job.keys):
        partition = state.partitions.ids[position]
        held = [file for file in state.files_of(partition) if file.id in inputs]
        newer = [file.id for file in held if file.schema_version > oldest]
        if newer:
            return Rejected(f"the output of job {proposal.job} has not all fields of its input {newer[0]}; plan again")
        if held and job.keys.covers(state.partitions.range_at(position)):
            drop += [(file.id, partition) for file in held]
            served.add(partition)
    if not drop:
        return Rejected(f"none of the inputs of job {proposal.job} is referenced any more")
    references = [r for new in proposal.files for r in _references(new, state, job.keys) if r.partition in served]
    used = {r.file for r in references}
    files = tuple(new.file for new in proposal.files if new.file.id in used)
    return Replace(proposal.job, tuple(drop), files, tuple(references))


def _resolve_dead(proposal: RetireFiles, state: TableState) -> RetireFiles | Rejected:
    for name in proposal.files:
        committed = state.files.get(name)
        if committed is None or committed.references or committed.retired:
            return Rejected(f"file {name} is purged, referenced or retired already; plan again")
    # Validated here and not when it was planned: a tag may have come since.
    free = [name for name in proposal.files if not state.tagged(state.files[name])]
    return RetireFiles(tuple(free)) if free else Rejected("tags need all of these files")


def _resolve_mark(proposal: RaiseWatermark, state: TableState) -> RaiseWatermark | Rejected:
    stands = getattr(state, proposal.mark.value)
    if proposal.value <= stands:
        return Rejected(f"{proposal.mark.value} stands at {stands} already; it only rises")
    match proposal.mark:
        case Watermark.EARLIEST_RETAINED_VERSION | Watermark.REQUEST_WATERMARK:
            if proposal.value > state.version:
                return Rejected(
                    f"{proposal.mark.value} cannot be {proposal.value}; the newest version is {state.version}"
                )
        case Watermark.ORPHAN_CUTOFF:
            # Or its output could be refused for its age, when the work is done.
            held = sorted(job.id for job in state.jobs.values() if job.began_us < proposal.value)
            if held:
                return Rejected(f"job {held[0]} is open and began before that cutoff; try again when it is closed")
        case _:
            assert_never(proposal.mark)
    return proposal


def _resolve_submit(proposal: SubmitRequests, state: TableState) -> SubmitRequests | Rejected | Repeated | TooOld:
    names = [request.id for request in proposal.requests]
    if len(set(names)) != len(names) or not all(request.files for request in proposal.requests):
        return Rejected("a request is there twice, or names no file")
    new = [r for r in proposal.requests if r.id not in state.open_requests and r.id not in state.requests]
    if not new:
        return Repeated(state.version)
    # Carried out before, perhaps, and forgotten.
    oldest = min(request.base_version for request in new)
    if oldest < state.request_watermark:
        return TooOld(oldest, state.request_watermark)
    if proposal.request_watermark < state.request_watermark:
        # Of files that were there before the new line nobody knows any more whether they were carried out.
        return Rejected(
            f"the request watermark rose from {proposal.request_watermark} to {state.request_watermark} meanwhile; "
            "submit again"
        )
    if len(state.open_requests) + len(new) > OPEN_REQUESTS_MAX:
        return Rejected(f"{len(state.open_requests)} requests are open, at most {OPEN_REQUESTS_MAX}; submit it later")
    return SubmitRequests(tuple(new), proposal.request_watermark)


def _not_open(request: str, state: TableState) -> Rejected:
    version = state.answered(request)
    return Rejected(
        f"request {request} is not open" + ("" if version is None else f": it was carried out at {version}")
    )


def _resolve_tag(proposal: SetTag, state: TableState) -> SetTag | Rejected | Repeated:
    held = state.tags.get(proposal.name)
    if held is not None:
        if held == proposal.version:
            return Repeated(state.version)
        return Rejected(f"tag {proposal.name} stands at version {held} already; remove it first")
    if not 1 <= proposal.version <= state.version:
        return Rejected(f"there is no version {proposal.version}; the newest is {state.version}")
    if not state.retains(proposal.version):
        kept = f"kept are those from version {state.earliest_retained_version} on"
        return Rejected(f"files of version {proposal.version} are deleted; {kept}")
    return proposal
