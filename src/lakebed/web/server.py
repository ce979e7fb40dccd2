"""Runs a web application until it is stopped.

uvicorn serves; :class:`BoundedProtocol` bounds the time and the size of the head of a request, which it does not.
Signals are the caller's. Errors: UsageError for an address or a certificate that cannot be used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lakebed.errors import Code

if TYPE_CHECKING:
    from litestar import Litestar

HEAD_S = 10.0
"""From a new connection, or the first byte of a further request, to the end of the headers."""

HEAD_BYTES = 64 * 1024

DRAIN_S = 30
"""How long requests that have begun may go on after the service was told to end."""

KEEP_ALIVE_S = 30
"""How long a connection is kept for a further request."""

CONNECTIONS_MAX = 1000
"""Beyond that, requests are answered with 503."""

Tls = tuple[Path, Path] | None
"""The files of the certificate chain and of its key."""

BACKLOG = 2048
"""Connections that wait to be accepted."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one. Raises UsageError if the address cannot be listened on."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise Code.ARGUMENT_INVALID(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another --host or --port"
        ) from error


def url_of(listening: socket.socket, tls: Tls = None) -> str:
    """Return the URL of the service that answers there."""
    host, port = listening.getsockname()[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class _Server(uvicorn.Server):
    """Ends when an event is set. Its caller handles signals."""

    def __init__(self, config: uvicorn.Config, asked: threading.Event) -> None:
        super().__init__(config)
        self._asked = asked

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the handlers as they are."""
        yield

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: whether to end."""
        return await super().on_tick(counter) or self._asked.is_set()


def serve(app: Litestar, listening: socket.socket, asked: threading.Event, tls: Tls = None) -> None:
    """Answer requests until the event is set; then end those that have begun. Raises UsageError for a bad ``tls``."""
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        log_level="warning",
        timeout_graceful_shutdown=DRAIN_S,
        timeout_keep_alive=KEEP_ALIVE_S,
        limit_concurrency=CONNECTIONS_MAX,
        access_log=False,
        server_header=False,
        ssl_certfile=None if tls is None else tls[0],
        ssl_keyfile=None if tls is None else tls[1],
    )
    try:
        config.load()
    except (OSError, ValueError) as error:
        # An SSLError is an OSError.
        raise Code.ARGUMENT_INVALID(
            f"--tls-cert, --tls-key: not a certificate chain and its key, in PEM, without a password ({error})"
        ) from error
    _Server(config, asked).run(sockets=[listening])


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach what listens on an address. Only localhost is known by name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class BoundedProtocol(HttpToolsProtocol):
    """One connection. A client that sends the head of a request slowly, or without end, is disconnected.

    uvicorn bounds neither its time nor, with httptools, its size, so that a few slow clients could hold all connections
    (slowloris). The body and the answer have the limits of :class:`~lakebed.web.limits.RequestLimits`.
    """

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
