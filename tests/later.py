"""What a later Lakebed may store: documents with fields and features that this one does not know."""

from __future__ import annotations

import json
import os
from itertools import count
from typing import Any

from lakebed.log import entry as entries
from lakebed.model.documents import FORMAT, encode_document
from lakebed.storage.contract import PutOutcome

FEATURE = "later-1"
UNKNOWN = {"later": {"x": [1, None]}}
"""A field that no document has."""

NAMED = {
    "settings",
    "defaults",
    "changes",
    "tags",
    "paused",
    "functions",
    "masks",
    "features",
    "positions",
    "asked",
    "segments",
}
"""Objects whose names are data and no fields."""

TYPES = {"type", "function"}
"""Names of types, which are texts or objects of one name."""


def rewritten(data: bytes, features=(), fields=None) -> bytes:
    """Return a document with other features added, and fields added to the header."""
    head, _, lines = data.partition(b"\n")
    header = json.loads(head)
    members = {name: value for name, value in header.items() if name not in ("format", "features", "digest")}
    return encode_document(members | (fields or {}), lines, features=[*header["features"], *features])


def with_fields(value: Any) -> Any:
    """Return JSON with an unknown field in each object that has fields, at the beginning and the end of it."""
    if isinstance(value, list):
        return [with_fields(item) for item in value]
    if not isinstance(value, dict) or "mode" in value:
        # The fields of a merge mode decide about rows, and come with a feature.
        return value
    inner = {name: item if name in NAMED or name in TYPES else with_fields(item) for name, item in value.items()}
    return {"before": 7} | inner | UNKNOWN


def grown(data: bytes, previous: str | None = None, **header: Any) -> bytes:
    """Return a document with unknown fields in its header and all its lines, and the digest for that.

    ``header`` replaces fields of the header, such as the digest of an entry that has grown too.
    """
    first, *lines = [json.loads(line) for line in data.splitlines()]
    assert first["format"] == FORMAT
    members = {name: value for name, value in first.items() if name not in ("format", "features", "digest")} | header
    body = b"".join(json.dumps(with_fields(line), ensure_ascii=False).encode() + b"\n" for line in lines)
    if previous is not None:
        members["previous"] = previous
    return encode_document({"before": 7} | members | UNKNOWN, body, features=first["features"])


def append(log: Any, *transactions: dict[str, Any], features=()) -> int:
    """Put the next entry of a log, with these transactions; returns its version."""
    log.follow()
    version = log.head.version + 1
    documents = tuple(json.dumps(one).encode() for one in transactions)
    facts = (version, f"{version:032x}", "2040-01-01T00:00:00+00:00", "lakebed 9.0.0 on later, pid 1", None)
    made = entries.Entry(*facts, "", log.head.digest, documents, features=tuple(features))
    data = entries.encode(log.identity, made, b"".join(one + b"\n" for one in documents))
    assert log.backend.create(version, data, log.head.digest) is PutOutcome.CREATED
    return version


def require(log: Any, program: str | None, name: str = FEATURE) -> int:
    """Require a feature of a kind of program, as a Lakebed does that knows the feature."""
    header = (name,) if program == "readers" else ()
    return append(log, {"type": "require_features", "features": {name: program}}, features=header)


def grow_instance(root: Any) -> int:
    """Add unknown fields to each object of each document of an instance on local disk; returns how many documents."""
    digests: dict[tuple[str, int], str] = {}
    number = 0
    for folder in sorted(path for path in root.rglob("log") if path.is_dir()):
        start, previous = next(v for v in count(1) if (folder / f"{v:020}.ndjson").exists()), None
        for version in count(start):
            path = folder / f"{version:020}.ndjson"
            if not path.exists():
                break
            # The entry before the first one may be gone: then what it says of that one is left as it is.
            data = grown(path.read_bytes(), previous)
            previous = entries.digest_of(data)
            digests[json.loads(data.partition(b"\n")[0])["log"], version] = previous
            replace(path, data)
            number += 1
    for path in sorted([*root.rglob("*.json"), *root.rglob("*.ndjson")]):
        name = path.relative_to(root).as_posix()
        if "iceberg" in name or (path.parent.name == "log" and path.name != "log-start.ndjson") or "/rows/part" in name:
            continue
        data = path.read_bytes()
        header = json.loads(data.partition(b"\n")[0])
        known = digests.get((header.get("log"), header.get("version")))
        replace(path, grown(data, **({"entry_digest": known} if known else {})))
        number += 1
    return number


def replace(path: Any, data: bytes) -> None:
    """Write a file anew with the times of the old one, by which its age is judged."""
    stat = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
