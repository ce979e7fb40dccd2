"""Applying: a state and a resolved transaction give the next state. Deterministic, total over valid transactions, pure.

What is read from a log was valid when it was written, so anything that does not fit is damage, or a bug: it raises
DamagedError rather than guess, and the state does not advance. The same function runs before an entry is written, so
nothing that could not be applied is ever logged.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, assert_never

from lakebed.errors import DamagedError
from lakebed.files import CommittedFile, DataFile, LeafFile, Reference
from lakebed.partitions import Leaves
from lakebed.state.evolution import followed
from lakebed.state.table import Answer, Fence
from lakebed.state.transactions import (
    AddFiles,
    AlterSchema,
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
    OpenJob,
    RaiseMark,
    RejectRequest,
    RemoveRange,
    RemoveTag,
    Replace,
    Request,
    SetTag,
    SplitLeaves,
    SubmitRequests,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakebed.state.table import TableState
    from lakebed.state.transactions import Transaction

REJECTED_MAX = 256
"""Rejected requests that are remembered, the newest: some 100 KB of each snapshot. The log tells of all."""


def apply(state: TableState, transaction: Transaction, number: int) -> TableState:
    """The state after the transaction, which is part of entry ``number``. Raises DamagedError if it does not fit."""
    state = replace(state, number=number)
    match transaction:
        case CreateTable():
            return replace(
                state,
                table=transaction.table,
                schemas=followed((), transaction.schema),
                settings=dict(transaction.settings),
                leaves=Leaves.at(transaction.boundaries),
            )
        case AddFiles():
            _check_whole(transaction.files, transaction.references)
            return _add(_answered(state, transaction), transaction.files, transaction.references, None)
        case OpenJob():
            job = replace(transaction.job, opened=number)
            return replace(state, jobs={**state.jobs, job.id: job})
        case Replace():
            return _replace(state, transaction)
        case CloseJob():
            return replace(state, jobs={k: v for k, v in state.jobs.items() if k != transaction.job})
        case ChainRuns():
            return _chain(state, transaction)
        case SplitLeaves():
            return _split(state, transaction)
        case JoinLeaves():
            return _join(state, transaction)
        case RemoveRange():
            return _remove(state, transaction)
        case AlterSettings():
            merged = {**state.settings, **transaction.changes}
            return replace(state, settings={k: v for k, v in merged.items() if v is not None})
        case AlterSchema():
            return replace(state, schemas=followed(state.schemas, transaction.schema))
        case MarkDead():
            return _mark_dead(state, transaction)
        case ForgetFiles():
            for name in transaction.files:
                _known(state, name)
            return replace(state, files=state.files.updated({}, transaction.files))
        case RaiseMark():
            return _raise(state, transaction.mark, transaction.value)
        case SetTag():
            return replace(state, tags={**state.tags, transaction.name: transaction.number})
        case RemoveTag():
            return replace(state, tags={k: v for k, v in state.tags.items() if k != transaction.name})
        case SubmitRequests():
            return _submit(state, transaction)
        case FailRequest():
            return _fail(state, transaction)
        case RejectRequest():
            return _reject(state, transaction)
        case DropTable():
            return replace(state, dropped=True)
        case _:
            assert_never(transaction)


def _answered(state: TableState, added: AddFiles) -> TableState:
    """With the request key and the requests that the add carries out on record as done."""
    done = {name: Answer(state.number, _open_request(state, name).base_number) for name in added.requests}
    if added.request_key is not None:
        done[added.request_key] = Answer(state.number, added.base_number)
    if not done:
        return state
    left = state.open_requests.updated({}, added.requests)
    return replace(state, requests=state.requests.updated(done), open_requests=left)


def _mark_dead(state: TableState, transaction: MarkDead) -> TableState:
    dead = {name: replace(_known(state, name), dead=True) for name in transaction.files}
    gone_at = max((committed.dropped or 0 for committed in dead.values()), default=0)
    return replace(state, files=state.files.updated(dead), retained_from=max(state.retained_from, gone_at))


def _submit(state: TableState, submitted: SubmitRequests) -> TableState:
    requests = {request.id: replace(request, submitted=state.number) for request in submitted.requests}
    known = [name for name in requests if name in state.open_requests or name in state.requests]
    if known or len(requests) != len(submitted.requests):
        raise DamagedError(f"entry {state.number} submits a request twice: {min(known, default='in one transaction')}")
    rejected = tuple(request for request in state.rejected if request.id not in requests)
    return replace(state, open_requests=state.open_requests.updated(requests), rejected=rejected)


def _fail(state: TableState, failed: FailRequest) -> TableState:
    request = _open_request(state, failed.request)
    request = replace(request, failures=request.failures + 1, reason=failed.reason)
    return replace(state, open_requests=state.open_requests.updated({request.id: request}))


def _reject(state: TableState, rejected: RejectRequest) -> TableState:
    request = replace(_open_request(state, rejected.request), rejected=state.number, reason=rejected.reason)
    left = state.open_requests.updated({}, [request.id])
    return replace(state, open_requests=left, rejected=(*state.rejected, request)[-REJECTED_MAX:])


def _open_request(state: TableState, name: str) -> Request:
    request = state.open_requests.get(name)
    if request is None:
        raise DamagedError(f"entry {state.number} names request {name}, which is not open", request=name)
    return request


def _raise(state: TableState, mark: Mark, value: int) -> TableState:
    if value <= getattr(state, mark.value):
        raise DamagedError(f"entry {state.number} lowers {mark.value} to {value}; it only rises")
    match mark:
        case Mark.RETAINED_FROM:
            return replace(state, retained_from=value)
        case Mark.FORGET_LINE:
            # Rows of a request of before a fence do not pass it, however late they are ingested.
            oldest = min((request.base_number for request in state.open_requests.values()), default=state.number)
            fences = tuple(
                fence for fence in state.fences if fence.number > min(value, oldest) or fence.stops(state.jobs.values())
            )
            requests = state.requests.at_least("base_number", value)
            return replace(state, forget_line=value, requests=requests, fences=fences)
        case Mark.ORPHAN_HORIZON:
            return replace(state, orphan_horizon_us=value)
        case _:
            assert_never(mark)


def _known(state: TableState, name: str) -> CommittedFile:
    committed = state.files.get(name)
    if committed is None:
        raise DamagedError(f"entry {state.number} names file {name}, which the table does not have", file=name)
    return committed


def _check_whole(files: Iterable[DataFile], references: Iterable[Reference]) -> None:
    """A file just added is referenced wholly: its references' rows sum to its own."""
    rows: dict[str, int] = {}
    for reference in references:
        rows[reference.file] = rows.get(reference.file, 0) + reference.rows
    for file in files:
        if rows.get(file.id) != file.rows:
            raise DamagedError(f"references to {file.id} hold {rows.get(file.id, 0)} rows of {file.rows}", file=file.id)


