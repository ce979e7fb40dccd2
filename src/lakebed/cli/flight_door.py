"""The door of ``lakebed serve`` for Flight SQL: its option, and the server while the service runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from lakebed.cli.argument_types import WholeNumber
from lakebed.model.foreign_errors import optional_imports

if TYPE_CHECKING:
    from pathlib import Path

    from lakebed.security.audit import AuditLog
    from lakebed.security.principal import Authenticator
    from lakebed.service.service import Service

flight_port = click.option(
    "--flight-port",
    type=WholeNumber(0, 65535),
    help="Answer Flight SQL as well, for ADBC and JDBC, on this port of the same host; 0: a free one.",
)


@contextmanager
def flight_door(
    service: Service,
    host: str,
    port: int | None,
    *,
    authenticator: Authenticator | None,
    tls: tuple[Path, Path] | None,
    audit: AuditLog | None,
    sql_memory_bytes: int,
) -> Iterator[None]:
    """Answer Flight SQL during the block, if a port is given."""
    if port is None:
        yield
        return
    with optional_imports():
        from lakebed.flight.flight_server import FlightServer
        from lakebed.flight.statement_runs import StatementLimits

    pair = None if tls is None else (tls[0].read_bytes(), tls[1].read_bytes())
    limits = StatementLimits.of_memory(sql_memory_bytes)
    door = FlightServer(service, host, port, authenticator=authenticator, limits=limits, tls=pair, audit=audit)
    print(f"lakebed: Flight SQL at {door.url}", file=sys.stderr)
    try:
        yield
    finally:
        door.stop()
