"""What Lakebed asks of a store: the one door for every byte that lands.

A store is a flat map from names to immutable-looking objects. Everything above it (the log, data files, checkpoints)
rests on five promises, which the conformance suite in :mod:`lakebed.testing.conformance` checks:

* :meth:`Storage.create` never overwrites, and of any number of racing creates of one name at most one takes effect.
* :meth:`Storage.replace_if` never overwrites but the version it was given: of any number of racing ones at most one
  takes effect. Only the truncation of a log needs it, so a store without it is one that keeps its whole log
  (:func:`~lakebed.storage.probe.keeps_replace_if`).
* What was acknowledged is durable, and is seen by every later read of that name and by every later listing.
* An object is there whole or not at all.
* An object's last-modified time is the store's own clock; a listing and :meth:`Storage.last-modified time` give the
  same value for it.

Outcomes are values where losing is normal. :attr:`PutOutcome.UNCLEAR` says that the request may have taken effect, or
may yet do so; the caller settles it by putting *the same bytes to the same name again* until the answer is CREATED or
EXISTS. EXISTS means "look whose it is": it may be the caller's own earlier request, and on object stores that answer a
racing delete with a conflict there may even be nothing there, in which case the caller puts again.

Every failure is a :class:`~lakebed.errors.StorageError` whose ``transient`` fact says whether the same call may
succeed later (time-out, 5xx, throttling) or someone must mend something first (permission, space, a missing bucket).
A ``create`` that raises has stored nothing.

An object that is put as bytes has at most OBJECT_BYTES_MAX (:mod:`lakebed.storage.object_size`), and one that is read
as bytes is refused before it is read if it has more. Files of any size are sent and fetched.

Names are relative paths of plain segments (:func:`check_name`), so that no name can leave the root, and segments that
begin with a dot belong to the store (temporaries, clock and probe objects): listings never show them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from lakebed.errors import Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

NAMES_CHECKED = 4096
"""Names that are known to be safe: each read of a table looks for the same two."""

NAME_CHARS_MAX = 800
"""S3 allows 1,024 bytes a key; the rest is for the root's own prefix."""

SEGMENT_CHARS_MAX = 200
"""File systems allow 255 bytes; a temporary adds two dots and 32 digits to the name it is for."""

_SEGMENT = re.compile(rf"[A-Za-z0-9_.=-]{{0,{SEGMENT_CHARS_MAX - 1}}}[A-Za-z0-9_=-]", re.ASCII)
_NAME = re.compile(rf"{_SEGMENT.pattern}(?:/{_SEGMENT.pattern})*", re.ASCII)


PROBE = ".probe"
"""The folder of the objects by which a store is tried out."""


class PutOutcome(Enum):
    """How a conditional put ended: a create-if-absent, or a replace-if-unchanged."""

    CREATED = "created"
    """Stored by this very request, and durable."""

    EXISTS = "exists"
    """The name is taken: read it to learn by whom. It may be the caller's own, of an earlier unclear request.
    Of a replace: what is there is another version than the one named, or nothing is there."""

    UNCLEAR = "unclear"
    """No trustworthy answer (time-out, reset, 5xx, 409): put the same bytes again before anything else is tried."""


@dataclass(frozen=True, slots=True)
class Version:
    """Which content of an object a read met, in the store's own words; of use to that store alone."""

    tag: str
    generation: str | None = None


@dataclass(frozen=True, slots=True)
class Versioned:
    """The bytes of an object, and what :meth:`Storage.replace_if` must find there to put others in their place."""

    data: bytes
    version: Version


@dataclass(frozen=True, slots=True)
class Stored:
    """What the door knows of an object it sent.

    ``digest`` is the XXH3-128 of the whole object in hex. The footer is the last part of a Parquet file: its metadata
    with the four length bytes and the four magic bytes; 0 and "" for any other kind of object.
    """

    size_bytes: int
    digest: str
    footer_bytes: int
    footer_digest: str
    last_modified: datetime


@dataclass(frozen=True, slots=True)
class Listed:
    """One object of a listing."""

    name: str
    size_bytes: int
    last_modified: datetime


