"""Room for what stays open as long as a caller likes: answers that are read slowly, and processes of statements.

A :class:`Room` has a capacity, in bytes or in places. No principal gets more than three quarters of it, so a slow one
leaves room for the others. A request without room waits in the queue of its principal, whose length is bounded; the
principal that holds least is served first. Errors: ContentionError for a full queue. Safe to use from many threads, and
takes none.
"""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass

from lakebed.errors import Code, Error

QUEUE_MAX = 32
"""Requests of one principal that wait for room."""


@dataclass(frozen=True, slots=True)
class RoomUse:
    """How full a room is, how many wait, and how many were refused since it was made."""

    used: int
    capacity: int
    waiting: int
    refused: int


class Room:
    """Room of one kind."""

    def __init__(self, name: str, capacity: int, *, share: int | None = None, queue_max: int = QUEUE_MAX) -> None:
        """``share`` is what one principal may have; by default all but a quarter."""
        self.name = name
        self._capacity = capacity
        self._share = share if share is not None else max(min(1, capacity), capacity - max(1, capacity // 4))
        self._queue_max = queue_max
        self._lock = threading.Lock()
        self._used: Counter[str] = Counter()
        self._waiting: list[_Waiting] = []
        self._refused = 0

    def ask(self, holder: str, size: int = 1) -> Future[TakenRoom]:
        """Return what becomes a place of this size. Cancel it, or free the place. More than the share is the share.

        Raises ContentionError if too many requests of the holder wait.
        """
        asked = _Waiting(holder, self._bounded(size), Future())
        with self._lock:
            self._waiting.append(asked)
            granted = self._granted()
            waiting = sum(one.holder == holder for one in self._waiting)
            if asked in self._waiting and waiting > self._queue_max:
                self._waiting.remove(asked)
                self._refused += 1
                raise self.full(holder)
        self._grant(granted)
        return asked.place

    def take(self, holder: str, size: int = 1) -> TakenRoom | None:
        """Return a place, if there is room for it now."""
        size = self._bounded(size)
        with self._lock:
            if self._waiting or not self._fits(holder, size):
                return None
            self._used[holder] += size
        return TakenRoom(self, holder, size)

    def full(self, holder: str) -> Error:
        """Return the error of a request that found no room."""
        return Code.SERVICE_BUSY(
            f"this service has no room for more {self.name} of {holder} now: some that are open are read slowly, or "
            "there are many; try again later"
        )

    def refuse(self) -> None:
        """Count a request that gave up waiting."""
        with self._lock:
            self._refused += 1

    def use(self) -> RoomUse:
        """Return how full it is."""
        with self._lock:
            waiting = sum(not one.place.cancelled() for one in self._waiting)
            return RoomUse(self._used.total(), self._capacity, waiting, self._refused)

    def free(self, place: TakenRoom) -> None:
        """Take back a place, and give the room to those that wait."""
        with self._lock:
            if not place.is_held:
                return
            place.is_held = False
            self._used[place.holder] -= place.size
            if not self._used[place.holder]:
                del self._used[place.holder]
            granted = self._granted()
        self._grant(granted)

    def _bounded(self, size: int) -> int:
        return min(size, max(1, self._share))

    def _fits(self, holder: str, size: int) -> bool:
        return self._used.total() + size <= self._capacity and self._used[holder] + size <= self._share

    def _granted(self) -> list[_Waiting]:
        """Take those out of the queue that fit now. One that does not fit holds up those that came later, or have more.

        Otherwise small ones could keep a large one waiting for ever.
        """
        granted: list[_Waiting] = []
        self._waiting = [one for one in self._waiting if not one.place.cancelled()]
        while self._waiting:
            eligible = [one for one in self._waiting if self._used[one.holder] + one.size <= self._share]
            first = min(eligible, key=lambda one: self._used[one.holder], default=None)
            if first is None or not self._fits(first.holder, first.size):
                break
            self._waiting.remove(first)
            self._used[first.holder] += first.size
            granted.append(first)
        return granted

    def _grant(self, granted: list[_Waiting]) -> None:
        for one in granted:
            place = TakenRoom(self, one.holder, one.size)
            if one.place.set_running_or_notify_cancel():
                one.place.set_result(place)
            else:
                place.free()


class TakenRoom:
    """A part of a room."""

    def __init__(self, room: Room, holder: str, size: int) -> None:
        self.holder = holder
        self.size = size
        self.is_held = True
        self._room = room

    def free(self) -> None:
        """Give it back. From any thread, and more than once."""
        self._room.free(self)


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    holder: str
    size: int
    place: Future[TakenRoom]
