"""Proposals as MessagePack or JSON, for a service that commits them.

A proposal is its own document, with Arrow types in the form of stored schemas. A proposal that is its own transaction
has the document that the log stores. Changes of schemas and filters have the documents of requests to a service. A
service accepts the proposals of writers, maintenance and administrators. Three kinds are always committed by the
proposing process: the first entry of a table, when no other process has the table's id; the last entry, when the table
is no longer in the catalog; and restores, whose proposal contains the whole state of an older version. Pure.

Errors. UsageError for a document of an unknown type, or with a value that its type does not allow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from lakebed.errors import Code
from lakebed.model import types
from lakebed.model.documents import UNREADABLE
from lakebed.model.schema import Field
from lakebed.model.state.change_documents import (
    FilterChangeDocument,
    SchemaChangeDocument,
    filter_change_document,
    schema_change_document,
)
from lakebed.model.state.fields import FileDocument, Whole, checked
from lakebed.model.state.reference_lists import Sidecars
from lakebed.model.state.transactions import (
    AddIndex,
    AlterSettings,
    CloseJob,
    ConcatenateRuns,
    CreateTable,
    DropIndex,
    DropTable,
    FailRequest,
    JobDocument,
    OpenJob,
    ProposeCut,
    ProposeEntries,
    ProposeExpiry,
    ProposeFeed,
    ProposeFiles,
    ProposeFilter,
    ProposeJobs,
    ProposeJoin,
    ProposeOutput,
    ProposeRemoval,
    ProposeRestore,
    ProposeRewrite,
    ProposeSchema,
    ProposeSplit,
    PurgeFiles,
    RaiseWatermark,
    RejectRequest,
    RemoveTag,
    RequireFeatures,
    RetireFiles,
    SetMerge,
    SetTag,
    SubmitRequests,
)
from lakebed.model.state.transactions.job_changes import OpenJobDocument
from lakebed.model.state.transactions.merge_changes import SetMergeDocument
from lakebed.model.state.transactions.retention import RaiseWatermarkDocument

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.model.key_summaries import Summary
    from lakebed.model.state.transactions import Proposal


class SchemaProposalDocument(Struct, frozen=True, tag_field="type", tag="propose_schema"):
    """Changes of the schema."""

    changes: tuple[SchemaChangeDocument, ...]

    def proposal(self) -> ProposeSchema:
        """Return the proposal of this document."""
        return ProposeSchema(tuple([one.value() for one in self.changes]))


class FilterProposalDocument(Struct, frozen=True, tag_field="type", tag="propose_filter"):
    """Changes of the filter."""

    changes: tuple[FilterChangeDocument, ...]
    fields: tuple[Field, ...]
    now_us: Whole

    def proposal(self) -> ProposeFilter:
        """Return the proposal of this document."""
        return ProposeFilter(tuple([one.value() for one in self.changes]), self.fields, self.now_us)


_Stored = (
    OpenJobDocument | CloseJob | ConcatenateRuns | SubmitRequests | FailRequest | RejectRequest
    | SetMergeDocument | AlterSettings | SetTag | RemoveTag | RetireFiles | PurgeFiles | RaiseWatermarkDocument
    | AddIndex | DropIndex | RequireFeatures
)  # fmt: skip
_Changes = SchemaProposalDocument | FilterProposalDocument
_Document = (
    ProposeFiles | ProposeFeed | ProposeEntries | ProposeOutput | ProposeRewrite | ProposeJobs | ProposeSplit
    | ProposeJoin | ProposeRemoval | ProposeCut | ProposeExpiry | _Stored | _Changes
)  # fmt: skip


def _arrow_type(_: type, document: Any) -> Any:
    """Encode the values of a proposal that msgspec cannot: the Arrow types of fields."""
    return types.from_json(document)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=types.to_json)
_DECODERS: dict[str, msgspec.msgpack.Decoder[_Document] | msgspec.json.Decoder[_Document]] = {
    "msgpack": msgspec.msgpack.Decoder(_Document, dec_hook=_arrow_type),
    "json": msgspec.json.Decoder(_Document, dec_hook=_arrow_type),
}


def encode_proposal(proposal: Proposal) -> bytes | None:
    """Encode a proposal as MessagePack; None if it is one that no service accepts."""
    match proposal:
        case CreateTable() | DropTable() | ProposeRestore():
            return None
        case ProposeSchema(changes):
            return _ENCODER.encode(SchemaProposalDocument(tuple(map(schema_change_document, changes))))
        case ProposeFilter(changes, fields, now_us):
            return _ENCODER.encode(FilterProposalDocument(tuple(map(filter_change_document, changes)), fields, now_us))
        case OpenJob() | SetMerge() | RaiseWatermark():
            return _ENCODER.encode(proposal.document(Sidecars()))
        case _:
            return _ENCODER.encode(proposal)


def decode_proposal(data: bytes | msgspec.Raw, format: str = "msgpack") -> Proposal:
    """Decode a proposal sent as ``msgpack`` or ``json``. Raises UsageError."""
    try:
        document = _DECODERS[format].decode(data)
        if isinstance(document, _Stored):
            return document.transaction({})
        if isinstance(document, _Changes):
            return document.proposal()
        _check(document)
    except UNREADABLE as error:
        raise Code.REQUEST_INVALID(f"not a proposal: {str(error)[:300]}") from error
    return document


def _check(proposal: Proposal) -> None:
    """Raise UsageError or ValueError for values that the types of a proposal allow but the log does not."""
    match proposal:
        case ProposeFiles() | ProposeFeed() | ProposeEntries() | ProposeOutput() | ProposeRewrite():
            for new in proposal.files:
                checked(FileDocument.of(new.file))
                if new.summary.rows != new.file.rows:
                    raise ValueError(f"file {new.file.id} has {new.file.rows} rows, and its summary {new.summary.rows}")
            _check_summaries(new.summary for new in proposal.files)
        case ProposeSplit() | ProposeRemoval():
            _check_summaries(proposal.summaries.values())
        case ProposeJobs(jobs):
            for job in jobs:
                checked(JobDocument.of(job))
        case _:
            pass


def _check_summaries(summaries: Iterable[Summary]) -> None:
    if not all(summary.ascends for summary in summaries):
        raise ValueError("keys and ranks of a summary do not ascend")
