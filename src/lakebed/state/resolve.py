"""Resolving: an offer and the state as it is now give a transaction, or a refusal. Pure.

The rules that random models broke when they were stated more simply (tests/model/protocol):

* A writer names files, never leaves: its files are mapped onto the leaves in force, again after every lost race.
* A split names the leaf and the keys, never references: what arrived meanwhile moves too.
* A reference is left out only if the file's bounds or two exact ranks prove that no row is there, never because an
  estimate is 0. Shares of a count sum to the whole.
* A job commits leaf by leaf over the leaves now inside its range: a leaf that still holds inputs of it loses those and
  gains the outputs that reach it; a leaf that holds none gets nothing; none at all is a refusal. A closed job commits
  nothing. A job is opened over exactly one leaf in force that refers to all of its inputs, or over several that
  together hold every row of its inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from lakebed.files import Reference
from lakebed.keys import ALL_KEYS
from lakebed.state.evolution import resolve_changes
from lakebed.state.resolve_leaves import resolve_chain, resolve_join, resolve_remove, resolve_split
from lakebed.state.transactions import (
    AddFiles,
    AlterSettings,
    ChainRuns,
    CloseJob,
    CreateTable,
    DropTable,
    FailRequest,
    ForgetFiles,
    JoinLeaves,
    Mark,
    MarkDead,
    OfferFiles,
    OfferJoin,
    OfferOutput,
    OfferRemove,
    OfferSchema,
    OfferSplit,
    OpenJob,
    RaiseMark,
    Rejected,
    RejectRequest,
    RemoveRange,
    RemoveTag,
    Repeated,
    Replace,
    SetTag,
    SplitLeaves,
    SubmitRequests,
    TooManyRuns,
    TooOld,
    Transaction,
)
from lakebed.summaries import shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.files import NewFile
    from lakebed.keys import EncodedRange
    from lakebed.state.table import TableState
    from lakebed.state.transactions import Job, Offer


Resolved = Transaction | Rejected | Repeated | TooOld | TooManyRuns
"""What becomes of an offer."""

OPEN_REQUESTS_MAX = 100_000
"""Who submits faster than requests are carried out is to notice before the state is full of them."""

REFERENCES_MAX = 2_000_000
"""References that one transaction may add: some seconds of work for every reader, and half a gigabyte of memory."""

LOOKS_MAX = 2
"""Leaves at which a commit of files looks for too many runs: it may reach a hundred thousand, and is to take 1 ms."""


def resolve(offer: Offer, state: TableState) -> Resolved:
    """The transaction that the offer means in this state, or why there is none."""
    resolved = _resolve(offer, state)
    added = _added(resolved)
    if added > REFERENCES_MAX:
        return Rejected(
            f"its files reach leaves {added:,} times, which is more than {REFERENCES_MAX:,}: offer fewer files at a "
            "time, or rows of a narrower range of keys"
        )
    return resolved


def _added(resolved: Resolved) -> int:
    """How many references it brings."""
    match resolved:
        case AddFiles() | Replace() | SplitLeaves() | JoinLeaves():
            return len(resolved.references)
        case RemoveRange():
            return len(resolved.split.references)
        case _:
            return 0


def _resolve(offer: Offer, state: TableState) -> Resolved:
    if isinstance(offer, CreateTable):
        return offer if state.number == 0 else Rejected("the table exists already")
    if state.number == 0:
        return Rejected("the table does not exist yet")
    if state.dropped:
        return Rejected("the table has been dropped")
    match offer:
        case OfferFiles():
            return _resolve_files(offer, state)
        case OfferOutput():
            return _resolve_output(offer, state)
        case ChainRuns():
            return resolve_chain(offer, state)
        case OfferSplit():
            return resolve_split(offer, state)
        case OfferJoin():
            return resolve_join(offer, state)
        case OfferRemove():
            return resolve_remove(offer, state)
        case OpenJob():
            return _resolve_open(offer, state)
        case CloseJob():
            return offer if offer.job in state.jobs else Rejected(f"job {offer.job} is not open")
        case MarkDead():
            return _resolve_dead(offer, state)
        case ForgetFiles():
            alive = [f for f in offer.files if f not in state.files or not state.files[f].dead]
            return Rejected(f"files not marked dead: {', '.join(alive[:3])}") if alive else offer
        case RaiseMark():
            return _resolve_mark(offer, state)
        case SetTag():
            return _resolve_tag(offer, state)
        case RemoveTag():
            return offer if offer.name in state.tags else Rejected(f"there is no tag {offer.name}")
        case SubmitRequests():
            return _resolve_submit(offer, state)
        case FailRequest() | RejectRequest():
            return offer if offer.request in state.open_requests else _not_open(offer.request, state)
        case OfferSchema():
            return resolve_changes(offer, state.schemas)
        case AlterSettings() | DropTable():
            return offer
        case _:
            assert_never(offer)


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
        if new.file.stamp_us < state.orphan_horizon_us:
            # A sweep may have deleted it. Judged again after every lost race: the horizon may have come meanwhile.
            return Rejected(f"file {new.file.id} was written before the orphan horizon; write it again")
    return None


def _resolve_files(offer: OfferFiles, state: TableState) -> AddFiles | Rejected | Repeated | TooOld | TooManyRuns:
    first = None if offer.request_key is None else state.answered(offer.request_key)
    if first is not None:
        return Repeated(first)
    if offer.base_number < state.forget_line:
        if offer.request_key is not None:
            return TooOld(offer.base_number, state.forget_line)
        return Rejected(
            f"it was begun at number {offer.base_number}, and what is older than number {state.forget_line} is not "
            "judged any more; write it again"
        )
    if offer.base_number > state.number:
        return Rejected(f"its base number {offer.base_number} is not there yet; the newest is {state.number}")
    if refused := _refused_files(offer.files, state) or _fenced_files(offer, state):
        return refused
    closed = [name for name in offer.requests if name not in state.open_requests]
    if closed or len(set(offer.requests)) != len(offer.requests):
        return _not_open(closed[0], state) if closed else Rejected("a request is named twice")
    if offer.request_key in offer.requests:
        return Rejected(f"{offer.request_key} is the key of the add, and of a request that it carries out")
    references = [r for new in offer.files for r in _references(new, state, ALL_KEYS)]
    if offer.runs_max and (crowded := _crowded(references, state, offer.runs_max)):
        return crowded
    return AddFiles(
        tuple(new.file for new in offer.files), tuple(references), offer.request_key, offer.base_number, offer.requests
    )


def _crowded(references: Sequence[Reference], state: TableState, runs_max: int) -> TooManyRuns | None:
    """Whether a leaf that gains a file has more runs than it may; of many leaves, each commit looks at two others."""
    for turn in range(min(LOOKS_MAX, len(references))):
        leaf = references[(state.number * LOOKS_MAX + turn) % len(references)].leaf
        if state.references.exceeds(leaf, runs_max):
            # As many files may be few runs.
            runs = len({one.run for one in state.held_by(leaf)})
            if runs > runs_max:
                position = state.leaves.position_of(leaf)
                assert position is not None
                keys = state.leaves.range_at(position)
                busy = any(not job.keys.intersect(keys).empty for job in state.jobs.values())
                return TooManyRuns(leaf, runs, runs_max, busy)
    return None


def _fenced_files(offer: OfferFiles, state: TableState) -> Rejected | None:
    for fence in state.fences:
        if offer.base_number < fence.number and any(new.file.reaches(fence.keys) for new in offer.files):
            return Rejected(
                f"it was begun at number {offer.base_number}, and number {fence.number} removed a range for good that "
                "its files reach into; leave those rows out, or write them again if they are meant to come back"
            )
    return None


def _references(new: NewFile, state: TableState, within: EncodedRange) -> list[Reference]:
    """One reference for each leaf inside ``within`` that the file reaches, with the rows it has there."""
    file, leaves = new.file, state.leaves
    first, last = leaves.position(file.min_key), leaves.position(file.max_key)
    counts = shares(new.summary, leaves.boundaries[first:last])
    references = []
    for position, (rows, exact) in zip(range(first, last + 1), counts, strict=True):
        if (rows or not exact) and within.covers(leaves.range_at(position)):
            references.append(Reference(file.id, leaves.ids[position], rows, exact, new.run))
    return references


def _resolve_open(offer: OpenJob, state: TableState) -> OpenJob | Rejected:
    job = offer.job
    if job.id in state.jobs:
        return Rejected(f"job {job.id} is open already")
    if not job.inputs:
        return Rejected(f"job {job.id} has no inputs")
    position = state.leaves.position(job.keys.min)
    if state.leaves.range_at(position) == job.keys:
        # One leaf, as it is now, with all of the inputs. Anything looser doubles rows: planned on a leaf that was split
        # meanwhile, an input that another job has merged away in one half would come back there with the output.
        held = {r.file for r in state.references_of(state.leaves.ids[position])}
        if gone := [name for name in job.inputs if name not in held]:
            return Rejected(f"input {gone[0]} of job {job.id} is not referenced there any more; plan again")
    elif refused := _part_missing(job, state):
        return refused
    inputs = set(job.inputs)
    for other in state.jobs.values():
        if not other.keys.intersect(job.keys).empty and (shared := inputs.intersection(other.inputs)):
            return Rejected(f"input {min(shared)} belongs to open job {other.id}")
    return offer


def _part_missing(job: Job, state: TableState) -> Rejected | None:
    """Why a job over several leaves may not be opened; None if every row of its inputs counts, so that it may.

    Exact counts prove it: those of the leaves inside the range sum to the rows of each input.
    """
    counted = dict.fromkeys(job.inputs, 0)
    rows: dict[str, int] = {}
    for position in state.leaves.overlapping(job.keys):
        if job.keys.covers(state.leaves.range_at(position)):
            for one in state.held_by(state.leaves.ids[position]):
                if one.file.id in counted:
                    counted[one.file.id] += one.rows if one.exact else -one.file.rows
                    rows[one.file.id] = one.file.rows
    for name, count in counted.items():
        if count != rows.get(name):
            return Rejected(
                f"job {job.id} is over no single leaf, and its leaves do not hold all rows of its input {name}: a leaf "
                "was split or joined, or the input was merged or removed in one; plan again"
            )
    return None


def _resolve_output(offer: OfferOutput, state: TableState) -> Replace | Rejected:
    job = state.jobs.get(offer.job)
    if job is None:
        return Rejected(f"job {offer.job} is not open: it was closed, or committed before")
    if refused := _refused_files(offer.files, state):
        return refused
    for fence in state.fences:
        if fence.stops((job,)):
            # The output would hold the bytes that were to go, though no reader saw them.
            return Rejected(f"number {fence.number} removed a range for good that job {job.id} reads; plan again")
    inputs = set(job.inputs)
    oldest = min((new.file.schema_version for new in offer.files), default=len(state.schemas))
    drop: list[tuple[str, int]] = []
    served: set[int] = set()
    for position in state.leaves.overlapping(job.keys):
        leaf = state.leaves.ids[position]
        held = [file for file in state.files_of(leaf) if file.id in inputs]
        newer = [file.id for file in held if file.schema_version > oldest]
        if newer:
            return Rejected(f"the output of job {offer.job} has not all fields of its input {newer[0]}; plan again")
        if held and job.keys.covers(state.leaves.range_at(position)):
            drop += [(file.id, leaf) for file in held]
            served.add(leaf)
    if not drop:
        return Rejected(f"none of the inputs of job {offer.job} is referenced any more")
    references = [r for new in offer.files for r in _references(new, state, job.keys) if r.leaf in served]
    used = {r.file for r in references}
    files = tuple(new.file for new in offer.files if new.file.id in used)
    return Replace(offer.job, tuple(drop), files, tuple(references))


def _resolve_dead(offer: MarkDead, state: TableState) -> MarkDead | Rejected:
    for name in offer.files:
        committed = state.files.get(name)
        if committed is None or committed.references or committed.dead:
            return Rejected(f"file {name} is forgotten, referenced or dead already; plan again")
    # Judged here and not when it was planned: a tag may have come since.
    free = [name for name in offer.files if not state.tagged(state.files[name])]
    return MarkDead(tuple(free)) if free else Rejected("tags need all of these files")


def _resolve_mark(offer: RaiseMark, state: TableState) -> RaiseMark | Rejected:
    stands = getattr(state, offer.mark.value)
    if offer.value <= stands:
        return Rejected(f"{offer.mark.value} stands at {stands} already; it only rises")
    match offer.mark:
        case Mark.RETAINED_FROM | Mark.FORGET_LINE:
            if offer.value > state.number:
                return Rejected(f"{offer.mark.value} cannot be {offer.value}; the newest number is {state.number}")
        case Mark.ORPHAN_HORIZON:
            # Or its output could be refused for its age, when the work is done.
            held = sorted(job.id for job in state.jobs.values() if job.began_us < offer.value)
            if held:
                return Rejected(f"job {held[0]} is open and began before that horizon; try again when it is closed")
        case _:
            assert_never(offer.mark)
    return offer


def _resolve_submit(offer: SubmitRequests, state: TableState) -> SubmitRequests | Rejected | Repeated | TooOld:
    names = [request.id for request in offer.requests]
    if len(set(names)) != len(names) or not all(request.files for request in offer.requests):
        return Rejected("a request is there twice, or names no file")
    new = [r for r in offer.requests if r.id not in state.open_requests and r.id not in state.requests]
    if not new:
        return Repeated(state.number)
    # Carried out before, perhaps, and forgotten.
    oldest = min(request.base_number for request in new)
    if oldest < state.forget_line:
        return TooOld(oldest, state.forget_line)
    if offer.forget_line < state.forget_line:
        # Of files that were there before the new line nobody knows any more whether they were carried out.
        return Rejected(f"the forget line rose from {offer.forget_line} to {state.forget_line} meanwhile; submit again")
    if len(state.open_requests) + len(new) > OPEN_REQUESTS_MAX:
        return Rejected(f"{len(state.open_requests)} requests are open, at most {OPEN_REQUESTS_MAX}; submit it later")
    return SubmitRequests(tuple(new), offer.forget_line)


def _not_open(request: str, state: TableState) -> Rejected:
    number = state.answered(request)
    return Rejected(f"request {request} is not open" + ("" if number is None else f": it was carried out at {number}"))


def _resolve_tag(offer: SetTag, state: TableState) -> SetTag | Rejected | Repeated:
    held = state.tags.get(offer.name)
    if held is not None:
        if held == offer.number:
            return Repeated(state.number)
        return Rejected(f"tag {offer.name} stands at number {held} already; remove it first")
    if not 1 <= offer.number <= state.number:
        return Rejected(f"there is no number {offer.number}; the newest is {state.number}")
    if not state.retains(offer.number):
        kept = f"kept are those from number {state.retained_from} on"
        return Rejected(f"files of number {offer.number} are deleted; {kept}")
    return offer
