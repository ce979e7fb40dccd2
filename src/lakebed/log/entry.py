"""Log entries as bytes: NDJSON, a header line and one line for each transaction. Pure.

An entry is a stored document (:mod:`lakebed.model.documents`). Its header has what a reader checks first: the
log and version of the entry, and the digest of the previous entry, which chains the log. The store's last-modified time
of an entry is known after it is written, so the next entry has it. The header also names the sidecars of the lines, so
that they can be fetched first.

Errors. UnsupportedFormatError for a newer format, DamagedError for everything else that is wrong. The remedy for a lost
entry must do no harm if it is followed on a healthy log: it never says to overwrite, delete or skip anything.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import xxhash
from msgspec import Struct
from msgspec.structs import astuple

from lakebed.errors import Code, DamagedError, Error, UnsupportedFormatError
from lakebed.model.checks import is_text, is_whole
from lakebed.model.documents import (
    RESTORE,
    decode_document,
    dump,
    encode_document,
    is_whole_document,
    load,
    parse_header,
    reading,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

_DIGEST = re.compile(r"[0-9a-f]{32}")
_TEXTS = ("id", "time", "writer", "previous")

NAMED_WITHIN = 64
"""A sidecar that was put for entry n may be named by entries n to n + NAMED_WITHIN - 1: a writer that lost a race need
not put it again, and it is known when no entry can name it any more."""

LAST_MODIFIED_BYTES = 17
"""The bytes that a last-modified time adds to an entry without one: its digits until the year 5138 instead of
``null``, and one spare."""

REFERENCE_BYTES = 93
"""The weight of a reference in a sidecar: the bytes that it would take in a line."""


class SidecarReference(Struct, frozen=True):
    """A sidecar as a header names it: the version it was put for (:mod:`lakebed.log.sidecars`), digest, and size."""

    version: int
    digest: str
    references: int
    size_bytes: int


class Entry(Struct, frozen=True):
    """One decoded entry; ``documents`` are its transactions, each in JSON.

    ``id`` distinguishes it from other entries that were proposed for its version; ``time`` and ``writer`` are
    statements of the writer, for people. ``last_modified_us`` is the store's last-modified time of the *previous*
    entry, in microseconds since 1970; None if the writer did not know it. ``features`` are those of
    :data:`~lakebed.model.documents.FEATURES` that the transactions need.
    """

    version: int
    id: str
    time: str
    writer: str
    last_modified_us: int | None
    digest: str
    previous: str
    documents: tuple[bytes, ...]
    sidecars: tuple[SidecarReference, ...] = ()
    features: tuple[str, ...] = ()


class StoredEntry(Struct, frozen=True):
    """An entry with the time at which it was stored, by the store's clock, and its size."""

    entry: Entry
    stored_at: datetime
    size_bytes: int


def digest_of(data: bytes) -> str:
    """XXH3-128 in hex. It detects damage, not forgery."""
    return xxhash.xxh3_128_hexdigest(data)


def weight_bytes(data: bytes, sidecars: Sequence[SidecarReference]) -> int:
    """Return the size of an entry as if its sidecars were in its lines: the cost of reading and storing it."""
    return len(data) + REFERENCE_BYTES * sum(sidecar.references for sidecar in sidecars)


def encode(log: str, entry: Entry, body: bytes) -> bytes:
    """Return the bytes of an entry with the documents in ``body``; ``entry.digest``, that of the bytes, is not read."""
    header = {
        "log": log,
        "version": entry.version,
        "id": entry.id,
        "time": entry.time,
        "writer": entry.writer,
        "last_modified_us": entry.last_modified_us,
        "sidecars": [list(astuple(sidecar)) for sidecar in entry.sidecars],
        "count": len(entry.documents),
        "previous": entry.previous,
    }
    return encode_document(header, body, features=entry.features)


