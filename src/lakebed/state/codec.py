"""Table transactions as JSON documents, byte for byte as docs/format.md says.

Keys are hex digits, because JSON cannot hold bytes. A document of an unknown type is an error, never skipped: to miss
one change is to have another table.

A long list of references is in a sidecar (:mod:`lakebed.state.bulk`): whoever encodes gets its bytes beside the
document, and has to store them; whoever decodes has to bring them. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, assert_never

from lakebed.errors import Code
from lakebed.model.documents import reading
from lakebed.model.files import DataFile
from lakebed.model.keys import EncodedRange
from lakebed.model.schema import Schema
from lakebed.state import bulk, shapes
from lakebed.state.bulk import ReferenceCounts, Sidecars
from lakebed.state.transactions import (
    AddFiles,
    AlterSchema,
    AlterSettings,
    CloseJob,
    ConcatenateRuns,
    CreateTable,
    DropTable,
    FailRequest,
    Job,
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
    Source,
    SplitPartitions,
    SubmitRequests,
    Transaction,
    Watermark,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebed.model.files import Reference


@dataclass(frozen=True, slots=True)
class Encoded:
    """A transaction as it is written: the document, and the sidecars that it claims."""

    document: dict[str, Any]
    sidecars: Sidecars


@dataclass(frozen=True, slots=True)
class Outline:
    """A transaction without what is in sidecars, and how many references it adds and drops, those included."""

    transaction: Transaction
    added: ReferenceCounts
    dropped: ReferenceCounts


def encode_transaction(transaction: Transaction) -> Encoded:
    """The JSON document of a transaction, and what is too long for it.

    Raises UsageError for a value of a type or range that the format does not have.
    """
    sidecars: Sidecars = {}
    document = _encode(transaction, sidecars)
    try:
        shapes.check(document, shapes.TRANSACTIONS[document["type"]], f"a transaction {document['type']}")
    except ValueError as error:
        raise Code.ARGUMENT_INVALID(f"{error}; nothing was written") from error
    return Encoded(document, sidecars)


def _encode(transaction: Transaction, sidecars: Sidecars) -> dict[str, Any]:
    match transaction:
        case CreateTable():
            return {
                "type": "create_table",
                "table": transaction.table,
                "schema": transaction.schema.to_json(),
                "settings": dict(transaction.settings),
                "boundaries": [b.hex() for b in transaction.boundaries],
            }
        case AddFiles():
            return {
                "type": "add_files",
                "request_key": transaction.request_key,
                "base_version": transaction.base_version,
                "requests": list(transaction.requests),
                **_encode_added(transaction, sidecars),
            }
        case OpenJob():
            return {"type": "open_job", "job": encode_job(transaction.job)}
        case Replace():
            drop = bulk.encode_pairs(transaction.drop, sidecars)
            return {"type": "replace", "job": transaction.job, "drop": drop, **_encode_added(transaction, sidecars)}
        case CloseJob():
            return {"type": "close_job", "job": transaction.job, "reason": transaction.reason}
        case ConcatenateRuns(partition, files, run):
            return {"type": "concatenate_runs", "partition": partition, "files": list(files), "run": run}
        case SplitPartitions():
            return {"type": "split_partitions", **_encode_split(transaction, sidecars)}
        case JoinPartitions():
            references = bulk.encode_references(transaction.references, sidecars)
            return {"type": "join_partitions", "partitions": list(transaction.partitions), "references": references}
        case RemoveRange():
            return {"type": "remove_range", **_encode_removal(transaction, sidecars)}
        case AlterSettings():
            return {"type": "alter_settings", "changes": dict(transaction.changes)}
        case AlterSchema():
            schema = transaction.schema.to_json()
            return {"type": "alter_schema", "schema": schema, "changes": list(transaction.changes)}
        case RetireFiles():
            return {"type": "retire_files", "files": list(transaction.files)}
        case PurgeFiles():
            return {"type": "purge_files", "files": list(transaction.files)}
        case RaiseWatermark():
            return {"type": "raise_watermark", "mark": transaction.mark.value, "value": transaction.value}
        case SetTag():
            return {"type": "set_tag", "name": transaction.name, "version": transaction.version}
        case RemoveTag():
            return {"type": "remove_tag", "name": transaction.name}
        case SubmitRequests():
            requests = [encode_request(request) for request in transaction.requests]
            return {"type": "submit_requests", "requests": requests, "request_watermark": transaction.request_watermark}
        case FailRequest():
            return {"type": "fail_request", "request": transaction.request, "reason": transaction.reason}
        case RejectRequest():
            return {"type": "reject_request", "request": transaction.request, "reason": transaction.reason}
        case DropTable():
            return {"type": "drop_table"}
        case _:
            assert_never(transaction)


def decode_transaction(
    document: Mapping[str, Any], sidecars: Mapping[str, bytes] = MappingProxyType({})
) -> Transaction:
    """The transaction of a JSON document; ``sides`` are the sidecars of its entry, by digest.

    Raises UnsupportedFormatError for an unknown type, DamagedError for a bad one, or a sidecar that is not as claimed.
    """
    with reading("not a transaction of a table"):
        if shape := shapes.TRANSACTIONS.get(document["type"]):
            shapes.check(document, shape, f"a transaction {document['type']}")
        return _decode(document, sidecars)


def outline(document: Mapping[str, Any]) -> Outline:
    """What a JSON document says without its sidecars. Raises as :func:`decode_transaction` does."""
    with reading("not a transaction of a table"):
        added, dropped = (
            bulk.count_references(document.get("references", ())),
            bulk.count_references(document.get("drop", ())),
        )
        inline = _inlined(document)
    return Outline(decode_transaction(inline), added, dropped)


def _inlined(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with an empty list for each that is in a sidecar."""
    return {name: [] if bulk.claims(value) else value for name, value in document.items()}


