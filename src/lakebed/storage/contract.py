"""The storage interface: every byte that Lakebed writes or reads passes through it.

A store is a flat map from names to objects. The log, data files and checkpoints depend on five promises, which the
conformance suite in :mod:`lakebed.testing.conformance` checks:

* :meth:`Storage.create` never overwrites. At most one of any number of racing creates of a name takes effect.
* :meth:`Storage.replace_if` overwrites only the version that it was given. At most one of any number of racing calls
  takes effect. Only truncating a log needs it: a store without it keeps the whole log
  (:func:`~lakebed.storage.probe.keeps_replace_if`).
* An acknowledged write is durable. Every later read of the name and every later listing shows it.
* An object exists whole or not at all.
* The last-modified time of an object comes from the store's clock. A listing and :meth:`Storage.last_modified` give the
  same value.

Outcomes. Losing a race is a value, not an exception. :attr:`PutOutcome.UNCLEAR`: the request may have taken effect, or
may still do so. The caller puts *the same bytes to the same name again* until the answer is CREATED or EXISTS
(:func:`~lakebed.storage.retries.put_until_clear`). After EXISTS the caller reads the object, which may be its own, from
an earlier request. Some object stores also answer EXISTS to a create that races with a delete; if there is no object,
the caller puts again.

Names are relative paths of plain segments (:func:`check_name`), so no name can leave the root. Segments that begin with
a dot belong to the store (temporaries, clock and probe objects), and listings leave them out.

Sizes. An object that is put as bytes has at most OBJECT_BYTES_MAX, and a larger one is refused before it is read: any
program with access to the store could put gigabytes under the name of a log entry, manifest, pin or request. Files of
any size are sent and fetched.

Errors. Every failure is a :class:`~lakebed.errors.StorageError`. Its ``transient`` fact says whether the same call may
succeed later (time-out, 5xx, throttling) or something has to be repaired first (permission, space, a missing bucket). A
``create`` that raises has stored nothing.
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from lakebed.errors import Code, Error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from lakebed.storage.disk_cache import DiskCache

NAMES_CHECKED = 4096
"""Names in the cache of :func:`check_name`: each read of a table checks the same two."""

NAME_CHARS_MAX = 800
"""S3 allows 1,024 bytes for a key; the rest is for the root's own prefix."""

SEGMENT_CHARS_MAX = 200
"""File systems allow 255 bytes; a temporary adds two dots and 32 digits to the name of its object."""

_SEGMENT = re.compile(rf"[A-Za-z0-9_.=-]{{0,{SEGMENT_CHARS_MAX - 1}}}[A-Za-z0-9_=-]", re.ASCII)
_NAME = re.compile(rf"{_SEGMENT.pattern}(?:/{_SEGMENT.pattern})*", re.ASCII)

PROBE = ".probe"
"""The folder of the objects used to test a store."""

OBJECT_BYTES_MAX = 128 * 1024 * 1024
"""Maximum size of objects that are put as bytes: a log entry is one line of up to 16 MiB; a sidecar of 2,000,000
references has some 50 MB; the manifest of a checkpoint of a million partitions with boundaries of 20 bytes has some 60
MB."""


class PutOutcome(Enum):
    """The outcome of a conditional put: a create-if-absent, or a replace-if-unchanged."""

    CREATED = "created"
    """This request stored the object, durably."""

    EXISTS = "exists"
    """The name is taken, perhaps by the caller's own earlier request: read the object to find out. For a replace: the
    object has another version, or does not exist."""

    UNCLEAR = "unclear"
    """No reliable answer (time-out, reset, 5xx, 409): put the same bytes again before any other step."""

    UNLINKED = "unlinked"
    """Only of a log: nothing was stored, because the entry before is not there or is another one, or a later one is."""


class Version(Struct, frozen=True):
    """Identifies the content of an object, as its store does (an entity tag and a generation, or a digest)."""

    tag: str
    generation: str | None = None


class Versioned(Struct, frozen=True):
    """The bytes of an object, and the version to pass to :meth:`Storage.replace_if`."""

    data: bytes
    version: Version


class Stored(Struct, frozen=True):
    """Size, digests and last-modified time of an object that was sent.

    ``digest`` is the XXH3-128 of the whole object in hex. The footer is the last part of a Parquet file: its metadata
    with the four length bytes and the four magic bytes; 0 and "" for any other kind of object.
    """

    size_bytes: int
    digest: str
    footer_bytes: int
    footer_digest: str
    last_modified: datetime


class Locality(Enum):
    """Where the objects of a storage are, and so what a request to it costs."""

    MEMORY = "memory"
    """In this process: microseconds."""

    DISK = "disk"
    """Files of this machine, or of a file system that it has mounted: microseconds, up to the speed of the disk."""

    REMOTE = "remote"
    """Behind a network: each request is a round trip, so parts of large objects are requested, and many at once."""

    @property
    def near(self) -> bool:
        """Whether a request takes microseconds."""
        return self is not Locality.REMOTE

    @property
    def shared(self) -> bool:
        """Whether other processes can access the objects."""
        return self is not Locality.MEMORY


class Listed(Struct, frozen=True):
    """One object of a listing."""

    name: str
    size_bytes: int
    last_modified: datetime


