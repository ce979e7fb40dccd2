"""When entries were stored, by the store's own clock, with as few requests as possible.

Entry n+1 carries the last-modified time of entry n, so a process that reads the log forward learns all of them but the
newest without a request; that one, and any that a writer did not know, is read from the store. No writer's clock has a
part in them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakebed.errors import Code, Error

if TYPE_CHECKING:
    from lakebed.log.backends.backend import LogBackend

TIMES_MAX = 10_000
"""Times kept, of the newest entries: about a megabyte. Any other costs a request."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def from_us(last_modified_us: int) -> datetime:
    """The moment of so many microseconds since 1970."""
    return EPOCH + timedelta(microseconds=last_modified_us)


def to_us(last_modified: datetime) -> int:
    """Microseconds since 1970, exactly."""
    return (last_modified - EPOCH) // timedelta(microseconds=1)


def gone(log: str, version: int) -> Error:
    """For an entry that was there, or must have been, and is not."""
    return Code.ENTRY_MISSING(
        f"entry {version} of {log} is missing from the store; restore the object from a copy", log=log, version=version
    )


class LastModifiedTimes:
    """The last-modified times of one log's entries. Safe to use from many threads."""

    def __init__(self, backend: LogBackend, identity: str) -> None:
        self._backend = backend
        self._identity = identity
        self._known: dict[int, datetime] = {}

    def note(self, version: int, last_modified: datetime) -> datetime:
        """Remember what a header, or the store, said of an entry."""
        if len(self._known) >= TIMES_MAX:
            self._known = dict(list(self._known.items())[-TIMES_MAX // 2 :])
        self._known[version] = last_modified
        return last_modified

    def known(self, version: int) -> datetime | None:
        """The last-modified time of an entry, if no request is needed for it."""
        found = self._known.get(version) or self._backend.known_last_modified(version)
        return None if found is None else self.note(version, found)

    def of(self, version: int) -> datetime:
        """The last-modified time of an entry. Raises NotRetainedError if it was truncated, DamagedError if it is
        gone.
        """
        found = self.known(version) or self._backend.last_modified(version)
        if found is not None:
            return self.note(version, found)
        if (log_start := self._backend.log_start()) >= version:
            raise Code.ENTRY_NOT_RETAINED(
                f"entry {version} of {self._identity} is no longer retained: the log is truncated up to {log_start}",
                log=self._identity,
                version=version,
            )
        raise gone(self._identity, version)