def _add(
    state: TableState,
    files: Sequence[DataFile],
    references: Sequence[Reference],
    hull: tuple[int, int] | None,
) -> TableState:
    """Add files and references to them. Each takes the next sequence number, or all take the hull of their inputs'."""
    known: dict[str, CommittedFile] = {}
    sequence = state.next_sequence
    for file in files:
        if file.id in known or file.id in state.files:
            raise DamagedError(f"entry {state.number} adds file {file.id} a second time", file=file.id)
        if not 1 <= file.schema_version <= len(state.schemas):
            raise DamagedError(f"file {file.id} is of schema version {file.schema_version}, which there is not")
        lo, hi = hull or (sequence, sequence)
        known[file.id] = CommittedFile(lo, hi, added=state.number, file=file)
        sequence += hull is None
    return _refer(state, {file.id: file for file in files}, references, known)


def _refer(
    state: TableState,
    files: Mapping[str, DataFile],
    references: Sequence[Reference],
    new: Mapping[str, CommittedFile] = MappingProxyType({}),
) -> TableState:
    """Add references to these files: those that are new with them, and others that the table has."""
    known = dict(new)
    spans: dict[str, tuple[int, int]] = {}
    for name, count in Counter([reference.file for reference in references]).items():
        file = files.get(name)
        if file is None:
            raise DamagedError(f"entry {state.number} references {name}, which it neither adds nor moves", file=name)
        counted = new.get(name) or _known(state, name)
        known[name] = replace(counted, references=counted.references + count, dropped=None, file=None)
        spans[name] = state.leaves.position(file.min_key), state.leaves.position(file.max_key)
    came: dict[int, list[LeafFile]] = {}
    ids, position = state.leaves.ids, None
    for reference in references:
        # A file's references come in the order of the leaves, so that the next is mostly of the next leaf.
        beyond = 0 if position is None else position + 1
        following = beyond < len(ids) and ids[beyond] == reference.leaf
        position = beyond if following else state.leaves.position_of(reference.leaf)
        if position is None:
            raise DamagedError(f"entry {state.number} references {reference.file} from leaf {reference.leaf}")
        first, last = spans[reference.file]
        if not first <= position <= last:
            raise DamagedError(f"entry {state.number}: {reference.file} does not reach leaf {reference.leaf}")
        held = LeafFile(files[reference.file], reference.rows, reference.exact, reference.run)
        came.setdefault(reference.leaf, []).append(held)
    return replace(
        state,
        files=state.files.updated(known),
        references=state.references.added(came),
        next_sequence=max([state.next_sequence, *(committed.sequence_hi + 1 for committed in new.values())]),
    )