def _decode(document: Mapping[str, Any], sidecars: Mapping[str, bytes]) -> Transaction:
    match document["type"]:
        case "create_table":
            return CreateTable(
                document["table"],
                Schema.from_json(document["schema"]),
                document["settings"],
                tuple(bytes.fromhex(b) for b in document["boundaries"]),
            )
        case "add_files":
            added, requests = _decode_added(document, sidecars), tuple(document["requests"])
            return AddFiles(*added, document["request_key"], document["base_version"], requests)
        case "open_job":
            return OpenJob(decode_job(document["job"]))
        case "replace":
            drop = bulk.decode_pairs(document["drop"], sidecars)
            return Replace(document["job"], drop, *_decode_added(document, sidecars))
        case "close_job":
            return CloseJob(document["job"], document["reason"])
        case "concatenate_runs":
            return ConcatenateRuns(document["partition"], tuple(document["files"]), document["run"])
        case "split_partitions":
            return _decode_split(document, sidecars)
        case "join_partitions":
            references = bulk.decode_references(document["references"], sidecars)
            return JoinPartitions(tuple(document["partitions"]), references)
        case "remove_range":
            return RemoveRange(
                tuple(decode_range(*keys) for keys in document["ranges"]),
                document["fence"],
                _decode_split(document, sidecars),
                tuple(document["partitions"]),
            )
        case "alter_settings":
            return AlterSettings(document["changes"])
        case "alter_schema":
            return AlterSchema(Schema.from_json(document["schema"]), tuple(document["changes"]))
        case "retire_files":
            return RetireFiles(tuple(document["files"]))
        case "purge_files":
            return PurgeFiles(tuple(document["files"]))
        case "raise_watermark":
            return RaiseWatermark(_decode_mark(document["mark"]), document["value"])
        case "set_tag":
            return SetTag(document["name"], document["version"])
        case "remove_tag":
            return RemoveTag(document["name"])
        case "submit_requests":
            return SubmitRequests(tuple(map(decode_request, document["requests"])), document["request_watermark"])
        case "fail_request":
            return FailRequest(document["request"], document["reason"])
        case "reject_request":
            return RejectRequest(document["request"], document["reason"])
        case "drop_table":
            return DropTable()
        case other:
            raise Code.FORMAT_TOO_NEW(
                f"a transaction of type {other!r}: written by a newer Lakebed; upgrade to read it"
            )


def _decode_mark(name: str) -> Watermark:
    try:
        return Watermark(name)
    except ValueError:
        raise Code.FORMAT_TOO_NEW(f"a mark {name!r}: written by a newer Lakebed; upgrade to read it") from None


