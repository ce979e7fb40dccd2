"""``lakebed serve``.

Options are checked before the service listens. Requests end before maintenance does. Errors: UsageError.
Source: docs/service.md.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from lakebed.cli import protection, upkeep
from lakebed.cli.argument_types import WholeNumber
from lakebed.cli.grammar import command
from lakebed.cli.interrupts import stop_on_signal
from lakebed.cli.invocation import Invocation
from lakebed.model.foreign_errors import optional_imports

if TYPE_CHECKING:
    from lakebed.cli.protection import Protection
    from lakebed.cli.upkeep import Upkeep
    from lakebed.server.web.limits import RequestLimits

MIB = 1024 * 1024


def request_limits(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that bound requests, as one parameter ``limits``."""

    @click.option(
        "--allow-sources",
        "sources",
        metavar="URL",
        multiple=True,
        help="Requests may name files to ingest, and places for results, at this URL or below; they are used with the "
        "service's credentials. May be repeated. Default: none.",
    )
    @click.option(
        "--request-timeout",
        "request_s",
        metavar="SECONDS",
        default=60.0,
        show_default=True,
        type=click.FloatRange(min=0, min_open=True),
        help="The time limit for receiving a request, and for sending its answer.",
    )
    @click.option(
        "--sql-memory",
        "sql_memory_mib",
        metavar="MIB",
        default=1024,
        show_default=True,
        type=WholeNumber(min=1),
        help="Memory limit of one SQL statement. Four run at once, three of one principal.",
    )
    @click.option(
        "--answer-memory",
        "answer_memory_mib",
        metavar="MIB",
        default=1024,
        show_default=True,
        type=WholeNumber(min=64),
        help="Memory of all answers that clients have not read to the end; an open scan counts for 64.",
    )
    @functools.wraps(function)
    def with_limits(
        cli: Invocation,
        *,
        sources: tuple[str, ...],
        request_s: float,
        sql_memory_mib: int,
        answer_memory_mib: int,
        **others: Any,
    ) -> None:
        cli.leave_pandas_out()
        with optional_imports():
            from lakebed.server.web.limits import RequestLimits

        bounds = RequestLimits(
            sources=sources,
            request_s=request_s,
            sql_memory_bytes=sql_memory_mib * MIB,
            answer_memory_bytes=answer_memory_mib * MIB,
        )
        function(cli, limits=bounds, **others)

    return with_limits


flight_port = click.option(
    "--flight-port",
    type=WholeNumber(0, 65535),
    help="Answer Flight SQL as well, for ADBC and JDBC, on this port of the same host; 0: a free one.",
)


@command
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    default=8017,
    show_default=True,
    type=WholeNumber(0, 65535),
    help="The port; 0: a free one.",
)
@flight_port
@click.option("--public-metrics", is_flag=True, help="Answer /metrics, which names tables, without a token.")
@click.option(
    "--metrics-tables",
    default=100,
    show_default=True,
    type=WholeNumber(min=0),
    help="The number of tables with their own metrics.",
)
@click.option(
    "--read-cache",
    "read_cache_bytes",
    metavar="BYTES",
    type=WholeNumber(min=0),
    help="Size of the read cache. Default: 1 GiB.",
)
@click.option("--otlp", metavar="URL", help="Send metrics and traces to a collector, by OTLP/HTTP.")
@click.option(
    "--hook-commands",
    is_flag=True,
    help="Run the commands of hooks, as this user. Everyone who can write to the instance's storage can add one.",
)
@request_limits
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
    limits: RequestLimits,
    protection: Protection,
    upkeep: Upkeep,
) -> None:
    """Maintain all tables, answer queries over HTTP, and serve pages.

    Large operations run on Spark, if this machine has it or at --master; others run in worker processes.

    The first Ctrl-C or SIGTERM completes running requests and commits, and cancels the rest; the second kills.
    """
    with optional_imports():
        from lakebed.files.parquet.read_cache import set_read_cache_bytes
        from lakebed.server.monitoring.monitor import Monitor
        from lakebed.server.web import server
        from lakebed.server.web.app import make_app

        if flight_port is not None:
            # A package that is missing is named before the service starts.
            import_module("lakebed.server.flight.flight_server")
    if read_cache_bytes is not None:
        set_read_cache_bytes(read_cache_bytes)
    asked = threading.Event()
    instance = cli.instance()
    tls, authenticator = protection.tls, protection.authenticator(instance, host)
    service = upkeep.service(instance, hook_commands=hook_commands)
    monitor = Monitor(service, tables_max=metrics_tables, public=public_metrics)
    with ExitStack() as stack:
        stack.enter_context(stop_on_signal(asked.set))
        if otlp is not None:
            with optional_imports():
                from lakebed.server.monitoring.otlp import Otlp

            stack.enter_context(Otlp(otlp, service.instance, monitor))
        listening = stack.enter_context(server.listen(host, port))
        monitor.install()
        stack.enter_context(service)
        exposure = protection.exposure(is_open=authenticator is None, host=host)
        if flight_port is not None:
            from lakebed.server.flight.flight_server import FlightServer
            from lakebed.server.flight.statement_runs import StatementLimits

            bounds = StatementLimits.of_memory(limits.sql_memory_bytes)
            pair = None if tls is None else (tls[0].read_bytes(), tls[1].read_bytes())
            flight_server = FlightServer(
                service, host, flight_port, authenticator=authenticator, limits=bounds, tls=pair, audit=exposure.audit
            )
            monitor.watch(flight_server.statements)
            stack.callback(flight_server.stop)
            print(f"lakebed: Flight SQL at {flight_server.url}", file=sys.stderr)
        print(f"lakebed: serving {service.instance.url} at {server.url_of(listening, tls)}", file=sys.stderr)
        app = make_app(service, authenticator, limits, monitor=monitor, exposure=exposure)
        server.serve(app, listening, asked, tls)
