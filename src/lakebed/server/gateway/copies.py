"""Objects that have to be written: local copies of rows, written once each, within a limit of bytes.

Core type: :class:`Copies`. A copy is deleted when it makes room for others, when it was not asked for in
:data:`UNUSED_S`, and at the end of the process; an answer that is being sent keeps it until then. A copy that is needed
again is written again, from the same rows by the same program, and so has the same bytes.

Copies that are being written count with what they have so far, after each row group: room is made for them while they
grow, and one that does not fit is given up, so that the disk holds one row group of each writer beyond the limit.

Errors: S3Error for a table of which too much would have to be written; those of a scan.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import xxhash

from lakebed import clock
from lakebed.model.wording import size_text
from lakebed.read.rows.merged_copy import GROUP_BYTES, rows_copy
from lakebed.server.gateway.s3_errors import S3Error

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.files.parquet.open_files import LocalCopy
    from lakebed.server.gateway.version_objects import TableObject, VersionObjects, ViewKey

CACHE_BYTES = 10 * 1024**3
UNUSED_S = 3600.0
"""What was erased from a table is in no copy after an hour, if nothing reads the copy."""

_READ_BYTES = 1024 * 1024
_REFUSED_MAX = 1000
"""Versions that are known to be too large."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A file that exists as long as this value; ``digest`` is the XXH3-128 of its bytes, in hex."""

    file: LocalCopy
    size_bytes: int
    digest: str

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of it."""
        with self.file.path.open("rb") as data:
            data.seek(offset)
            return data.read(length)


class Copies:
    """The copies of a process. Safe to use from many threads, but for :meth:`write` of one object."""

    def __init__(self, capacity_bytes: int = CACHE_BYTES, *, group_bytes: int = GROUP_BYTES) -> None:
        """``group_bytes`` are the rows of a row group, decoded."""
        self._capacity_bytes = capacity_bytes
        self._group_bytes = group_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[ViewKey, str], tuple[Copy, float]] = OrderedDict()
        self._bytes = 0
        self._growing: dict[tuple[ViewKey, str], int] = {}
        self._too_large: dict[ViewKey, int] = {}

    def known(self, view: VersionObjects, one: TableObject) -> Copy | None:
        """Return the copy of an object, if it was written."""
        name = view.key, one.name
        with self._lock:
            held = self._held.get(name)
            if held is None:
                return None
            self._held[name] = held[0], clock.monotonic_s()
            self._held.move_to_end(name)
            return held[0]

    def write(self, view: VersionObjects, one: TableObject) -> Copy:
        """Write the copy of an object, and return it. One caller at a time writes the same object."""
        name = view.key, one.name
        with self._lock:
            self._check(view)
        try:
            copy = self._written(view, one, lambda size_bytes: self._make_room(view, name, size_bytes))
            self._make_room(view, name, copy.size_bytes)
            with self._lock:
                del self._growing[name]
                self._held[name] = copy, clock.monotonic_s()
                self._bytes += copy.size_bytes
        finally:
            with self._lock:
                self._growing.pop(name, None)
        return copy

    def delete_unused(self, unused_s: float = UNUSED_S) -> None:
        """Delete the copies that were not asked for in that time."""
        before = clock.monotonic_s() - unused_s
        with self._lock:
            while self._held and next(iter(self._held.values()))[1] <= before:
                self._drop_oldest()

    def _check(self, view: VersionObjects) -> None:
        """Raise S3Error if the copies of one version need more than all copies may have."""
        needed = max(view.written_bytes, self._too_large.get(view.key, 0))
        if needed <= self._capacity_bytes:
            return
        key = view.key
        remedy = "compact the table (--strategy full), or " if key.policy is None and key.ranges is None else ""
        raise S3Error(
            "InvalidRequest",
            f"version {key.version} of the table {view.name} has files with rows that do not count for this reader: "
            f"{size_text(needed)} or more would be written anew, and --s3-cache allows "
            f"{size_text(self._capacity_bytes)}; {remedy}raise --s3-cache",
        )

    def _make_room(self, view: VersionObjects, name: tuple[ViewKey, str], size_bytes: int) -> None:
        """Note the size of a copy that is being written, and delete those that were not asked for for the longest time.

        Raises S3Error if the copies of its version need more than there is, or if others that are being written do.
        """
        with self._lock:
            self._growing[name] = size_bytes
            own = sum(size for (key, _), size in self._growing.items() if key == view.key)
            own += sum(one.size_bytes for (key, _), (one, _) in self._held.items() if key == view.key)
            if own > self._capacity_bytes:
                if len(self._too_large) >= _REFUSED_MAX:
                    self._too_large.clear()
                self._too_large[view.key] = own
                self._check(view)
            growing = sum(self._growing.values())
            while self._held and self._bytes + growing > self._capacity_bytes:
                self._drop_oldest()
            if growing > self._capacity_bytes:
                raise S3Error(
                    "SlowDown",
                    f"copies of several versions are being written, and need more than the "
                    f"{size_text(self._capacity_bytes)} that --s3-cache allows; try again",
                    {"Retry-After": "5"},
                )

    def _drop_oldest(self) -> None:
        _, (copy, _) = self._held.popitem(last=False)
        self._bytes -= copy.size_bytes

    def _written(self, view: VersionObjects, one: TableObject, grown: Callable[[int], None]) -> Copy:
        file = rows_copy(view.rows(one), "zstd", group_bytes=self._group_bytes, grown=grown)
        digest = xxhash.xxh3_128()
        with file.path.open("rb") as data:
            while chunk := data.read(_READ_BYTES):
                digest.update(chunk)
        return Copy(file, file.path.stat().st_size, digest.hexdigest())