def _drop(state: TableState, pairs: Iterable[tuple[str, int]]) -> TableState:
    """Drop (file, leaf) references."""
    held: dict[int, dict[str, DataFile]] = {}
    going: dict[int, list[DataFile]] = {}
    for name, leaf in pairs:
        if leaf not in held:
            held[leaf] = {one.file.id: one.file for one in state.held_by(leaf)}
        file = held[leaf].pop(name, None)
        if file is None:
            raise DamagedError(f"entry {state.number} drops {name} from leaf {leaf}, which does not hold it", file=name)
        going.setdefault(leaf, []).append(file)
    return _let_go(state, going)


def _let_go(state: TableState, going: Mapping[int, Sequence[DataFile]]) -> TableState:
    """Drop files from leaves that hold them; one that loses its last reference has this number and its own facts."""
    facts = {file.id: file for files in going.values() for file in files}
    known: dict[str, CommittedFile] = {}
    for name, count in Counter(file.id for files in going.values() for file in files).items():
        counted = _known(state, name)
        left = counted.references - count
        dropped, own = (None, None) if left else (state.number, facts[name])
        known[name] = replace(counted, references=left, dropped=dropped, file=own)
    gone = {leaf: {file.id for file in files} for leaf, files in going.items() if files}
    return replace(state, files=state.files.updated(known), references=state.references.dropped(gone))


def _replace(state: TableState, transaction: Replace) -> TableState:
    job = state.jobs.get(transaction.job)
    if job is None:
        raise DamagedError(
            f"entry {state.number} commits job {transaction.job}, which is not open", job=transaction.job
        )
    # One of which every reference was removed meanwhile may be forgotten by now.
    inputs = [state.files[name] for name in job.inputs if name in state.files]
    hull = min(f.sequence_lo for f in inputs), max(f.sequence_hi for f in inputs)
    state = replace(state, jobs={k: v for k, v in state.jobs.items() if k != transaction.job})
    return _add(_drop(state, transaction.drop), transaction.files, transaction.references, hull)


def _chain(state: TableState, transaction: ChainRuns) -> TableState:
    held = {one.file.id: one for one in state.held_by(transaction.leaf)}
    strangers = [name for name in transaction.files if name not in held]
    if strangers:
        raise DamagedError(f"entry {state.number} chains {strangers[0]} in leaf {transaction.leaf}, which lacks it")
    renamed = {name: held[name]._replace(run=transaction.run) for name in transaction.files}
    # All go and come, so that they stay in the order of arrival.
    left = state.references.dropped({transaction.leaf: list(held)})
    return replace(state, references=left.added({transaction.leaf: [renamed.get(name, held[name]) for name in held]}))


def _split(state: TableState, transaction: SplitLeaves) -> TableState:
    going = {leaf: state.files_of(leaf) for leaf in transaction.cuts}
    after = replace(_let_go(state, going), leaves=state.leaves.split(transaction.cuts))
    parts = range(state.leaves.next_id, after.leaves.next_id)
    held = {leaf: {file.id for file in files} for leaf, files in going.items()}
    for reference in transaction.references:
        # A reference that two exact ranks prove empty may go; one that was never there may not come.
        if reference.leaf not in parts or reference.file not in held[after.leaves.parents[reference.leaf][0]]:
            raise DamagedError(f"entry {state.number} brings {reference.file} into leaf {reference.leaf} by a split")
    return _refer(after, {file.id: file for files in going.values() for file in files}, transaction.references)


def _join(state: TableState, transaction: JoinLeaves) -> TableState:
    going = {leaf: state.files_of(leaf) for leaf in transaction.leaves}
    moved = {file.id: file for files in going.values() for file in files}
    if set(moved) != {r.file for r in transaction.references}:
        raise DamagedError(f"entry {state.number} joins leaves {transaction.leaves} and changes what they refer to")
    state = _let_go(state, going)
    state = replace(state, leaves=state.leaves.join(transaction.leaves))
    return _refer(state, moved, transaction.references)


def _remove(state: TableState, transaction: RemoveRange) -> TableState:
    state = _split(state, transaction.split)
    going = {leaf: state.files_of(leaf) for leaf in transaction.leaves}
    for leaf, files in going.items():
        if not files:
            raise DamagedError(
                f"entry {state.number} removes from leaf {leaf}, which is not there or refers to nothing"
            )
    fences = tuple(Fence(keys, state.number) for keys in transaction.ranges) if transaction.fence else ()
    return replace(_let_go(state, going), fences=(*state.fences, *fences))
