"""When entries were stored, by the store's clock, with as few requests as possible.

Entry n+1 has the last-modified time of entry n, so a process that reads the log forward needs no request, except for
the latest entry and for times that a writer did not know. Clocks of writers are not used.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakebed.errors import Code
from lakebed.log.entry import entry_missing

if TYPE_CHECKING:
    from lakebed.log.backends.backend import LogBackend

TIMES_MAX = 10_000
"""Times that are cached, of the latest entries: about a megabyte. Any other takes a request."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def from_us(last_modified_us: int) -> datetime:
    """Return the time of a number of microseconds since 1970."""
    return EPOCH + timedelta(microseconds=last_modified_us)


def to_us(last_modified: datetime) -> int:
    """Return a time as microseconds since 1970, exactly."""
    return (last_modified - EPOCH) // timedelta(microseconds=1)


class LastModifiedTimes:
    """The last-modified times of one log's entries. Safe to use from many threads."""

    def __init__(self, backend: LogBackend, identity: str) -> None:
        self._backend = backend
        self._identity = identity
        self._known: dict[int, datetime] = {}

    def note(self, version: int, last_modified: datetime) -> datetime:
        """Cache a time that a header or the store has reported."""
        if len(self._known) >= TIMES_MAX:
            self._known = dict(list(self._known.items())[-TIMES_MAX // 2 :])
        self._known[version] = last_modified
        return last_modified

    def known(self, version: int) -> datetime | None:
        """Return the last-modified time of an entry if it takes no request, else None."""
        found = self._known.get(version) or self._backend.known_last_modified(version)
        return None if found is None else self.note(version, found)

    def of(self, version: int) -> datetime:
        """Return the last-modified time of an entry. Raises NotRetainedError if truncated, DamagedError if missing."""
        found = self.known(version) or self._backend.last_modified(version)
        if found is not None:
            return self.note(version, found)
        if (log_start := self._backend.log_start()) >= version:
            raise Code.ENTRY_NOT_RETAINED(
                f"entry {version} of {self._identity} is no longer retained: the log is truncated up to {log_start}",
                log=self._identity,
                version=version,
            )
        raise entry_missing(self._identity, version)
