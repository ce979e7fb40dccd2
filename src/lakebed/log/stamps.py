"""When entries were stored, by the store's own clock, learned with as few requests as can be.

Entry n+1 carries the stamp of entry n, so whoever reads the log forward learns all stamps but the newest for nothing;
that one, and any that a writer did not know, is asked of the store. Stamps are the place's: a writer whose clock is
wrong changes none of them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakebed.errors import DamagedError, NotRetainedError

if TYPE_CHECKING:
    from lakebed.log.backend import LogBackend

STAMPS_MAX = 10_000
"""Stamps remembered, the newest: about a megabyte. One that was forgotten costs a request."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def from_us(stamp_us: int) -> datetime:
    """The moment of so many microseconds since 1970."""
    return EPOCH + timedelta(microseconds=stamp_us)


def to_us(stamp: datetime) -> int:
    """Microseconds since 1970, exactly."""
    return (stamp - EPOCH) // timedelta(microseconds=1)


def gone(log: str, number: int) -> DamagedError:
    """For an entry that was there, or must have been, and is not."""
    return DamagedError(
        f"entry {number} of {log} is gone from the store; restore the object from a copy", log=log, number=number
    )


class Stamps:
    """The stamps of one log's entries. Safe to use from many threads."""

    def __init__(self, backend: LogBackend, identity: str) -> None:
        self._backend = backend
        self._identity = identity
        self._known: dict[int, datetime] = {}

    def note(self, number: int, stamp: datetime) -> datetime:
        """Remember what a header, or the store, said of an entry."""
        if len(self._known) >= STAMPS_MAX:
            self._known = dict(list(self._known.items())[-STAMPS_MAX // 2 :])
        self._known[number] = stamp
        return stamp

    def known(self, number: int) -> datetime | None:
        """The stamp of an entry, if no request is needed for it."""
        found = self._known.get(number) or self._backend.known_stamp(number)
        return None if found is None else self.note(number, found)

    def of(self, number: int) -> datetime:
        """The stamp of an entry. Raises NotRetainedError if it was trimmed, DamagedError if it is gone."""
        found = self.known(number) or self._backend.stamp(number)
        if found is not None:
            return self.note(number, found)
        if (floor := self._backend.floor()) >= number:
            raise NotRetainedError(
                f"entry {number} of {self._identity} is not kept any more: the log is trimmed up to {floor}",
                log=self._identity,
                number=number,
            )
        raise gone(self._identity, number)
