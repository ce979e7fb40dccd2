"""Table transactions as JSON documents, byte for byte as docs/format.md says.

Keys are hex digits, because JSON cannot hold bytes. A document of an unknown type is an error, never skipped: to miss
one change is to have another table.

A long list of references is in a side object (:mod:`lakebed.state.bulk`): whoever encodes gets its bytes beside the
document, and has to store them; whoever decodes has to bring them. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, assert_never

from lakebed.documents import reading
from lakebed.errors import FormatTooNewError, UsageError
from lakebed.files import DataFile
from lakebed.keys import EncodedRange
from lakebed.schema import Schema
from lakebed.state import bulk, shapes
from lakebed.state.bulk import Sides, Tally
from lakebed.state.healing import healed, healed_request
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
    Job,
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
    Source,
    SplitLeaves,
    SubmitRequests,
    Transaction,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebed.files import Reference


@dataclass(frozen=True, slots=True)
class Encoded:
    """A transaction as it is written: the document, and the side objects that it claims."""

    document: dict[str, Any]
    sides: Sides


@dataclass(frozen=True, slots=True)
class Outline:
    """A transaction without what is in side objects, and how many references it adds and drops, those included."""

    transaction: Transaction
    added: Tally
    dropped: Tally


def encode_transaction(transaction: Transaction) -> Encoded:
    """The JSON document of a transaction, and what is too long for it.

    Raises UsageError for a value of a type or range that the format does not have.
    """
    sides: Sides = {}
    document = _encode(transaction, sides)
    try:
        shapes.check(document, shapes.TRANSACTIONS[document["type"]], f"a transaction {document['type']}")
    except ValueError as error:
        raise UsageError(f"{error}; nothing was written") from error
    return Encoded(document, sides)


def _encode(transaction: Transaction, sides: Sides) -> dict[str, Any]:
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
                "base_number": transaction.base_number,
                "requests": list(transaction.requests),
                **_encode_added(transaction, sides),
            }
        case OpenJob():
            return {"type": "open_job", "job": encode_job(transaction.job)}
        case Replace():
            drop = bulk.encode_pairs(transaction.drop, sides)
            return {"type": "replace", "job": transaction.job, "drop": drop, **_encode_added(transaction, sides)}
        case CloseJob():
            return {"type": "close_job", "job": transaction.job, "reason": transaction.reason}
        case ChainRuns(leaf, files, run):
            return {"type": "chain_runs", "leaf": leaf, "files": list(files), "run": run}
        case SplitLeaves():
            return {"type": "split_leaves", **_encode_split(transaction, sides)}
        case JoinLeaves():
            references = bulk.encode_references(transaction.references, sides)
            return {"type": "join_leaves", "leaves": list(transaction.leaves), "references": references}
        case RemoveRange():
            return {"type": "remove_range", **_encode_removal(transaction, sides)}
        case AlterSettings():
            return {"type": "alter_settings", "changes": dict(transaction.changes)}
        case AlterSchema():
            schema = transaction.schema.to_json()
            return {"type": "alter_schema", "schema": schema, "changes": list(transaction.changes)}
        case MarkDead():
            return {"type": "mark_dead", "files": list(transaction.files)}
        case ForgetFiles():
            return {"type": "forget_files", "files": list(transaction.files)}
        case RaiseMark():
            return {"type": "raise_mark", "mark": transaction.mark.value, "value": transaction.value}
        case SetTag():
            return {"type": "set_tag", "name": transaction.name, "number": transaction.number}
        case RemoveTag():
            return {"type": "remove_tag", "name": transaction.name}
        case SubmitRequests():
            requests = [encode_request(request) for request in transaction.requests]
            return {"type": "submit_requests", "requests": requests, "forget_line": transaction.forget_line}
        case FailRequest():
            return {"type": "fail_request", "request": transaction.request, "reason": transaction.reason}
        case RejectRequest():
            return {"type": "reject_request", "request": transaction.request, "reason": transaction.reason}
        case DropTable():
            return {"type": "drop_table"}
        case _:
            assert_never(transaction)


def decode_transaction(document: Mapping[str, Any], sides: Mapping[str, bytes] = MappingProxyType({})) -> Transaction:
    """The transaction of a JSON document; ``sides`` are the side objects of its entry, by digest.

    Raises FormatTooNewError for an unknown type, DamagedError for a bad one, or a side object that is not as claimed.
    """
    with reading("not a transaction of a table"):
        meant = healed(document)
        if shape := shapes.TRANSACTIONS.get(document["type"]):
            shapes.check(meant, shape, f"a transaction {document['type']}")
        return _decode(meant, sides)


def outline(document: Mapping[str, Any]) -> Outline:
    """What a JSON document says without its side objects. Raises as :func:`decode_transaction` does."""
    with reading("not a transaction of a table"):
        added, dropped = bulk.tally(document.get("references", ())), bulk.tally(document.get("drop", ()))
        inline = _inlined(document)
    return Outline(decode_transaction(inline), added, dropped)


def _inlined(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with an empty list for each that is in a side object."""
    return {name: [] if bulk.claims(value) else value for name, value in document.items()}


