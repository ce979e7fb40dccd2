"""Table transactions as JSON documents, byte for byte as docs/format.md says.

Keys are hex digits, because JSON cannot hold bytes. A document of an unknown type is an error, never skipped: to miss
one change is to have another table. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from lakebed.errors import DamagedError, FormatTooNewError, UsageError
from lakebed.files import DataFile, Reference
from lakebed.keys import EncodedRange
from lakebed.schema import Schema
from lakebed.state.transactions import (
    AddFiles,
    AlterSchema,
    AlterSettings,
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
    SplitLeaf,
    SubmitRequests,
    Transaction,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


def encode_transaction(transaction: Transaction) -> dict[str, Any]:
    """The JSON document of a transaction."""
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
                **_encode_added(transaction),
            }
        case OpenJob():
            return {"type": "open_job", "job": encode_job(transaction.job)}
        case Replace():
            drop = [list(pair) for pair in transaction.drop]
            return {"type": "replace", "job": transaction.job, "drop": drop, **_encode_added(transaction)}
        case CloseJob():
            return {"type": "close_job", "job": transaction.job, "reason": transaction.reason}
        case SplitLeaf():
            return {"type": "split_leaf", **_encode_split(transaction)}
        case JoinLeaves():
            references = [_encode_reference(r) for r in transaction.references]
            return {"type": "join_leaves", "leaves": list(transaction.leaves), "references": references}
        case RemoveRange():
            return {"type": "remove_range", **_encode_removal(transaction)}
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
            return {"type": "submit_requests", "requests": [_encode_request(r) for r in transaction.requests]}
        case FailRequest():
            return {"type": "fail_request", "request": transaction.request, "reason": transaction.reason}
        case RejectRequest():
            return {"type": "reject_request", "request": transaction.request, "reason": transaction.reason}
        case DropTable():
            return {"type": "drop_table"}
        case _:
            assert_never(transaction)


def decode_transaction(document: Mapping[str, Any]) -> Transaction:
    """The transaction of a JSON document. Raises FormatTooNewError for an unknown type, DamagedError for a bad one."""
    try:
        return _decode(document)
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        raise DamagedError(f"not a transaction of a table: {str(document)[:200]} ({error!r})") from error


def _decode(document: Mapping[str, Any]) -> Transaction:
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
            return AddFiles(*_decode_added(document), document["request_key"], document["base_number"], requests)
        case "open_job":
            return OpenJob(decode_job(document["job"]))
        case "replace":
            drop = tuple((name, leaf) for name, leaf in document["drop"])
            return Replace(document["job"], drop, *_decode_added(document))
        case "close_job":
            return CloseJob(document["job"], document["reason"])
        case "split_leaf":
            return _decode_split(document)
        case "join_leaves":
            return JoinLeaves(tuple(document["leaves"]), tuple(_decode_reference(r) for r in document["references"]))
        case "remove_range":
            return RemoveRange(
                tuple(decode_range(*keys) for keys in document["ranges"]),
                document["fence"],
                tuple(_decode_split(split) for split in document["splits"]),
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
            return SubmitRequests(tuple(_decode_request(r) for r in document["requests"]))
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
    return {
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
    )


def _encode_reference(reference: Reference) -> list[Any]:
    return [reference.file, reference.leaf, reference.rows, reference.exact, reference.run]


def _decode_reference(document: Any) -> Reference:
    file, leaf, rows, exact, run = document
    return Reference(file, leaf, rows, exact, run)


def _encode_added(transaction: AddFiles | Replace) -> dict[str, Any]:
    return {
        "files": [_encode_file(f) for f in transaction.files],
        "references": [_encode_reference(r) for r in transaction.references],
    }


def _decode_added(document: Mapping[str, Any]) -> tuple[tuple[DataFile, ...], tuple[Reference, ...]]:
    files = tuple(_decode_file(f) for f in document["files"])
    return files, tuple(_decode_reference(r) for r in document["references"])


def _encode_request(request: Request) -> dict[str, Any]:
    return {
        "id": request.id,
        "files": [[file.url, file.size_bytes, file.version] for file in request.files],
        "base_number": request.base_number,
        "submitted": request.submitted,
        "failures": request.failures,
    }


def _decode_request(document: Mapping[str, Any]) -> Request:
    files = tuple(Source(*file) for file in document["files"])
    return Request(document["id"], files, document["base_number"], document["submitted"], document["failures"])


def _encode_split(split: SplitLeaf) -> dict[str, Any]:
    return {
        "leaf": split.leaf,
        "keys": [k.hex() for k in split.keys],
        "references": [_encode_reference(r) for r in split.references],
    }


def _decode_split(document: Mapping[str, Any]) -> SplitLeaf:
    keys = tuple(bytes.fromhex(k) for k in document["keys"])
    return SplitLeaf(document["leaf"], keys, tuple(_decode_reference(r) for r in document["references"]))


def _encode_removal(removal: RemoveRange) -> dict[str, Any]:
    return {
        "ranges": [encode_range(keys) for keys in removal.ranges],
        "fence": removal.fence,
        "splits": [_encode_split(split) for split in removal.splits],
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
