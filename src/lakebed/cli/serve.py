"""``lakebed serve``."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from lakebed.cli import flight_door, protection, request_limits, upkeep
from lakebed.cli.argument_types import WholeNumber
from lakebed.cli.grammar import command
from lakebed.cli.interrupts import stop_on_signal
from lakebed.cli.invocation import Invocation
from lakebed.model.foreign_errors import optional_imports

if TYPE_CHECKING:
    from lakebed.cli.protection import Protection
    from lakebed.cli.request_limits import GivenLimits
    from lakebed.cli.upkeep import Upkeep


@command
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    default=8017,
    show_default=True,
    type=WholeNumber(0, 65535),
    help="Its port; 0: a free one.",
)
@flight_door.flight_port
@click.option("--public-metrics", is_flag=True, help="Answer /metrics without a token, on any address.")
@click.option(
    "--metrics-tables",
    default=100,
    show_default=True,
    type=WholeNumber(min=0),
    help="Tables with metrics of their own.",
)
@click.option(
    "--read-cache",
    "read_cache_bytes",
    metavar="BYTES",
    type=WholeNumber(min=0),
    help="What the read cache may hold. Default: 1 GiB.",
)
@click.option("--otlp", metavar="URL", help="Send metrics and traces to a collector, by OTLP/HTTP.")
@click.option(
    "--hook-commands",
    is_flag=True,
    help="Run the commands of hooks, as this user. Everyone who can write to the instance's storage can add one.",
)
@request_limits.request_limits
@protection.protection
@upkeep.upkeep
def serve(
    cli: Invocation,
    *,
    host: str,
    port: int,
    flight_port: int | None,
    public_metrics: bool,
    metrics_tables: int,
    read_cache_bytes: int | None,
    otlp: str | None,
    hook_commands: bool,
    limits: GivenLimits,
    protection: Protection,
    upkeep: Upkeep,
) -> None:
    """Maintain all tables, answer queries over HTTP, and show pages.

    Work of many bytes is done by Spark if this machine has it, or where --master says; other work by worker processes.

    The first Ctrl-C or SIGTERM ends requests and commits that have begun, and cancels the rest; the second kills.
    """
    with optional_imports():
        from lakebed.monitoring.monitor import Monitor
        from lakebed.parquet.read_cache import set_read_cache_bytes
        from lakebed.web import server
        from lakebed.web.app import make_app

    if read_cache_bytes is not None:
        set_read_cache_bytes(read_cache_bytes)
    asked = threading.Event()
    instance = cli.instance()
    tls, authenticator = protection.tls, protection.authenticator(instance, host)
    service = upkeep.service(instance, hook_commands=hook_commands)
    monitor = Monitor(service, tables_max=metrics_tables, public=public_metrics or server.is_loopback(host))
    with ExitStack() as stack:
        stack.enter_context(stop_on_signal(asked.set))
        if otlp is not None:
            with optional_imports():
                from lakebed.monitoring.otlp import Otlp

            stack.enter_context(Otlp(otlp, service.instance, monitor))
        listening = stack.enter_context(server.listen(host, port))
        monitor.install()
        stack.enter_context(service)
        exposure, bounds = protection.exposure(is_open=authenticator is None, host=host), limits.in_force()
        flight = flight_door.flight_door(
            service,
            host,
            flight_port,
            authenticator=authenticator,
            tls=tls,
            audit=exposure.audit,
            sql_memory_bytes=bounds.sql_memory_bytes,
        )
        stack.enter_context(flight)
        print(f"lakebed: serving {service.instance.url} at {server.url_of(listening, tls)}", file=sys.stderr)
        app = make_app(service, authenticator, bounds, monitor=monitor, exposure=exposure)
        server.serve(app, listening, asked, tls)
