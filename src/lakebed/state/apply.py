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

from lakebed.errors import Code
from lakebed.model.files import CommittedFile, DataFile, PartitionFile, Reference
from lakebed.model.partitions import Partitions
from lakebed.state.evolution import followed
from lakebed.state.table_state import Answer, Fence
from lakebed.state.transactions import (
    AddFiles,
    AlterSchema,
    AlterSettings,
    CloseJob,
    ConcatenateRuns,
    CreateTable,
    DropTable,
    FailRequest,
    JoinPartitions,
    OpenJob,
    PurgeFiles,
    RaiseWatermark,
    RejectRequest,
    RemoveRange,
    RemoveTag,
    Replace,
    Request,
    RetireFiles,
    SetTag,
    SplitPartitions,
    SubmitRequests,
    Watermark,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakebed.state.table_state import TableState
    from lakebed.state.transactions import Transaction

REJECTED_MAX = 256
"""Rejected requests that are remembered, the newest: some 100 KB of each checkpoint. The log tells of all."""


def apply(state: TableState, transaction: Transaction, version: int) -> TableState:
    """The state after the transaction, which is part of entry ``version``. Raises DamagedError if it does not fit."""
    state = replace(state, version=version)
    match transaction:
        case CreateTable():
            return replace(
                state,
                table=transaction.table,
                schemas=followed((), transaction.schema),
                settings=dict(transaction.settings),
                partitions=Partitions.at(transaction.boundaries),
            )
        case AddFiles():
            _check_whole(transaction.files, transaction.references)
            return _add(_answered(state, transaction), transaction.files, transaction.references, None)
        case OpenJob():
            job = replace(transaction.job, opened=version)
            return replace(state, jobs={**state.jobs, job.id: job})
        case Replace():
            return _replace(state, transaction)
        case CloseJob():
            return replace(state, jobs={k: v for k, v in state.jobs.items() if k != transaction.job})
        case ConcatenateRuns():
            return _concatenate(state, transaction)
        case SplitPartitions():
            return _split(state, transaction)
        case JoinPartitions():
            return _join(state, transaction)
        case RemoveRange():
            return _remove(state, transaction)
        case AlterSettings():
            merged = {**state.settings, **transaction.changes}
            return replace(state, settings={k: v for k, v in merged.items() if v is not None})
        case AlterSchema():
            return replace(state, schemas=followed(state.schemas, transaction.schema))
        case RetireFiles():
            return _mark_dead(state, transaction)
        case PurgeFiles():
            for name in transaction.files:
                _known(state, name)
            return replace(state, files=state.files.updated({}, transaction.files))
        case RaiseWatermark():
            return _raise(state, transaction.mark, transaction.value)
        case SetTag():
            return replace(state, tags={**state.tags, transaction.name: transaction.version})
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
    done = {name: Answer(state.version, _open_request(state, name).base_version) for name in added.requests}
    if added.request_key is not None:
        done[added.request_key] = Answer(state.version, added.base_version)
    if not done:
        return state
    left = state.open_requests.updated({}, added.requests)
    return replace(state, requests=state.requests.updated(done), open_requests=left)


def _mark_dead(state: TableState, transaction: RetireFiles) -> TableState:
    retired = {name: replace(_known(state, name), retired=True) for name in transaction.files}
    gone_at = max((committed.dropped or 0 for committed in retired.values()), default=0)
    return replace(
        state,
        files=state.files.updated(retired),
        earliest_retained_version=max(state.earliest_retained_version, gone_at),
    )


def _submit(state: TableState, submitted: SubmitRequests) -> TableState:
    requests = {request.id: replace(request, submitted=state.version) for request in submitted.requests}
    known = [name for name in requests if name in state.open_requests or name in state.requests]
    if known or len(requests) != len(submitted.requests):
        raise Code.TRANSACTION_IMPOSSIBLE(
            f"entry {state.version} submits a request twice: {min(known, default='in one transaction')}"
        )
    rejected = tuple(request for request in state.rejected if request.id not in requests)
    return replace(state, open_requests=state.open_requests.updated(requests), rejected=rejected)


def _fail(state: TableState, failed: FailRequest) -> TableState:
    request = _open_request(state, failed.request)
    request = replace(request, failures=request.failures + 1, reason=failed.reason)
    return replace(state, open_requests=state.open_requests.updated({request.id: request}))


def _reject(state: TableState, rejected: RejectRequest) -> TableState:
    request = replace(_open_request(state, rejected.request), rejected=state.version, reason=rejected.reason)
    left = state.open_requests.updated({}, [request.id])
    return replace(state, open_requests=left, rejected=(*state.rejected, request)[-REJECTED_MAX:])


def _open_request(state: TableState, name: str) -> Request:
    request = state.open_requests.get(name)
    if request is None:
        raise Code.TRANSACTION_IMPOSSIBLE(
            f"entry {state.version} names request {name}, which is not open", request=name
        )
    return request


def _raise(state: TableState, mark: Watermark, value: int) -> TableState:
    if value <= getattr(state, mark.value):
        raise Code.TRANSACTION_IMPOSSIBLE(f"entry {state.version} lowers {mark.value} to {value}; it only rises")
    match mark:
        case Watermark.EARLIEST_RETAINED_VERSION:
            return replace(state, earliest_retained_version=value)
        case Watermark.REQUEST_WATERMARK:
            # Rows of a request of before a fence do not pass it, however late they are ingested.
            oldest = min((request.base_version for request in state.open_requests.values()), default=state.version)
            fences = tuple(
                fence
                for fence in state.fences
                if fence.version > min(value, oldest) or fence.stops(state.jobs.values())
            )
            requests = state.requests.at_least("base_version", value)
            return replace(state, request_watermark=value, requests=requests, fences=fences)
        case Watermark.ORPHAN_CUTOFF:
            return replace(state, orphan_cutoff_us=value)
        case _:
            assert_never(mark)


def _known(state: TableState, name: str) -> CommittedFile:
    committed = state.files.get(name)
    if committed is None:
        raise Code.TRANSACTION_IMPOSSIBLE(
            f"entry {state.version} names file {name}, which the table does not have", file=name
        )
    return committed


def _check_whole(files: Iterable[DataFile], references: Iterable[Reference]) -> None:
    """A file just added is referenced wholly: its references' rows sum to its own."""
    rows: dict[str, int] = {}
    for reference in references:
        rows[reference.file] = rows.get(reference.file, 0) + reference.rows
    for file in files:
        if rows.get(file.id) != file.rows:
            raise Code.TRANSACTION_IMPOSSIBLE(
                f"references to {file.id} hold {rows.get(file.id, 0)} rows of {file.rows}", file=file.id
            )


def _add(
    state: TableState,
    files: Sequence[DataFile],
    references: Sequence[Reference],
    sequence_span: tuple[int, int] | None,
) -> TableState:
    """Add files and references to them. Each takes the next sequence number, or all take the span of their inputs'."""
    known: dict[str, CommittedFile] = {}
    sequence = state.next_sequence
    for file in files:
        if file.id in known or file.id in state.files:
            raise Code.TRANSACTION_IMPOSSIBLE(f"entry {state.version} adds file {file.id} a second time", file=file.id)
        if not 1 <= file.schema_version <= len(state.schemas):
            raise Code.TRANSACTION_IMPOSSIBLE(
                f"file {file.id} is of schema version {file.schema_version}, which there is not"
            )
        lo, hi = sequence_span or (sequence, sequence)
        known[file.id] = CommittedFile(lo, hi, added=state.version, file=file)
        sequence += sequence_span is None
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
            raise Code.TRANSACTION_IMPOSSIBLE(
                f"entry {state.version} references {name}, which it neither adds nor moves", file=name
            )
        counted = new.get(name) or _known(state, name)
        known[name] = replace(counted, references=counted.references + count, dropped=None, file=None)
        spans[name] = state.partitions.position(file.min_key), state.partitions.position(file.max_key)
    came: dict[int, list[PartitionFile]] = {}
    ids, position = state.partitions.ids, None
    for reference in references:
        # A file's references come in the order of the partitions, so that the next is mostly of the next partition.
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
        held = PartitionFile(files[reference.file], reference.rows, reference.exact, reference.run)
        came.setdefault(reference.partition, []).append(held)
    return replace(
        state,
        files=state.files.updated(known),
        references=state.references.added(came),
        next_sequence=max([state.next_sequence, *(committed.sequence_hi + 1 for committed in new.values())]),
    )


def _drop(state: TableState, pairs: Iterable[tuple[str, int]]) -> TableState:
    """Drop (file, partition) references."""
    held: dict[int, dict[str, DataFile]] = {}
    going: dict[int, list[DataFile]] = {}
    for name, partition in pairs:
        if partition not in held:
            held[partition] = {one.file.id: one.file for one in state.held_by(partition)}
        file = held[partition].pop(name, None)
        if file is None:
            raise Code.TRANSACTION_IMPOSSIBLE(
                f"entry {state.version} drops {name} from partition {partition}, which does not hold it", file=name
            )
        going.setdefault(partition, []).append(file)
    return _let_go(state, going)


def _let_go(state: TableState, going: Mapping[int, Sequence[DataFile]]) -> TableState:
    """Drop files from partitions that hold them; one that loses its last reference has this number and its own
    facts.
    """
    facts = {file.id: file for files in going.values() for file in files}
    known: dict[str, CommittedFile] = {}
    for name, count in Counter(file.id for files in going.values() for file in files).items():
        counted = _known(state, name)
        left = counted.references - count
        dropped, own = (None, None) if left else (state.version, facts[name])
        known[name] = replace(counted, references=left, dropped=dropped, file=own)
    gone = {partition: {file.id for file in files} for partition, files in going.items() if files}
    return replace(state, files=state.files.updated(known), references=state.references.dropped(gone))


def _replace(state: TableState, transaction: Replace) -> TableState:
    job = state.jobs.get(transaction.job)
    if job is None:
        raise Code.TRANSACTION_IMPOSSIBLE(
            f"entry {state.version} commits job {transaction.job}, which is not open", job=transaction.job
        )
    # One of which every reference was removed meanwhile may be forgotten by now.
    inputs = [state.files[name] for name in job.inputs if name in state.files]
    sequence_span = min(f.sequence_lo for f in inputs), max(f.sequence_hi for f in inputs)
    state = replace(state, jobs={k: v for k, v in state.jobs.items() if k != transaction.job})
    return _add(_drop(state, transaction.drop), transaction.files, transaction.references, sequence_span)


def _concatenate(state: TableState, transaction: ConcatenateRuns) -> TableState:
    held = {one.file.id: one for one in state.held_by(transaction.partition)}
    strangers = [name for name in transaction.files if name not in held]
    if strangers:
        raise Code.TRANSACTION_IMPOSSIBLE(
            f"entry {state.version} chains {strangers[0]} in partition {transaction.partition}, which lacks it"
        )
    renamed = {name: held[name]._replace(run=transaction.run) for name in transaction.files}
    # All go and come, so that they stay in the order of arrival.
    left = state.references.dropped({transaction.partition: list(held)})
    return replace(
        state, references=left.added({transaction.partition: [renamed.get(name, held[name]) for name in held]})
    )


def _split(state: TableState, transaction: SplitPartitions) -> TableState:
    going = {partition: state.files_of(partition) for partition in transaction.cuts}
    after = replace(_let_go(state, going), partitions=state.partitions.split(transaction.cuts))
    parts = range(state.partitions.next_id, after.partitions.next_id)
    held = {partition: {file.id for file in files} for partition, files in going.items()}
    for reference in transaction.references:
        # A reference that two exact ranks prove empty may go; one that was never there may not come.
        if (
            reference.partition not in parts
            or reference.file not in held[after.partitions.parents[reference.partition][0]]
        ):
            raise Code.TRANSACTION_IMPOSSIBLE(
                f"entry {state.version} brings {reference.file} into partition {reference.partition} by a split"
            )
    return _refer(after, {file.id: file for files in going.values() for file in files}, transaction.references)


def _join(state: TableState, transaction: JoinPartitions) -> TableState:
    going = {partition: state.files_of(partition) for partition in transaction.partitions}
    moved = {file.id: file for files in going.values() for file in files}
    if set(moved) != {r.file for r in transaction.references}:
        raise Code.TRANSACTION_IMPOSSIBLE(
            f"entry {state.version} joins partitions {transaction.partitions} and changes what they refer to"
        )
    state = _let_go(state, going)
    state = replace(state, partitions=state.partitions.join(transaction.partitions))
    return _refer(state, moved, transaction.references)


def _remove(state: TableState, transaction: RemoveRange) -> TableState:
    state = _split(state, transaction.split)
    going = {partition: state.files_of(partition) for partition in transaction.partitions}
    for partition, files in going.items():
        if not files:
            raise Code.TRANSACTION_IMPOSSIBLE(
                f"entry {state.version} removes from partition {partition}, which is not there or refers to nothing"
            )
    fences = tuple(Fence(keys, state.version) for keys in transaction.ranges) if transaction.fence else ()
    return replace(_let_go(state, going), fences=(*state.fences, *fences))
