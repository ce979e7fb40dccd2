"""Runs a web application until it is told to end."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from litestar import Litestar

DRAIN_S = 30
"""How long requests that have begun may go on after the service was told to end."""


def serve(app: Litestar, host: str, port: int) -> None:
    """Answer requests until SIGTERM or Ctrl-C; then end those that have begun."""
    config = uvicorn.Config(
        app, host, port, log_level="warning", timeout_graceful_shutdown=DRAIN_S, access_log=False, server_header=False
    )
    uvicorn.Server(config).run()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on an address. Names other than localhost are not looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
