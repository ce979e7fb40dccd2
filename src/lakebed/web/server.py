"""Runs a web application until it is told to end."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from lakebed.errors import Code
from lakebed.web.bounded_protocol import BoundedProtocol

if TYPE_CHECKING:
    from litestar import Litestar

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
    """A socket that listens; port 0 takes a free one. Raises UsageError if the address cannot be listened on."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise Code.ARGUMENT_INVALID(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another --host or --port"
        ) from error


def url_of(listening: socket.socket, tls: Tls = None) -> str:
    """The URL of the service that answers there."""
    host, port = listening.getsockname()[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class _Server(uvicorn.Server):
    """Ends when an event is set; whoever sets it handles signals."""

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
    """Whether only this machine can reach what listens on an address. Names other than localhost are not looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
