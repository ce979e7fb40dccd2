"""Encodes and decodes JSON documents, and raises the error for malformed ones.

All JSON that is read from a store or a user is parsed here or by a typed msgspec decoder. Code that reads fields of a
document does so inside :func:`reading`, which turns all its errors into one DamagedError. Pure.

*Stored documents: every JSON object on storage begins with a header line, which has a digest of the whole object.*

The header has the format version, required features, the digest, and members of the object's own kind; lines may
follow. JSON alone does not detect damage: a flipped bit often still parses, and makes ``level < 3`` into ``level < 7``.
The digest covers every byte: it is the XXH3-128 of the object with question marks in place of its own digits. It
detects damage, not forgery.

Rules. Every JSON object on storage is written by :func:`encode_document` and read by :func:`decode_document`; a
document without a digest is damaged. Pure. Errors: UnsupportedFormatError for another format, DamagedError for
everything else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import xxhash

from lakebed.errors import Code, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORMAT = 2
"""It may change without migration before the first release; every reader refuses a version that is not its own."""

SQL_DIALECT = "sql-datafusion-1"
"""The feature of a document that holds text in SQL, such as the predicate of a filter: its dialect and version.

DataFusion's SQL, as docs/format.md describes it. When an upgrade of the engine gives a stored text another meaning, new
documents get another feature, and a reader that knows only this one refuses them by name."""

FEATURES = (SQL_DIALECT,)
"""The features that this Lakebed knows."""

RESTORE = "restore the object from a copy"

_OF_HEADER = frozenset({"format", "features", "digest"})
_DIGEST_DIGITS = 32
_HIDDEN = b"?" * _DIGEST_DIGITS


def encode_document(members: Mapping[str, Any], lines: bytes = b"", *, features: Sequence[str] = ()) -> bytes:
    """Return the bytes of a document: a header line with these members, and the lines that follow it.

    ``features`` are those of :data:`FEATURES` that a reader of the document must know.
    """
    assert not members.keys() & _OF_HEADER, "a member has the name of one of the header"
    head = dump({"format": FORMAT, "features": list(features), "digest": _HIDDEN.decode(), **members}) + b"\n"
    hashed = xxhash.xxh3_128(head)
    hashed.update(lines)
    # The digits are the first member of a kind that can hold question marks.
    return head.replace(_HIDDEN, hashed.hexdigest().encode(), 1) + lines


def decode_document(data: bytes, name: str, remedy: str = RESTORE, **facts: Any) -> Mapping[str, Any]:
    """Return the members of a document, whose every byte is verified. ``name`` and ``remedy`` are for the error.

    Raises UnsupportedFormatError, DamagedError.
    """
    header = parse_header(data.partition(b"\n")[0], name, remedy)
    if not is_whole_document(data, header):
        raise Code.DOCUMENT_DAMAGED(f"{name} was changed after it was written; {remedy}", name=name, **facts)
    return {member: value for member, value in header.items() if member not in _OF_HEADER}


def parse_header(line: bytes, name: str, remedy: str = RESTORE) -> Mapping[str, Any]:
    """Parse a header line and check its format version; the digest is not checked.

    Raises UnsupportedFormatError, DamagedError.
    """
    try:
        header = load(line)
        version = header["format"]
        unknown = [feature for feature in header["features"] if feature not in FEATURES]
    except (ValueError, KeyError, TypeError) as error:
        raise Code.DOCUMENT_DAMAGED(f"{name} has no readable header; {remedy}", name=name) from error
    if type(version) is int and version < FORMAT:
        raise Code.FORMAT_TOO_OLD(
            f"{name} is of storage format {version}, which this Lakebed does not read: export the tables with the "
            "Lakebed that wrote them, and import them into a new instance",
            storage_format=version,
        )
    if type(version) is not int or version > FORMAT or unknown:
        needs = f"format {version}" + (f" with {', '.join(map(str, unknown))}" if unknown else "")
        raise Code.FORMAT_TOO_NEW(
            f"{name} is of {needs}; this Lakebed reads format {FORMAT} with {', '.join(FEATURES)}: upgrade",
            storage_format=version,
        )
    return header  # type: ignore[no-any-return]


def is_whole_document(data: bytes, header: Mapping[str, Any]) -> bool:
    """Return whether the digest in the parsed header is that of all bytes of the document."""
    digest = header.get("digest")
    if not isinstance(digest, str) or len(digest) != _DIGEST_DIGITS:
        return False
    at = data.find(digest.encode())
    hashed = xxhash.xxh3_128(data[: max(at, 0)])
    hashed.update(_HIDDEN)
    hashed.update(memoryview(data)[at + _DIGEST_DIGITS :])
    return at >= 0 and hashed.hexdigest() == digest


UNREADABLE = (
    KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, UsageError,
    msgspec.MsgspecError,
)  # fmt: skip
"""The errors of interpreting a malformed document."""


def dump(document: Any) -> bytes:
    """Compact JSON, UTF-8, keys in the order given. Raises ValueError for NaN, which msgspec would write as null."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def load(data: bytes | str) -> Any:
    """Parse bytes in UTF-8 as JSON. Raises ValueError if they are not JSON, or nested too deep."""
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


@contextmanager
def reading(what: str, **facts: Any) -> Iterator[None]:
    """Turn errors of interpreting a document in the block into a DamagedError whose message begins with ``what``.

    Errors about damage or a newer format pass unchanged.
    """
    try:
        yield
    except UNREADABLE as error:
        said = "it is nested too deep" if isinstance(error, RecursionError) else f"{type(error).__name__}: {error}"
        raise Code.DOCUMENT_DAMAGED(f"{what} ({said[:300]})", **facts) from error
