"""Runs a web application until it is told to end."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import uvicorn

from lakebed.errors import Code

if TYPE_CHECKING:
    from litestar import Litestar

DRAIN_S = 30
"""How long requests that have begun may go on after the service was told to end."""

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


def url_of(listening: socket.socket) -> str:
    """The URL of the service that answers there."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(app: Litestar, listening: socket.socket) -> None:
    """Answer requests until SIGTERM or Ctrl-C; then end those that have begun."""
    config = uvicorn.Config(
        app, log_level="warning", timeout_graceful_shutdown=DRAIN_S, access_log=False, server_header=False
    )
    # Once it has stopped, it raises the signal that told it to: that is the usual end of a service.
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on an address. Names other than localhost are not looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
