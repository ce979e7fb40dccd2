"""HTTP/1.1 with bounds on the head of a request: a client that sends it slowly, or without end, is disconnected.

uvicorn bounds neither its time nor, with httptools, its size, so that a few slow clients could hold all connections
(slowloris). The body and the answer have the limits of :class:`~lakebed.web.limits.RequestLimits`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_S = 10.0
"""From a new connection, or the first byte of a further request, to the end of the headers."""

HEAD_BYTES = 64 * 1024


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_end: asyncio.TimerHandle | None = None
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the head of the first request."""
        super().connection_made(transport)
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request, and disconnect if its head is too large."""
        super().data_received(data)
        if self._head_end is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._disconnect()

    def on_message_begin(self) -> None:
        """Wait for the head of a request, which has begun."""
        super().on_message_begin()
        self._begin_head()

    def on_headers_complete(self) -> None:
        """Stop waiting: the head is complete."""
        self._end_head()
        super().on_headers_complete()

    def _begin_head(self) -> None:
        self._end_head()
        self._head_bytes = 0
        self._head_end = self.loop.call_later(HEAD_S, self._disconnect)

    def _end_head(self) -> None:
        if self._head_end is not None:
            self._head_end.cancel()
            self._head_end = None

    def _disconnect(self) -> None:
        self._end_head()
        self.transport.abort()
