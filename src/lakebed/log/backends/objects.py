"""A log as objects of a store, one for each entry and one for the log start: needs nothing but the store of the
data.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from lakebed.errors import StorageError
from lakebed.log.backends.backend import Around, End, Rise, decode_log_start, look_around
from lakebed.log.checkpoint import in_parallel
from lakebed.model.files import (
    entry_folder,
    entry_name,
    log_of_entry,
    log_start_name,
    parse_entry_name,
    parse_sidecar_name,
)
from lakebed.storage import Locality, check_conditional_puts, keeps_replace_if
from lakebed.storage.contract import PutOutcome
from lakebed.storage.digests import digest_bytes
from lakebed.storage.syscalls import turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from lakebed.storage.contract import Listed, Storage

LISTED_MAX = 1_000
"""The objects of one page of a listing."""


class ObjectLog(Struct, frozen=True):
    """A :class:`~lakebed.log.backends.backend.LogBackend` on a store with create-if-absent."""

    storage: Storage
    prefix: str

    @property
    def folder(self) -> Path | None:
        """The folder of the entries on local disk."""
        folder = self.storage.folder
        return None if folder is None else folder / entry_folder(self.prefix)

    def create(self, version: int, data: bytes, previous: str = "") -> PutOutcome:
        """Put entry ``version`` if there is none; on local disk, where a look costs no request, only after its
        predecessor, and not below a later one.
        """
        if previous and self.storage.locality is Locality.DISK:
            before = self.get(version - 1)
            if before is None or digest_bytes(before) != previous:
                return PutOutcome.UNLINKED
            # In this order, because others may append both meanwhile.
            if self.last_modified(version + 1) is not None and self.last_modified(version) is None:
                return PutOutcome.UNLINKED
        return self.storage.create(entry_name(self.prefix, version), data)

    def get(self, version: int) -> bytes | None:
        """Return the bytes of an entry; None: there is none."""
        return self.storage.get(entry_name(self.prefix, version))

    def turn(self, wait_s: float, pause_s: float) -> AbstractContextManager[bool]:
        """Take a turn on local disk, by a lock on the folder of the entries; other stores have no turns."""
        folder = self.folder
        return nullcontext(enter_result=False) if folder is None else turn(str(folder), wait_s, pause_s)

    def last_modified(self, version: int) -> datetime | None:
        """Return when the entry was stored; None: there is none."""
        return self.storage.last_modified(entry_name(self.prefix, version))

    def known_last_modified(self, version: int) -> datetime | None:
        """Return the time on local disk, where it costs no request; object stores do not return it with a create."""
        return self.last_modified(version) if self.storage.locality is Locality.DISK else None

    def now(self) -> datetime:
        """Return the store's clock."""
        return self.storage.now()

    def versions(self) -> Iterator[int]:
        """Return the versions of all entries. Other objects are skipped."""
        for listed in self.storage.list(entry_folder(self.prefix)):
            version = parse_entry_name(self.prefix, listed.name)
            if version is not None:
                yield version

    def log_start(self) -> int:
        """Return the version up to which entries may be deleted; 0: it was never raised."""
        data = self.storage.get(log_start_name(self.prefix))
        return 0 if data is None else decode_log_start(data, self.prefix)

    def end(self, version: int) -> End:  # noqa: ARG002 - as the contract has it
        """Return the log start alone: a store does not read two objects in one request."""
        data = self.storage.get(log_start_name(self.prefix))
        return End(0 if data is None else decode_log_start(data, self.prefix))

    def whole_end(self, version: int) -> End:
        """Return the log start and what is around an entry: two requests, at the same time to a remote store."""
        asks: list[Callable[[], End]] = [lambda: self.end(version), lambda: End(0, self.around(version))]
        remote = self.storage.locality is Locality.REMOTE
        start, look = in_parallel(lambda ask: ask(), asks) if remote else [ask() for ask in asks]
        return End(start.log_start, look.around)

    def around(self, version: int) -> Around:
        """Return whether the entry exists, and a later one beyond the next; a listing of one page, if it ascends."""
        try:
            found = self._versions_in(self._first_listed(version))
        except StorageError:
            # Listings may be refused, and none is needed for anything else.
            return look_around(self, version)
        beyond = min((number for number in found if number > version + 1), default=0)
        return Around("" if version and version not in found else None, beyond)

    def entries_from(self, version: int) -> Sequence[int] | None:
        """Return what a listing of one page shows; None if it is not the whole listing, or does not ascend, or on local
        disk, where a listing reads all names of the folder.
        """
        if self.storage.locality is Locality.DISK:
            return None
        try:
            page = list(islice(self._listed_after(version - 1), LISTED_MAX))
        except StorageError:
            # Listings may be refused, and none is needed for anything else.
            return None
        # The order of a full page says nothing of the pages after it.
        return sorted(self._versions_in(page)) if len(page) < LISTED_MAX and _ascends(page) else None

    def _first_listed(self, version: int) -> Sequence[Listed]:
        """Return the objects from an entry on: the first page, in which entries come before the log start and the
        sidecars, or all of them on local disk and on stores that do not list in the order of names, such as the
        directory buckets of S3.
        """
        listing = self._listed_after(version - 1)
        page = list(islice(listing, LISTED_MAX if self.storage.locality is Locality.REMOTE else None))
        return page if _ascends(page) else [*page, *listing]

    def _listed_after(self, version: int) -> Iterator[Listed]:
        return self.storage.list(entry_folder(self.prefix), entry_name(self.prefix, version) if version > 0 else "")

    def _versions_in(self, listed: Iterable[Listed]) -> set[int]:
        return {number for one in listed if (number := parse_entry_name(self.prefix, one.name)) is not None}

    def known_log_start(self, version: int) -> int | None:  # noqa: ARG002 - as the contract has it
        """Return None, unknown: a store does not read one object when it creates another."""
        return None

    def supports_truncation(self) -> bool:
        """Return whether the store replaces an object only if it is the version that was read."""
        return keeps_replace_if(self.storage)

    def advance_log_start(self, expected: int, to: int) -> bool:
        """Raise the log start if it is the expected one: a read and a conditional put."""
        rise, name = Rise(self.prefix, expected, to), log_start_name(self.prefix)
        found = self.storage.get_versioned(name)

        def put(data: bytes) -> PutOutcome:
            if found is None:
                return self.storage.create(name, data)
            return self.storage.replace_if(name, found.version, data)

        return rise.carry_out(found.data if found else None, put, self.log_start)

    def remove(self, versions: Iterable[int]) -> None:
        """Delete the objects of entries."""
        self.storage.delete(entry_name(self.prefix, version) for version in versions)

    def foreign(self) -> Iterator[str]:
        """Return the objects in the folder that are neither entries, their sidecars, nor the log start."""
        for listed in self.storage.list(entry_folder(self.prefix)):
            known = parse_entry_name(self.prefix, listed.name) or parse_sidecar_name(self.prefix, listed.name)
            if known is None and listed.name != log_start_name(self.prefix):
                yield listed.name


def _ascends(listed: Sequence[Listed]) -> bool:
    return all(before.name < after.name for before, after in pairwise(listed))


class ObjectLogs(Struct, frozen=True):
    """A :class:`~lakebed.log.backends.backend.LogLocation`: the logs below one root URL."""

    storage: Storage

    def open(self, prefix: str) -> ObjectLog:
        """Return the log of that prefix."""
        return ObjectLog(self.storage, prefix)

    def prefixes(self) -> Iterator[str]:
        """Return the prefixes of all logs: every object below the root is listed."""
        seen = set()
        for listed in self.storage.list(""):
            prefix = log_of_entry(listed.name)
            if prefix is not None and prefix not in seen:
                seen.add(prefix)
                yield prefix

    def check(self) -> None:
        """Raise UnsafeStoreError if the store ignores create-if-absent."""
        check_conditional_puts(self.storage)