def _decode(document: Mapping[str, Any], sides: Mapping[str, bytes]) -> Transaction:
    match document["type"]:
        case "create_table":
            return CreateTable(
                document["table"],
                Schema.from_json(document["schema"]),
                document["settings"],
                tuple(bytes.fromhex(b) for b in document["boundaries"]),
            )
        case "add_files":
            requests = tuple(document["requests"])
            return AddFiles(*_decode_added(document, sides), document["request_key"], document["base_number"], requests)
        case "open_job":
            return OpenJob(decode_job(document["job"]))
        case "replace":
            drop = bulk.decode_pairs(document["drop"], sides)
            return Replace(document["job"], drop, *_decode_added(document, sides))
        case "close_job":
            return CloseJob(document["job"], document["reason"])
        case "chain_runs":
            return ChainRuns(document["leaf"], tuple(document["files"]), document["run"])
        case "split_leaves":
            return _decode_split(document, sides)
        case "join_leaves":
            return JoinLeaves(tuple(document["leaves"]), bulk.decode_references(document["references"], sides))
        case "remove_range":
            return RemoveRange(
                tuple(decode_range(*keys) for keys in document["ranges"]),
                document["fence"],
                _decode_split(document, sides),
                tuple(document["leaves"]),
            )
        case "alter_settings":
            return AlterSettings(document["changes"])
        case "alter_schema":
            return AlterSchema(Schema.from_json(document["schema"]), tuple(document["changes"]))
        case "mark_dead":
            return MarkDead(tuple(document["files"]))
        case "forget_files":
            return ForgetFiles(tuple(document["files"]))
        case "raise_mark":
            return RaiseMark(_decode_mark(document["mark"]), document["value"])
        case "set_tag":
            return SetTag(document["name"], document["number"])
        case "remove_tag":
            return RemoveTag(document["name"])
        case "submit_requests":
            return SubmitRequests(tuple(map(decode_request, document["requests"])), document["forget_line"])
        case "fail_request":
            return FailRequest(document["request"], document["reason"])
        case "reject_request":
            return RejectRequest(document["request"], document["reason"])
        case "drop_table":
            return DropTable()
        case other:
            raise FormatTooNewError(f"a transaction of type {other!r}: written by a newer Lakebed; upgrade to read it")


def _decode_mark(name: str) -> Mark:
    try:
        return Mark(name)
    except ValueError:
        raise FormatTooNewError(f"a mark {name!r}: written by a newer Lakebed; upgrade to read it") from None


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
        "stamp_us": file.stamp_us,
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
        stamp_us=document["stamp_us"],
        digest=document["digest"],
        footer_bytes=document["footer_bytes"],
        footer_digest=document["footer_digest"],
        bounds=bytes.fromhex(document.get("bounds", "")),
    )


def _encode_added(transaction: AddFiles | Replace, sides: Sides) -> dict[str, Any]:
    return {
        "files": [_encode_file(f) for f in transaction.files],
        "references": bulk.encode_references(transaction.references, sides),
    }


def _decode_added(
    document: Mapping[str, Any], sides: Mapping[str, bytes]
) -> tuple[tuple[DataFile, ...], tuple[Reference, ...]]:
    files = tuple(_decode_file(f) for f in document["files"])
    return files, bulk.decode_references(document["references"], sides)


def encode_request(request: Request) -> dict[str, Any]:
    """A request, open or rejected."""
    return {
        "id": request.id,
        "files": [[file.url, file.size_bytes, file.version] for file in request.files],
        "base_number": request.base_number,
        "submitted": request.submitted,
        "failures": request.failures,
        "rejected": request.rejected,
        "reason": request.reason,
    }


def decode_request(document: Mapping[str, Any]) -> Request:
    """The inverse of :func:`encode_request`."""
    document = healed_request(document)
    files = tuple(Source(*file) for file in document["files"])
    names = ("base_number", "submitted", "failures", "rejected", "reason")
    return Request(document["id"], files, *(document[name] for name in names))


def _encode_split(split: SplitLeaves, sides: Sides) -> dict[str, Any]:
    return {
        "cuts": [[leaf, [k.hex() for k in keys]] for leaf, keys in split.cuts.items()],
        "references": bulk.encode_references(split.references, sides),
    }


def _decode_split(document: Mapping[str, Any], sides: Mapping[str, bytes]) -> SplitLeaves:
    cuts = {leaf: tuple(bytes.fromhex(k) for k in keys) for leaf, keys in document["cuts"]}
    if len(cuts) != len(document["cuts"]):
        raise ValueError("a leaf is cut twice")
    return SplitLeaves(cuts, bulk.decode_references(document["references"], sides))


def _encode_removal(removal: RemoveRange, sides: Sides) -> dict[str, Any]:
    return {
        "ranges": [encode_range(keys) for keys in removal.ranges],
        "fence": removal.fence,
        **_encode_split(removal.split, sides),
        "leaves": list(removal.leaves),
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
