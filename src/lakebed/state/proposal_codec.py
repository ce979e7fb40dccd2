"""Proposals as MessagePack or JSON, for a service that commits them.

A document has what its proposal has; a proposal that is its own transaction has the document that the log stores. What
a service takes is what writers, maintenance and administrators propose. Three kinds are committed by the process that
wants them: the first entry of a table, which no other process knows; the last, when no service knows the table any
more; and restores, whose proposal has the whole state of an older version. Pure.

Errors. UsageError for a document that is none: of an unknown type, with a value that its type does not allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, assert_never

import msgspec
from msgspec import Struct

from lakebed.errors import Code
from lakebed.model.documents import UNREADABLE
from lakebed.model.files import NewFile
from lakebed.model.key_summaries import Summary
from lakebed.model.schema_documents import field_from_json, field_to_json
from lakebed.state.change_documents import (
    FilterChangeDocument,
    SchemaChangeDocument,
    filter_change_document,
    schema_change_document,
)
from lakebed.state.fields import Bounds, Id, Positive, Whole, decode_bounds, encode_bounds
from lakebed.state.file_document import FileDocument
from lakebed.state.transactions import (
    AlterSettings,
    CloseJob,
    ConcatenateRuns,
    CreateTable,
    DropTable,
    FailRequest,
    JobDocument,
    OpenJob,
    ProposeCut,
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
    RetireFiles,
    SetMerge,
    SetTag,
    SubmitRequests,
)
from lakebed.state.transactions.ingest import SubmitRequestsDocument
from lakebed.state.transactions.job_changes import OpenJobDocument
from lakebed.state.transactions.key_guard import KeyGuard
from lakebed.state.transactions.merge_changes import SetMergeDocument
from lakebed.state.transactions.retention import RaiseWatermarkDocument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.state.transactions import Proposal


class SummaryDocument(Struct, frozen=True, array_like=True):
    """The key summary of a new file."""

    keys: tuple[bytes, ...]
    ranks: tuple[Whole, ...]
    rows: Positive
    max_key: bytes
    blocks: bytes

    @classmethod
    def of(cls, summary: Summary) -> SummaryDocument:
        """The document of a summary."""
        return cls(summary.keys, summary.ranks, summary.rows, summary.max_key, summary.blocks)

    def value(self) -> Summary:
        """The summary. Raises ValueError if its keys and ranks do not ascend."""
        ascending = all(a < b for a, b in zip(self.keys, self.keys[1:], strict=False))
        ranked = all(a <= b for a, b in zip(self.ranks, (*self.ranks[1:], self.rows), strict=True))
        if len(self.keys) != len(self.ranks) or not ascending or not ranked:
            raise ValueError("keys and ranks of a summary do not ascend")
        return Summary(self.keys, self.ranks, self.rows, self.max_key, self.blocks)


Summaries = dict[str, SummaryDocument]
"""Summaries by the ids of their files."""


class NewFileDocument(Struct, frozen=True, omit_defaults=True):
    """A file that was sent; ``added`` are the fields that it brings along."""

    file: FileDocument
    summary: SummaryDocument
    run: str
    added: tuple[dict[str, Any], ...] = ()

    @classmethod
    def of(cls, new: NewFile) -> NewFileDocument:
        """The document of a file."""
        added = tuple([field_to_json(field) for field in new.added])
        return cls(FileDocument.of(new.file), SummaryDocument.of(new.summary), new.run, added)

    def value(self) -> NewFile:
        """The file. Raises ValueError if its summary counts other rows than it has."""
        if self.summary.rows != self.file.rows:
            raise ValueError(f"file {self.file.id} has {self.file.rows} rows, and its summary {self.summary.rows}")
        added = tuple([field_from_json(one) for one in self.added])
        return NewFile(self.file.value(), self.summary.value(), self.run, added)


class GuardDocument(Struct, frozen=True):
    """A guard over keys that were read."""

    version: Whole
    sequence: Whole
    lows: tuple[bytes, ...]
    highs: tuple[bytes, ...]
    files: tuple[Id, ...]

    @classmethod
    def of(cls, guard: KeyGuard) -> GuardDocument:
        """The document of a guard."""
        return cls(guard.version, guard.sequence, guard.lows, guard.highs, tuple(sorted(guard.files)))

    def value(self) -> KeyGuard:
        """The guard. Raises ValueError if a span has no end."""
        if len(self.lows) != len(self.highs):
            raise ValueError("a guard has as many lows as highs")
        return KeyGuard(self.version, self.sequence, self.lows, self.highs, frozenset(self.files))


class FilesDocument(Struct, frozen=True, tag_field="type", tag="propose_files", omit_defaults=True):
    """New files."""

    files: tuple[NewFileDocument, ...]
    request_key: str | None = None
    base_version: Whole = 0
    requests: tuple[str, ...] = ()
    runs_max: Whole = 0
    merged_at: Whole | None = None
    guard: GuardDocument | None = None

    def proposal(self) -> ProposeFiles:
        """The proposal."""
        guard = None if self.guard is None else self.guard.value()
        key, base, requests = self.request_key, self.base_version, self.requests
        return ProposeFiles(_files(self.files), key, base, requests, self.runs_max, self.merged_at, guard)


class FeedDocument(Struct, frozen=True, tag_field="type", tag="propose_feed"):
    """Files of a view."""

    files: tuple[NewFileDocument, ...]
    base_version: Whole
    since: Whole
    until: Whole
    anew: bool

    def proposal(self) -> ProposeFeed:
        """The proposal."""
        return ProposeFeed(_files(self.files), self.base_version, self.since, self.until, self.anew)


class OutputDocument(Struct, frozen=True, tag_field="type", tag="propose_output"):
    """The output of a job."""

    job: str
    files: tuple[NewFileDocument, ...]

    @classmethod
    def of(cls, output: ProposeOutput) -> OutputDocument:
        """The document of an output."""
        return cls(output.job, _documents(output.files))

    def proposal(self) -> ProposeOutput:
        """The proposal."""
        return ProposeOutput(self.job, _files(self.files))


class RewriteDocument(Struct, frozen=True, tag_field="type", tag="propose_rewrite"):
    """The outputs of all jobs of a rewrite."""

    outputs: tuple[OutputDocument, ...]

    def proposal(self) -> ProposeRewrite:
        """The proposal."""
        return ProposeRewrite(tuple([output.proposal() for output in self.outputs]))


class JobsDocument(Struct, frozen=True, tag_field="type", tag="propose_jobs"):
    """Jobs that are opened together."""

    jobs: tuple[JobDocument, ...]

    def proposal(self) -> ProposeJobs:
        """The proposal."""
        return ProposeJobs(tuple([job.value() for job in self.jobs]))


class SplitProposalDocument(Struct, frozen=True, tag_field="type", tag="propose_split"):
    """Cuts of partitions, in their order."""

    cuts: tuple[tuple[Positive, tuple[bytes, ...]], ...]
    summaries: Summaries

    def proposal(self) -> ProposeSplit:
        """The proposal."""
        return ProposeSplit(dict(self.cuts), _summaries(self.summaries))


class JoinProposalDocument(Struct, frozen=True, tag_field="type", tag="propose_join"):
    """Partitions that become one."""

    partitions: tuple[Positive, ...]

    def proposal(self) -> ProposeJoin:
        """The proposal."""
        return ProposeJoin(self.partitions)


class RemovalDocument(Struct, frozen=True, tag_field="type", tag="propose_removal"):
    """Key ranges whose rows go."""

    ranges: tuple[Bounds, ...]
    fence: bool
    summaries: Summaries

    def proposal(self) -> ProposeRemoval:
        """The proposal."""
        ranges = tuple([decode_bounds(one) for one in self.ranges])
        return ProposeRemoval(ranges, self.fence, _summaries(self.summaries))


class CutDocument(Struct, frozen=True, tag_field="type", tag="propose_cut"):
    """A time for the age-off."""

    now_us: Whole

    def proposal(self) -> ProposeCut:
        """The proposal."""
        return ProposeCut(self.now_us)


class ExpiryDocument(Struct, frozen=True, tag_field="type", tag="propose_expiry"):
    """Files that are past the age-off go."""

    def proposal(self) -> ProposeExpiry:
        """The proposal."""
        return ProposeExpiry()


class SchemaProposalDocument(Struct, frozen=True, tag_field="type", tag="propose_schema"):
    """Changes of the schema."""

    changes: tuple[SchemaChangeDocument, ...]

    def proposal(self) -> ProposeSchema:
        """The proposal."""
        return ProposeSchema(tuple([one.value() for one in self.changes]))


class FilterProposalDocument(Struct, frozen=True, tag_field="type", tag="propose_filter"):
    """Changes of the filter."""

    changes: tuple[FilterChangeDocument, ...]
    fields: tuple[dict[str, Any], ...]
    now_us: Whole

    def proposal(self) -> ProposeFilter:
        """The proposal."""
        fields = tuple([field_from_json(one) for one in self.fields])
        return ProposeFilter(tuple([one.value() for one in self.changes]), fields, self.now_us)


_Stored = (
    OpenJobDocument | CloseJob | ConcatenateRuns | SubmitRequestsDocument | FailRequest | RejectRequest
    | SetMergeDocument | AlterSettings | SetTag | RemoveTag | RetireFiles | PurgeFiles | RaiseWatermarkDocument
)  # fmt: skip
_Document = (
    FilesDocument | FeedDocument | OutputDocument | RewriteDocument | JobsDocument | SplitProposalDocument
    | JoinProposalDocument | RemovalDocument | CutDocument | ExpiryDocument | OpenJobDocument | CloseJob
    | ConcatenateRuns | SubmitRequestsDocument | FailRequest | RejectRequest
    | SetMergeDocument | AlterSettings | SetTag | RemoveTag | RetireFiles | PurgeFiles | RaiseWatermarkDocument
    | SchemaProposalDocument | FilterProposalDocument
)  # fmt: skip

_ENCODER = msgspec.msgpack.Encoder()
_DECODERS: dict[str, msgspec.msgpack.Decoder[_Document] | msgspec.json.Decoder[_Document]] = {
    "msgpack": msgspec.msgpack.Decoder(_Document),
    "json": msgspec.json.Decoder(_Document),
}


def encode_proposal(proposal: Proposal) -> bytes | None:
    """The MessagePack of a proposal; None if it is one that no service takes."""
    document = _document(proposal)
    return None if document is None else _ENCODER.encode(document)


def decode_proposal(data: bytes | msgspec.Raw, format: str = "msgpack") -> Proposal:
    """The proposal of a document in that format, ``msgpack`` or ``json``. Raises UsageError."""
    try:
        document = _DECODERS[format].decode(data)
        return document.transaction({}) if isinstance(document, _Stored) else document.proposal()
    except UNREADABLE as error:
        raise Code.REQUEST_INVALID(f"not a proposal: {str(error)[:300]}") from error


def _document(proposal: Proposal) -> _Document | None:
    match proposal:
        case ProposeFiles(files, key, base, requests, runs_max, merged_at, guard):
            guarded = None if guard is None else GuardDocument.of(guard)
            return FilesDocument(_documents(files), key, base, requests, runs_max, merged_at, guarded)
        case ProposeFeed(files, base, since, until, anew):
            return FeedDocument(_documents(files), base, since, until, anew)
        case ProposeOutput():
            return OutputDocument.of(proposal)
        case ProposeRewrite(outputs):
            return RewriteDocument(tuple([OutputDocument.of(output) for output in outputs]))
        case ProposeJobs(jobs):
            return JobsDocument(tuple([JobDocument.of(job) for job in jobs]))
        case ProposeSplit(cuts, summaries):
            return SplitProposalDocument(tuple(cuts.items()), _summary_documents(summaries))
        case ProposeJoin(partitions):
            return JoinProposalDocument(tuple(partitions))
        case ProposeRemoval(ranges, fence, summaries):
            return RemovalDocument(tuple(map(encode_bounds, ranges)), fence, _summary_documents(summaries))
        case ProposeCut(now_us):
            return CutDocument(now_us)
        case ProposeExpiry():
            return ExpiryDocument()
        case OpenJob() | CloseJob() | ConcatenateRuns() | SubmitRequests() | FailRequest() | RejectRequest():
            return proposal.document({})
        case SetMerge() | AlterSettings() | SetTag() | RemoveTag() | RetireFiles() | PurgeFiles() | RaiseWatermark():
            return proposal.document({})
        case ProposeSchema(changes):
            return SchemaProposalDocument(tuple(map(schema_change_document, changes)))
        case ProposeFilter(filters, fields, now_us):
            documents = tuple([field_to_json(field) for field in fields])
            return FilterProposalDocument(tuple(map(filter_change_document, filters)), documents, now_us)
        case CreateTable() | DropTable() | ProposeRestore():
            return None
        case _:
            assert_never(proposal)


def _files(documents: Sequence[NewFileDocument]) -> tuple[NewFile, ...]:
    return tuple([one.value() for one in documents])


def _documents(files: Sequence[NewFile]) -> tuple[NewFileDocument, ...]:
    return tuple([NewFileDocument.of(new) for new in files])


def _summaries(documents: Summaries) -> dict[str, Summary]:
    return {name: one.value() for name, one in documents.items()}


def _summary_documents(summaries: Mapping[str, Summary]) -> Summaries:
    return {name: SummaryDocument.of(one) for name, one in summaries.items()}