def decode(data: bytes, log: str, version: int, previous: str | None) -> Entry:
    """Return the entry of these bytes, which must be entry ``version`` of ``log`` after an entry of digest
    ``previous``.

    Without ``previous``, which a backward reader does not know yet, the caller checks the chain. Raises
    UnsupportedFormatError for a newer format or an unknown feature, DamagedError for everything else that is wrong.
    """
    name = f"entry {version} of {log}"
    head, _, body = data.partition(b"\n")
    header = parse_header(head, name)
    lines = body.split(b"\n")
    wrong = (
        "belongs to another log" if header.get("log") != log
        else f"says it is version {header.get('version')}" if header.get("version") != version
        else "is cut short" if lines.pop() or len(lines) != header.get("count")
        else "was changed after it was written" if not is_whole_document(data, header)
        else "does not follow the entry before it" if previous not in (None, header.get("previous"))
        else "has an invalid header" if not _is_valid(header, version)
        else None
    )  # fmt: skip
    if wrong:
        raise Code.ENTRY_DAMAGED(f"{name} {wrong}; {RESTORE}", log=log, version=version)
    facts = (header["id"], header["time"], header["writer"], header["last_modified_us"])
    sidecars = tuple(SidecarReference(*sidecar) for sidecar in header["sidecars"])
    return Entry(
        version, *facts, digest_of(data), header["previous"], tuple(lines), sidecars, tuple(header["features"])
    )


def _is_valid(header: Mapping[str, Any], version: int) -> bool:
    """Return whether the fields have their types, and values that no other check covers."""
    last_modified_us = header.get("last_modified_us", "")
    last_modified = last_modified_us is None or (is_whole(last_modified_us) and version > 1)
    sidecars = header.get("sidecars")
    named = isinstance(sidecars, list) and all(_is_valid_sidecar(sidecar, version) for sidecar in sidecars)
    counted = type(header["version"]) is int and type(header["count"]) is int
    return last_modified and named and counted and all(is_text(header.get(field)) for field in _TEXTS)


def _is_valid_sidecar(sidecar: Any, version: int) -> bool:
    if not isinstance(sidecar, list) or [type(fact) for fact in sidecar] != [int, str, int, int]:
        return False
    sized = is_whole(sidecar[2]) and is_whole(sidecar[3])
    return sized and bool(_DIGEST.fullmatch(sidecar[1])) and version - NAMED_WITHIN < sidecar[0] <= version


@contextmanager
def naming(log: str, version: int) -> Iterator[None]:
    """Add the entry to the message of an error about a transaction inside the block."""
    try:
        yield
    except (DamagedError, UnsupportedFormatError) as error:
        text = f"entry {version} of {log}: {error.message}"
        raise error.restated(text, log=log, version=version) from error.__cause__


def encode_checkpoint(
    log: str, version: int, entry_digest: str, document: Any, *, features: Sequence[str] = ()
) -> bytes:
    """Return the bytes of a checkpoint's manifest; replay begins after entry ``version``, of that ``entry_digest``."""
    header = {"log": log, "version": version, "entry_digest": entry_digest}
    return encode_document(header, dump(document) + b"\n", features=features)


def decode_checkpoint(data: bytes, log: str) -> tuple[int, str, Mapping[str, Any]]:
    """Version, entry digest and document of a checkpoint's manifest. Raises as :func:`decode`."""
    name = f"the checkpoint of {log}"
    header = decode_document(data, name)
    if header.get("log") != log:
        raise Code.CHECKPOINT_DAMAGED(f"{name} belongs to another log", log=log)
    with reading(f"{name} cannot be parsed", log=log):
        version, digest, document = header["version"], header["entry_digest"], load(data.partition(b"\n")[2])
        if not is_whole(version) or not is_text(digest) or not isinstance(document, dict):
            raise Code.CHECKPOINT_DAMAGED(f"{name} has an invalid version {version!r}", log=log)
        return version, digest, document


# -- lost entries -----------------------------------------------------------------------------------------------


def entry_missing(log: str, version: int) -> Error:
    """Return the error for an entry that should exist and does not."""
    return Code.ENTRY_MISSING(
        f"entry {version} of {log} is missing from the log; put back this entry alone, unchanged, from a copy (a "
        "backup, an earlier version of the object), and overwrite nothing that is there: see `lakebed docs operations`",
        log=log,
        version=version,
    )


def log_went_back(log: str, version: int) -> Error:
    """Return the error for an entry that was in the log and is not, or is another one now."""
    return Code.LOG_WENT_BACK(
        f"the log of {log} went back: entry {version}, which was in it, is missing or is another one now (after a "
        "fail-over that lost commits, or a restored backup). Put back the lost entries from a copy, or give them up as "
        "`lakebed docs operations` says; nothing was changed",
        log=log,
        version=version,
    )