class Storage(Protocol):
    """A root URL and what can be done below it. Safe to use from many threads."""

    @property
    def url(self) -> str:
        """The root, without a trailing slash."""

    @property
    def shared(self) -> bool:
        """Whether other processes can see it."""

    def create(self, name: str, data: bytes) -> PutOutcome:
        """Put create-if-absent, in exactly one request: nothing below this call retries silently.

        Raises StorageError for more than OBJECT_BYTES_MAX, as each put does.
        """

    def replace(self, name: str, data: bytes) -> None:
        """Put atomically over whatever is there. Only for objects that are derived from others."""

    def replace_if(self, name: str, version: Version, data: bytes) -> PutOutcome:
        """Put over that version and no other, in exactly one request: nothing below this call retries silently.

        Equal bytes may be one version, so an object whose bytes come back is no use for this. Whether it is kept
        against :meth:`replace` and :meth:`delete` of the same name is not promised.

        Raises:
            UnsafeStoreError: the store cannot do it.
        """

    def get(self, name: str) -> bytes | None:
        """The whole object; None: not there.

        Raises:
            DamagedError: it has more than OBJECT_BYTES_MAX, and is not read.
        """

    def get_versioned(self, name: str) -> Versioned | None:
        """The same with its version, in one request. Raises as :meth:`get` does.

        Raises:
            UnsafeStoreError: the store does not tell versions.
        """

    def last_modified(self, name: str) -> datetime | None:
        """The store's last-modified time of the object, aware UTC; None: not there."""

    def now(self) -> datetime:
        """The store's clock, read off a fresh object that is deleted again (a few requests: not for hot paths)."""

    def send(self, name: str, path: Path) -> Stored:
        """Move or upload a finished local file, digesting it in the same single read.

        The name must be fresh. The local file is gone afterwards on local disk, and is left to the caller on object
        stores: delete it with ``missing_ok=True``.
        """

    def fetch(self, name: str, *, digest: str | None = None) -> AbstractContextManager[Path]:
        """The whole object as a local file, for the length of the ``with`` block; not to be changed.

        With a digest the object is verified before the block is entered.

        Raises:
            NotFoundError: there is no such object.
            DamagedError: the bytes do not have that digest; names the object.
        """

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; one that is not there is fine."""

    def list(self, prefix: str) -> Iterator[Listed]:
        """Every object below a folder (whole segments; "" is the root), recursively, in any order.

        A hint only where objects come and go meanwhile; never the proof that something is not there.
        """

    def delete_temporaries(self, prefix: str, before: datetime) -> int:
        """Remove the store's own objects below a folder whose last-modified time is older, left by processes that died;
        how many.

        Choose a time that no put can last: a day before :meth:`now`. One that lasts longer fails.
        """

    def object_url(self, name: str) -> str:
        """The URL by which other engines (DataFusion, Spark) address the object."""


@lru_cache(maxsize=NAMES_CHECKED)
def check_name(name: str) -> str:
    """Return the name of an object if it is safe on every store.

    Raises:
        UsageError: it is absolute, empty, too long, climbs (``..``), or has a character that some store or file
            system gives a meaning of its own (backslash, percent, NUL, blanks, non-ASCII).
    """
    if len(name) > NAME_CHARS_MAX:
        raise Code.OBJECT_NAME_INVALID(
            f"object name of {len(name)} characters is longer than {NAME_CHARS_MAX}", name=name
        )
    if not _NAME.fullmatch(name):
        segment = next(segment for segment in name.split("/") if not _SEGMENT.fullmatch(segment))
        raise Code.OBJECT_NAME_INVALID(
            f"unsafe object name {name!r}: segment {segment!r} must be 1 to {SEGMENT_CHARS_MAX} of the characters "
            "A-Z a-z 0-9 _ . = - and must not end in a dot",
            name=name,
        )
    return name


def check_prefix(prefix: str) -> str:
    """Return the folder without a trailing slash; "" is the root.

    Raises:
        UsageError: as for :func:`check_name`.
    """
    folder = prefix.removesuffix("/")
    return check_name(folder) if folder else ""


def hidden(name: str) -> bool:
    """Whether the object is the store's own (a temporary, a clock or probe object) and no listing shows it."""
    return name.startswith(".") or "/." in name
