"""Proposals and transactions: two closed unions of values, each with its rules in the module of its family.

A *proposal* is a change that a caller requests. A *transaction* is the resolved change in the log: it names files,
partitions and counts explicitly, so a reader in another language only adds and drops. Most proposals need no resolving
and are their own transaction.

A proposal has ``resolve(state)``. A transaction has ``apply(state)``, ``describe`` (for the history) and ``document``
(its stored form, whose method ``transaction`` is the inverse). :func:`resolve` and :func:`apply` are the entry points.
They are pure: no I/O, no clock, no randomness. mypy holds every member of the unions to these methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from lakebed.errors import Code
from lakebed.model.state.transactions.add_files import AddFiles, AddFilesDocument, ProposeFiles
from lakebed.model.state.transactions.age_off import DropExpired, DropExpiredDocument, ProposeCut, ProposeExpiry
from lakebed.model.state.transactions.filter_changes import ChangeFilter, ChangeFilterDocument, ProposeFilter
from lakebed.model.state.transactions.index_changes import AddIndex, DropIndex
from lakebed.model.state.transactions.ingest import (
    FailRequest,
    RejectRequest,
    SubmitRequests,
)
from lakebed.model.state.transactions.job_changes import (
    CloseJob,
    JobDocument,
    OpenJob,
    OpenJobDocument,
    ProposeJobs,
    ProposeOutput,
    ProposeRewrite,
    Replace,
    ReplaceDocument,
)
from lakebed.model.state.transactions.merge_changes import SetMerge, SetMergeDocument
from lakebed.model.state.transactions.partition_changes import (
    ConcatenateRuns,
    Cuts,
    JoinDocument,
    JoinPartitions,
    ProposeJoin,
    ProposeSplit,
    SplitDocument,
    SplitPartitions,
)
from lakebed.model.state.transactions.removals import ProposeRemoval, RemoveRange, RemoveRangeDocument
from lakebed.model.state.transactions.required_features import RequireFeatures
from lakebed.model.state.transactions.resolution import Description, Refusal, Rejected, Repeated, TooManyRuns, TooOld
from lakebed.model.state.transactions.restores import ProposeRestore, RestoreDocument, RestoreVersion
from lakebed.model.state.transactions.retention import (
    PurgeFiles,
    RaiseWatermark,
    RaiseWatermarkDocument,
    RemoveTag,
    RetireFiles,
    SetTag,
    Watermark,
)
from lakebed.model.state.transactions.schema_changes import (
    AlterSchema,
    AlterSchemaDocument,
    AlterSettings,
    CreateTable,
    CreateTableDocument,
    DropTable,
    ProposeSchema,
)
from lakebed.model.state.transactions.view_feeds import AdvanceView, ProposeEntries, ProposeFeed

if TYPE_CHECKING:
    from lakebed.model.state.table_state import TableState

__all__ = [
    "AddFiles", "AddIndex", "AdvanceView", "AlterSchema", "AlterSettings", "ChangeFilter", "CloseJob",
    "ConcatenateRuns", "CreateTable", "Cuts", "Description", "DropExpired", "DropIndex", "DropTable", "FailRequest",
    "JobDocument", "JoinPartitions", "OpenJob", "Proposal", "ProposeCut", "ProposeEntries", "ProposeExpiry",
    "ProposeFeed",
    "ProposeFiles", "ProposeFilter", "ProposeJobs", "ProposeJoin", "ProposeOutput", "ProposeRemoval",
    "ProposeRestore", "ProposeRewrite", "ProposeSchema", "ProposeSplit", "PurgeFiles", "RaiseWatermark", "Refusal",
    "RejectRequest", "Rejected", "RemoveRange", "RemoveTag", "Repeated", "Replace", "RequireFeatures", "RestoreVersion",
    "RetireFiles",
    "SetMerge", "SetTag", "SplitPartitions", "StoredTransaction", "SubmitRequests", "TooManyRuns", "TooOld",
    "Transaction", "Watermark", "apply", "resolve",
]  # fmt: skip

Proposal = (
    CreateTable | ProposeFiles | ProposeFeed | ProposeEntries | OpenJob | ProposeJobs | ProposeOutput | ProposeRewrite
    | CloseJob | ConcatenateRuns | ProposeSplit | ProposeJoin | ProposeRemoval | ProposeRestore | AlterSettings
    | ProposeSchema | SetMerge | ProposeFilter | ProposeCut | ProposeExpiry | RetireFiles | PurgeFiles | RaiseWatermark
    | SetTag | RemoveTag | SubmitRequests | FailRequest | RejectRequest | AddIndex | DropIndex | RequireFeatures
    | DropTable
)  # fmt: skip
Transaction = (
    CreateTable | AddFiles | AdvanceView | OpenJob | Replace | CloseJob | ConcatenateRuns | SplitPartitions
    | JoinPartitions | RemoveRange | RestoreVersion | AlterSettings | AlterSchema | SetMerge | ChangeFilter
    | DropExpired | RetireFiles | PurgeFiles | RaiseWatermark | SetTag | RemoveTag | SubmitRequests | FailRequest
    | RejectRequest | AddIndex | DropIndex | RequireFeatures | DropTable
)  # fmt: skip
StoredTransaction = (
    CreateTableDocument | AddFilesDocument | AdvanceView | OpenJobDocument | ReplaceDocument | CloseJob
    | ConcatenateRuns | SplitDocument | JoinDocument | RemoveRangeDocument | RestoreDocument | AlterSettings
    | AlterSchemaDocument | SetMergeDocument | ChangeFilterDocument | DropExpiredDocument | RetireFiles | PurgeFiles
    | RaiseWatermarkDocument | SetTag | RemoveTag | SubmitRequests | FailRequest | RejectRequest | AddIndex | DropIndex
    | RequireFeatures | DropTable
)  # fmt: skip
"""Transactions as the log stores them, a tagged union: the field ``type`` names the transaction."""

REFERENCES_MAX = 2_000_000
"""Maximum references that one transaction adds: some seconds of work for every reader, and half a gigabyte of
memory."""


def resolve(
    proposal: Proposal, state: TableState, references_max: int = REFERENCES_MAX
) -> Transaction | tuple[Transaction, ...] | Refusal:
    """Resolve the proposal in this state: one transaction, several for the same entry, or a refusal.

    Called again after every lost race, so a writer with an old snapshot is never rejected for its age.
    """
    if not isinstance(proposal, CreateTable):
        if state.version == 0:
            return Rejected(Code.PROPOSAL_INVALID, "the table does not exist yet")
        if state.dropped:
            return Rejected(Code.TABLE_DROPPED, "the table has been dropped")
    resolved = proposal.resolve(state)
    added = _references_added(resolved)
    if added > references_max:
        return Rejected(
            Code.LIMIT_REACHED,
            f"its files reach partitions {added:,} times, which is more than {references_max:,}: write fewer files at "
            "a time, or rows of a narrower range of keys",
        )
    return resolved


def _references_added(resolved: Transaction | tuple[Transaction, ...] | Refusal) -> int:
    match resolved:
        case tuple():
            return sum(map(_references_added, resolved))
        case AddFiles() | Replace() | SplitPartitions() | JoinPartitions() | RestoreVersion():
            return len(resolved.references)
        case RemoveRange():
            return len(resolved.split.references)
        case _:
            return 0


def apply(state: TableState, transaction: Transaction, version: int) -> TableState:
    """Return the state after the transaction, which is part of entry ``version``. Deterministic.

    Raises DamagedError if the transaction does not fit the state. Also called before an entry is written, so an entry
    that cannot be applied is never logged.
    """
    return transaction.apply(replace(state, version=version))