class Storage(Protocol):
    """The objects below a root URL. Safe to use from many threads."""

    @property
    def url(self) -> str:
        """The root, without a trailing slash."""

    @property
    def locality(self) -> Locality:
        """Where the objects are."""

    @property
    def folder(self) -> Path | None:
        """The folder below which each object is a file of its name, to be read in place; None if there is none."""

    @property
    def cache(self) -> DiskCache | None:
        """The cache on local disk, which callers use for what they verify; no method of a storage reads it."""

    def create(self, name: str, data: bytes) -> PutOutcome:
        """Put create-if-absent, in exactly one request, without a retry.

        Raises StorageError for more than OBJECT_BYTES_MAX, as each put does.
        """

    def replace(self, name: str, data: bytes) -> None:
        """Put atomically, over an existing object too. Only for objects that are derived from others."""

    def replace_if(self, name: str, version: Version, data: bytes) -> PutOutcome:
        """Put over that version and no other, in exactly one request, without a retry.

        Equal bytes may have equal versions, so do not use it for objects that return to earlier bytes. It may be unsafe
        against a concurrent :meth:`replace` or :meth:`delete` of the name.

        Raises:
            UnsafeStoreError: the store does not support it.
        """

    def get(self, name: str) -> bytes | None:
        """Return the whole object; None if it does not exist.

        Raises:
            DamagedError: it has more than OBJECT_BYTES_MAX, and is not read.
        """

    def get_versioned(self, name: str) -> Versioned | None:
        """Return the whole object with its version, in one request.

        Raises:
            DamagedError: it has more than OBJECT_BYTES_MAX, and is not read.
            UnsafeStoreError: the store reports no versions.
        """

    def read_ranges(self, name: str, byte_ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return parts of an object, each an (offset, length), in as few round trips as the store allows.

        Raises:
            NotFoundError: there is no such object.
            OSError: the object ends before a part does.
        """

    def last_modified(self, name: str) -> datetime | None:
        """Return the store's last-modified time of the object, aware UTC; None if it does not exist."""

    def now(self) -> datetime:
        """Return the store's clock, read from a new object that is deleted again (a few requests)."""

    def send(self, name: str, path: Path) -> Stored:
        """Move or upload a finished local file, and compute its digests in the same read.

        The name must be new. A store on local disk removes the local file, an object store leaves it to the caller:
        delete it with ``missing_ok=True``.
        """

    def fetch(self, name: str, *, digest: str | None = None) -> AbstractContextManager[Path]:
        """Return the whole object as a local file for the length of the ``with`` block; do not change the file.

        With a digest the object is verified before the block is entered.

        Raises:
            NotFoundError: there is no such object.
            DamagedError: the bytes do not have that digest; names the object.
        """

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; names that do not exist are skipped."""

    def list(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """Return every object below a folder (whole segments; "" is the root), recursively, in any order.

        With ``after`` only the objects whose names are above it; a store fetches no page of others.
        Objects that are created or deleted meanwhile may be listed or not: a listing does not prove absence.
        """

    def temporaries(self, prefix: str) -> Iterator[Listed]:
        """List the objects under other names that puts below a folder have stored, in any order; no listing shows them.

        The put may be under way, or its process died. A temporary may contain all bytes of an object. Stores that hide
        incomplete uploads have none.
        """

    def delete_temporaries(self, prefix: str, before: datetime) -> int:
        """Delete temporaries, clock and probe objects below a folder that are older than ``before``; return how many.

        Processes that died leave them. A put that began before this time and is still running fails: choose a day
        before :meth:`now`.
        """

    def object_url(self, name: str) -> str:
        """Return the URL with which other engines (DataFusion, Spark) address the object."""


@lru_cache(maxsize=NAMES_CHECKED)
def check_name(name: str) -> str:
    """Return the name of an object if it is safe on every store.

    Raises:
        UsageError: it is absolute, empty or too long, has a segment ``..``, or a character with a special meaning for
            some store or file system (backslash, percent, NUL, blanks, non-ASCII).
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
    """Return whether the object belongs to the store (a temporary, a clock or probe object) and is not listed."""
    return name.startswith(".") or "/." in name


def check_put(name: str, data: bytes) -> None:
    """Raise StorageError for more bytes than can be read back."""
    if len(data) > OBJECT_BYTES_MAX:
        raise Code.OBJECT_TOO_LARGE(
            f"cannot put {name}: it has {len(data)} bytes, and at most {OBJECT_BYTES_MAX} can be read back",
            name=name,
            size_bytes=len(data),
            transient=False,
        )


def check_get(name: str, size_bytes: int) -> None:
    """Raise DamagedError for an object that is larger than any that is put."""
    if size_bytes > OBJECT_BYTES_MAX:
        raise too_large(name, f"{size_bytes} bytes")


def too_large(name: str, found: str = f"more than {OBJECT_BYTES_MAX} bytes") -> Error:
    """Return the error for an object that is larger than any that is put; ``found`` is its size, if known."""
    return Code.OBJECT_DAMAGED(
        f"{name} has {found}, and Lakebed puts at most {OBJECT_BYTES_MAX} there: the object was replaced; restore it "
        "from a copy",
        name=name,
    )


def check_digest(url: str, name: str, expected: str | None, found: str | None) -> None:
    """Raise DamagedError for an object whose digest differs from ``expected``; None: not checked."""
    if expected is not None and found != expected:
        raise Code.OBJECT_DAMAGED(
            f"{url} is damaged: its digest is {found}, {expected} was written; restore the object",
            name=name,
            expected=expected,
            found=found,
        )
