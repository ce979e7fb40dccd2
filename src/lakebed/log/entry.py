"""Log entries as bytes: NDJSON, a header line and one line a transaction.

The header carries what a reader must check before it believes a line: the format version, required features, the log
and number the entry belongs to, a digest of the lines below it, and the digest of the previous entry, which chains
the log. JSON alone does not notice damage: a few changed bytes often still parse. An entry cannot hold the store's
stamp of itself, so each holds that of the one before. The header also names the side objects that the lines claim, so
that they are found without reading the lines. Pure.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import xxhash

from lakebed.checks import is_text, is_whole
from lakebed.documents import dump, load, reading
from lakebed.errors import DamagedError, FormatTooNewError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

_DIGEST = re.compile(r"[0-9a-f]{32}")
_TEXTS = ("id", "time", "writer", "previous")

FORMAT = 0
"""Version 0 may change without migration; every reader refuses a version above its own."""

NAMED_WITHIN = 64
"""A side object put for entry n may be named by that entry and those after it, so many in all: a writer who has lost a
race need not put it again, and it can be told when it will never be named."""

STAMP_BYTES = 17
"""What a stamp adds to an entry without one: its digits, till the year 5138, in place of ``null``, and one to spare."""


REFERENCE_BYTES = 93
"""What a reference in a side object weighs beside what is in lines: so much it would be there."""


@dataclass(frozen=True, slots=True)
class SideObject:
    """What an entry says of a side object: the number it was put for (:mod:`lakebed.log.sides`), digest, and size."""

    number: int
    digest: str
    references: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One decoded entry; ``documents`` are its transactions.

    ``id`` tells it from any other that was offered for its number; ``time`` and ``writer`` are the writer's own words,
    for people. ``stamp_us`` is the store's stamp of the entry *before* it, in microseconds since 1970; None: its
    writer did not know.
    """

    number: int
    id: str
    time: str
    writer: str
    stamp_us: int | None
    digest: str
    previous: str
    documents: tuple[Mapping[str, Any], ...]
    sides: tuple[SideObject, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry as it was found: when it was stored, by the store's clock, and how large it is."""

    entry: Entry
    stored_at: datetime
    size_bytes: int


def digest_of(data: bytes) -> str:
    """XXH3-128 in hex: finds damage, does not stop forgery."""
    return xxhash.xxh3_128_hexdigest(data)


def weight_bytes(data: bytes, sides: Sequence[SideObject]) -> int:
    """The size of an entry as if its side objects were in its lines: what it costs to read and to keep."""
    return len(data) + REFERENCE_BYTES * sum(side.references for side in sides)


def encode_line(document: Mapping[str, Any]) -> bytes:
    """One of the lines below the header."""
    return dump(document) + b"\n"


def encode(log: str, entry: Entry, body: bytes) -> bytes:
    """The bytes of an entry whose documents are ``body``; ``entry.digest``, the digest of these bytes, is not read."""
    header = {
        "format": FORMAT,
        "features": [],
        "log": log,
        "number": entry.number,
        "id": entry.id,
        "time": entry.time,
        "writer": entry.writer,
        "stamp_us": entry.stamp_us,
        "sides": [list(astuple(side)) for side in entry.sides],
        "count": len(entry.documents),
        "digest": digest_of(body),
        "previous": entry.previous,
    }
    return dump(header) + b"\n" + body


def decode(data: bytes, log: str, number: int, previous: str | None) -> Entry:
    """The entry of these bytes, which must be entry ``number`` of ``log`` after an entry of digest ``previous``.

    Without ``previous`` (whoever reads backwards has not seen it yet) that one claim is for the caller to check.
    Raises FormatTooNewError for a newer format or an unknown feature, DamagedError for anything else that is wrong.
    """
    name = f"entry {number} of {log}"
    head, _, body = data.partition(b"\n")
    header = parse_header(head, name)
    lines = body.split(b"\n")
    wrong = (
        "belongs to another log" if header.get("log") != log
        else f"says it is number {header.get('number')}" if header.get("number") != number
        else "is cut short" if lines.pop() or len(lines) != header.get("count")
        else "was changed after it was written" if header.get("digest") != digest_of(body)
        else "does not follow the entry before it" if previous not in (None, header.get("previous"))
        else "has a header that makes no sense" if not _sensible(header, number)
        else None
    )  # fmt: skip
    if wrong:
        raise DamagedError(f"{name} {wrong}; restore the object from a copy", log=log, number=number)
    try:
        documents = tuple(map(load, lines))
    except ValueError as error:
        raise DamagedError(f"{name} holds a line that is not JSON ({error})", log=log, number=number) from error
    if not all(isinstance(document, dict) for document in documents):
        raise DamagedError(f"{name} holds a line that is not a transaction", log=log, number=number)
    facts = (header["id"], header["time"], header["writer"], header["stamp_us"])
    sides = tuple(SideObject(*side) for side in header["sides"])
    return Entry(number, *facts, digest_of(data), header["previous"], documents, sides)


def _sensible(header: Mapping[str, Any], number: int) -> bool:
    """Whether the fields are of their types, and those that nothing else checks what they must be."""
    stamp_us = header.get("stamp_us", "")
    stamped = stamp_us is None or (is_whole(stamp_us) and number > 1)
    sides = header.get("sides")
    named = isinstance(sides, list) and all(_sensible_side(side, number) for side in sides)
    counted = type(header["number"]) is int and type(header["count"]) is int
    return stamped and named and counted and all(is_text(header.get(field)) for field in _TEXTS)


def _sensible_side(side: Any, number: int) -> bool:
    if not isinstance(side, list) or [type(fact) for fact in side] != [int, str, int, int]:
        return False
    sized = is_whole(side[2]) and is_whole(side[3])
    return sized and bool(_DIGEST.fullmatch(side[1])) and number - NAMED_WITHIN < side[0] <= number


@contextmanager
def naming(log: str, number: int) -> Iterator[None]:
    """Whatever is wrong with a transaction inside the block is told with the entry that it stands in."""
    try:
        yield
    except (DamagedError, FormatTooNewError) as error:
        facts = {**error.facts, "log": log, "number": number}
        raise type(error)(f"entry {number} of {log}: {error.message}", **facts) from error


def parse_header(line: bytes, name: str) -> Mapping[str, Any]:
    """A header line, its format version checked. Raises FormatTooNewError or DamagedError naming ``name``."""
    try:
        header = load(line)
        version, features = header["format"], header["features"]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"{name} has no readable header; restore the object from a copy", name=name) from error
    if type(version) is not int or version > FORMAT or features:
        needs = f"format {version}" + (f" with {', '.join(map(str, features))}" if features else "")
        raise FormatTooNewError(f"{name} is of {needs}; this Lakebed reads format {FORMAT}: upgrade", format=version)
    return header  # type: ignore[no-any-return]


def encode_snapshot(log: str, number: int, entry_digest: str, document: Any) -> bytes:
    """The bytes of the manifest of the state after entry ``number``, with that entry's digest to go on from."""
    body = dump(document) + b"\n"
    header = {
        "format": FORMAT,
        "features": [],
        "log": log,
        "number": number,
        "entry_digest": entry_digest,
        "digest": digest_of(body),
    }
    return dump(header) + b"\n" + body


def decode_snapshot(data: bytes, log: str) -> tuple[int, str, Mapping[str, Any]]:
    """Number, entry digest and document of a snapshot's manifest. Raises as :func:`decode` does."""
    head, _, body = data.partition(b"\n")
    header = parse_header(head, f"the snapshot of {log}")
    name = f"the snapshot of {log}"
    if header.get("log") != log or header.get("digest") != digest_of(body):
        raise DamagedError(f"{name} is damaged or belongs to another log", log=log)
    with reading(f"{name} makes no sense", log=log):
        number, digest, document = header["number"], header["entry_digest"], load(body)
        if not is_whole(number) or not is_text(digest) or not isinstance(document, dict):
            raise DamagedError(f"{name} makes no sense: number {number!r}", log=log)
        return number, digest, document