def _encode_file(file: DataFile) -> dict[str, Any]:
    bounds = {"bounds": file.bounds.hex()} if file.bounds else {}
    return bounds | {
        "id": file.id,
        "job": file.job,
        "rows": file.rows,
        "size_bytes": file.size_bytes,
        "min_key": file.min_key.hex(),
        "max_key": file.max_key.hex(),
        "schema_version": file.schema_version,
        "last_modified_us": file.last_modified_us,
        "digest": file.digest,
        "footer_bytes": file.footer_bytes,
        "footer_digest": file.footer_digest,
    }


def _decode_file(document: Mapping[str, Any]) -> DataFile:
    return DataFile(
        id=document["id"],
        job=document["job"],
        rows=document["rows"],
        size_bytes=document["size_bytes"],
        min_key=bytes.fromhex(document["min_key"]),
        max_key=bytes.fromhex(document["max_key"]),
        schema_version=document["schema_version"],
        last_modified_us=document["last_modified_us"],
        digest=document["digest"],
        footer_bytes=document["footer_bytes"],
        footer_digest=document["footer_digest"],
        bounds=bytes.fromhex(document.get("bounds", "")),
    )


def _encode_added(transaction: AddFiles | Replace, sidecars: Sidecars) -> dict[str, Any]:
    return {
        "files": [_encode_file(f) for f in transaction.files],
        "references": bulk.encode_references(transaction.references, sidecars),
    }


def _decode_added(
    document: Mapping[str, Any], sidecars: Mapping[str, bytes]
) -> tuple[tuple[DataFile, ...], tuple[Reference, ...]]:
    files = tuple(_decode_file(f) for f in document["files"])
    return files, bulk.decode_references(document["references"], sidecars)


def encode_request(request: Request) -> dict[str, Any]:
    """A request, open or rejected."""
    return {
        "id": request.id,
        "files": [[file.url, file.size_bytes, file.version] for file in request.files],
        "base_version": request.base_version,
        "submitted": request.submitted,
        "failures": request.failures,
        "rejected": request.rejected,
        "reason": request.reason,
    }


def decode_request(document: Mapping[str, Any]) -> Request:
    """The inverse of :func:`encode_request`."""
    files = tuple(Source(*file) for file in document["files"])
    names = ("base_version", "submitted", "failures", "rejected", "reason")
    return Request(document["id"], files, *(document[name] for name in names))


def _encode_split(split: SplitPartitions, sidecars: Sidecars) -> dict[str, Any]:
    return {
        "cuts": [[partition, [k.hex() for k in keys]] for partition, keys in split.cuts.items()],
        "references": bulk.encode_references(split.references, sidecars),
    }


def _decode_split(document: Mapping[str, Any], sidecars: Mapping[str, bytes]) -> SplitPartitions:
    cuts = {partition: tuple(bytes.fromhex(k) for k in keys) for partition, keys in document["cuts"]}
    if len(cuts) != len(document["cuts"]):
        raise ValueError("a partition is cut twice")
    return SplitPartitions(cuts, bulk.decode_references(document["references"], sidecars))


def _encode_removal(removal: RemoveRange, sidecars: Sidecars) -> dict[str, Any]:
    return {
        "ranges": [encode_range(keys) for keys in removal.ranges],
        "fence": removal.fence,
        **_encode_split(removal.split, sidecars),
        "partitions": list(removal.partitions),
    }


def encode_range(keys: EncodedRange) -> list[str | None]:
    """The two bounds of a range; None: no end."""
    return [keys.min.hex(), None if keys.max is None else keys.max.hex()]


def decode_range(lower: str, upper: str | None) -> EncodedRange:
    """The range of two bounds."""
    return EncodedRange(bytes.fromhex(lower), None if upper is None else bytes.fromhex(upper))


def encode_job(job: Job) -> dict[str, Any]:
    """The JSON document of a job."""
    lower, upper = encode_range(job.keys)
    return {
        "id": job.id,
        "min": lower,
        "max": upper,
        "inputs": list(job.inputs),
        "owner": job.owner,
        "deadline_s": job.deadline_s,
        "began_us": job.began_us,
        "opened": job.opened,
    }


def decode_job(document: Mapping[str, Any]) -> Job:
    """The job of a JSON document."""
    return Job(
        document["id"],
        decode_range(document["min"], document["max"]),
        tuple(document["inputs"]),
        document["owner"],
        document["deadline_s"],
        document["began_us"],
        document["opened"],
    )
