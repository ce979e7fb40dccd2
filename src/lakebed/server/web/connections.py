"""The connections of a server, and which of them is closed when there are too many.

A connection *waits* while the server waits for its client: for a request, for the rest of one, or for the client to
take an answer. It belongs to the principal of its last request, or to none yet. When there is one connection too
many, the holder with the most waiting connections loses the one that has waited longest. So a client that opens many
loses its own, and a connection that has just been opened has the time to send its request.

Only if no connection waits are there more than allowed; these are refused with 503, but for the requests of
orchestrators about health.

Core type: :class:`Connections`. For the loop of one server. Errors: ContentionError.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from lakebed.errors import Code

CONNECTION = "lakebed_connection"
"""The name of the connection in the scope of a request."""

SPARE = 10
"""One connection in so many is added for requests about health."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of the connections of a server."""

    connections: int = 1000
    head_s: float = 10.0
    """From a new connection, or the first byte of a further request, to the end of its headers."""
    head_bytes: int = 64 * 1024
    keep_alive_s: float = 30.0
    """How long a connection is kept for a further request."""
    linger_s: float = 2.0
    """After an answer to a request that had not arrived whole, what still arrives is dropped for so long: a connection
    that is closed with bytes unread is reset, and the client may lose the answer."""
    stall_s: float = 20.0
    """How long a client may take less than :attr:`stall_bytes` of what is ready for it."""
    stall_bytes: int = 64 * 1024
    unsent_bytes: int = 256 * 1024 * 1024
    """What is ready for the clients of all connections and not sent yet."""


class Closable(Protocol):
    """A connection, as this module needs it."""

    def abort(self) -> None:
        """Close it now."""

    @property
    def unsent_bytes(self) -> int:
        """The bytes that its client has not taken yet."""


class Connections:
    """The connections of one server."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._holders: dict[Closable, str | None] = {}
        self._counts: Counter[str | None] = Counter()
        self._waiting: dict[str | None, dict[Closable, None]] = {}
        self._stalled: dict[Closable, None] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def add(self, connection: Closable) -> None:
        """Add one that was opened, which waits. If that is too many, another is closed."""
        if len(self._holders) >= self.limits.connections:
            self._close_one(connection)
        self._holders[connection] = None
        self._counts[None] += 1
        self.waits(connection)

    def remove(self, connection: Closable) -> None:
        """Remove one that was closed. May be called again."""
        if connection in self._holders:
            self.works(connection)
            self._counts[self._holders.pop(connection)] -= 1
        self._stalled.pop(connection, None)

    def waits(self, connection: Closable) -> None:
        """Note that the server waits for the client."""
        if connection in self._holders:
            self._waiting.setdefault(self._holders[connection], {}).setdefault(connection)

    def works(self, connection: Closable) -> None:
        """Note that the client waits for the server."""
        if connection in self._holders:
            holder = self._holders[connection]
            waiting = self._waiting.get(holder, {})
            waiting.pop(connection, None)
            if not waiting:
                self._waiting.pop(holder, None)

    def belongs_to(self, connection: Closable, holder: str) -> None:
        """Note the principal of a request.

        Raises ContentionError if three in four connections are open, and requests of this principal work on more than
        half of all: the last ones are for others.
        """
        before = self._holders.get(connection)
        if before != holder and connection in self._holders:
            waited = connection in self._waiting.get(before, {})
            self.works(connection)
            self._counts[before] -= 1
            self._counts[holder] += 1
            self._holders[connection] = holder
            if waited:
                self.waits(connection)
        most = self.limits.connections - self.limits.connections // 4
        working = self._counts[holder] - len(self._waiting.get(holder, ()))
        if len(self._holders) > most and 2 * working > self.limits.connections:
            raise Code.SERVICE_BUSY(
                f"{working:,} requests of {holder} wait for answers, more than half of those that this service allows; "
                "send fewer at a time, or try again later"
            )

    @property
    def is_full(self) -> bool:
        """Whether requests are refused that are not about health."""
        return len(self._holders) > self.limits.connections

    def stalls(self, connection: Closable) -> None:
        """Note that a client does not take what is ready; the one that does so longest is closed if it is too much."""
        self._stalled.setdefault(connection)
        while sum(one.unsent_bytes for one in self._stalled) > self.limits.unsent_bytes:
            self._end(next(iter(self._stalled)))

    def takes(self, connection: Closable) -> None:
        """Note that the client has taken most of it."""
        self._stalled.pop(connection, None)

    def _close_one(self, newest: Closable) -> None:
        if self._waiting:
            most = max(self._waiting.values(), key=len)
            self._end(next(iter(most)))
        elif len(self._holders) >= self.limits.connections + max(1, self.limits.connections // SPARE):
            newest.abort()

    def _end(self, connection: Closable) -> None:
        self.remove(connection)
        connection.abort()
