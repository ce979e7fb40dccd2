"""``lakebed serve``, and its options for maintenance, access control and TLS.

Options are checked before the service listens. Requests end before maintenance does. Errors: UsageError for options
that exclude each other, for files that cannot be used, for a period that is none, and for an address that other
machines can reach without authentication. Source: docs/service.md, docs/security.md.
"""

from __future__ import annotations

import functools
import gc
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakebed.cli import options
from lakebed.cli.grammar import WholeNumber, command, name_value
from lakebed.cli.interrupts import stop_on_signal
from lakebed.cli.invocation import Invocation
from lakebed.errors import Code
from lakebed.model.foreign_errors import optional_imports
from lakebed.model.operations import OPERATIONS

if TYPE_CHECKING:
    from lakebed.server.flight.flight_server import FlightServer
    from lakebed.server.monitoring.monitor import Monitor
    from lakebed.server.monitoring.otlp import Otlp
    from lakebed.server.security.audit import AuditLog
    from lakebed.server.security.principal import Authenticator
    from lakebed.server.security.stored import AccessList
    from lakebed.server.service.plan import ServiceLimits
    from lakebed.server.service.service import Service
    from lakebed.server.web.request_authentication import Exposure
    from lakebed.server.web.waiting import RequestLimits
    from lakebed.table.instance import Instance
    from lakebed.upkeep.publish.catalogs import Target


def _period(text: str) -> tuple[str, float]:
    name, _, seconds = text.partition("=")
    if name in OPERATIONS:
        with suppress(ValueError):
            return name, float(seconds)
    raise click.BadParameter(f"{text!r} is not OPERATION=SECONDS; operations: {', '.join(OPERATIONS)}")


_LOG = logging.getLogger("lakebed.service")


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The options of a service's maintenance."""

    maintains: bool
    launcher: str | None
    memory_bytes: int | None
    limits: ServiceLimits
    idle_s: float
    catalogs: tuple[Target, ...] = ()

    def service(self, instance: Instance, *, hook_commands: bool = False, followers: bool = False) -> Service:
        """Return the service, not started. It logs failures, each with its time."""
        with optional_imports():
            from lakebed.server.service.service import Service

        return Service(
            instance,
            launcher=self.launcher,
            memory_bytes=self.memory_bytes,
            idle_s=self.idle_s,
            limits=self.limits,
            maintain=self.maintains,
            hook_commands=hook_commands,
            followers=followers,
            catalogs=self.catalogs,
            report=_LOG.warning,
        )


def upkeep(function: Callable[..., None]) -> Callable[..., None]:
    """Return the options of a service's maintenance, as one parameter ``upkeep``."""

    @click.option("--no-maintenance", is_flag=True, help="Answer requests only, without maintenance.")
    @options.launcher
    @options.memory
    @click.option(
        "--at-once",
        default=2,
        show_default=True,
        type=WholeNumber(1, 1000),
        help="Concurrent operations that add rows, and as many that compact, split or collect garbage.",
    )
    @click.option(
        "--follow",
        "follow_s",
        metavar="SECONDS",
        default=1.0,
        show_default=True,
        type=click.FloatRange(0.01, 86_400),
        help="How often to check a table for new versions; an idle table is checked up to 60 times less often.",
    )
    @click.option(
        "--period",
        "periods",
        metavar="OPERATION=SECONDS",
        multiple=True,
        type=_period,
        help="The least time between two runs on a table; may be repeated.",
    )
    @click.option(
        "--idle",
        "idle_s",
        metavar="SECONDS",
        default=300.0,
        show_default=True,
        type=click.FloatRange(min=0),
        help="Stop Spark and worker processes after this time without work.",
    )
    @options.iceberg_catalogs("--iceberg-catalog", "Push published tables to it too")
    @functools.wraps(function)
    def with_upkeep(
        *args: Any,
        no_maintenance: bool,
        launcher: str | None,
        memory_bytes: int | None,
        at_once: int,
        follow_s: float,
        periods: Sequence[tuple[str, float]],
        idle_s: float,
        catalogs: tuple[str, ...],
        **others: Any,
    ) -> None:
        limits = _limits(at_once, follow_s, dict(periods))
        targets = options.targets(catalogs)
        given = Upkeep(not no_maintenance, launcher, memory_bytes, limits, idle_s, targets)
        function(*args, upkeep=given, **others)

    return with_upkeep


def _limits(at_once: int, follow_s: float, periods: dict[str, float]) -> ServiceLimits:
    from lakebed.server.service.plan import ServiceLimits, default_periods

    for operation, seconds in periods.items():
        if not 0 <= seconds <= 10**9:
            raise Code.ARGUMENT_INVALID(f"--period {operation}={seconds}: must lie between 0 and 1000000000 seconds")
    every = default_periods() | periods
    return ServiceLimits(at_once=at_once, follow_s=follow_s, follow_max_s=60 * follow_s, periods=every)


_FILE = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True)
class Protection:
    """The values of the options."""

    tls_cert: Path | None
    tls_key: Path | None
    jwks: Path | None
    issuer: str | None
    audience: str | None
    jwt_roles: tuple[tuple[str, str], ...]
    roles_claim: str
    name_claim: str
    origins: tuple[str, ...]
    audit_place: str | None
    iceberg_properties: Path | None

    @property
    def tls(self) -> tuple[Path, Path] | None:
        """The certificate and its key. Raises UsageError if one is missing."""
        for option, path in (("--tls-cert", self.tls_cert), ("--tls-key", self.tls_key)):
            if path is not None and not path.is_file():
                raise Code.ARGUMENT_INVALID(f"{option} {path}: there is no such file")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise Code.ARGUMENTS_CONFLICT("--tls-cert and --tls-key go together; give both, or neither")
        return None if self.tls_cert is None or self.tls_key is None else (self.tls_cert, self.tls_key)

    def authenticator(self, instance: Instance, host: str) -> Authenticator | None:
        """Return the authenticator of requests; None for a service on this machine of an instance without tokens.

        Raises UsageError for an address that others can reach, if there would be no authentication.
        """
        with optional_imports():
            from lakebed.server.security.authentication import BearerAuthenticator
            from lakebed.server.security.stored import AccessList
            from lakebed.server.web.server import is_loopback

        access = AccessList(instance.storage)
        identities = self._identities(access)
        if self.jwks is None and not access.any_tokens:
            access.close()
            if is_loopback(host):
                return None
            raise Code.AUTHENTICATION_MISSING(
                f"--host {host} can be reached from other machines, and the instance has no token: create one with "
                "`lakebed token create NAME --role admin`, give --jwks, or leave out --host"
            )
        return BearerAuthenticator(access, identities)

    def exposure(self, *, is_open: bool, host: str) -> Exposure:
        """Return the additions of HTTP to every request. Raises UsageError for an audit log that cannot be written."""
        with optional_imports():
            from lakebed.server.web.request_authentication import Exposure

        names = frozenset({"localhost", "127.0.0.1", "::1", host}) if is_open else None
        return Exposure(names, self.origins, self._audit(), self._iceberg_properties())

    def _iceberg_properties(self) -> dict[str, str]:
        """Return the properties in the file. Raises UsageError, without a value, for one that has something else."""
        if self.iceberg_properties is None:
            return {}
        import msgspec

        try:
            return msgspec.json.decode(self.iceberg_properties.read_bytes(), type=dict[str, str])
        except (OSError, msgspec.MsgspecError) as error:
            raise Code.ARGUMENT_INVALID(
                f"--iceberg-properties {self.iceberg_properties}: not a file with a JSON object of texts, such as "
                f'{{"s3.endpoint": "https://store.example"}} ({error})'
            ) from error

    def _audit(self) -> AuditLog | None:
        from lakebed.server.security.audit import AuditLog

        return None if self.audit_place is None else AuditLog(self.audit_place)

    def _identities(self, access: AccessList) -> Any:
        if self.jwks is None:
            if self.issuer or self.audience or self.jwt_roles:
                raise Code.ARGUMENTS_CONFLICT("options that begin with --jwt- need --jwks; add it, or leave them out")
            return None
        if self.issuer is None or self.audience is None or not self.jwt_roles:
            raise Code.ARGUMENTS_CONFLICT(
                "--jwks needs --jwt-issuer, --jwt-audience and at least one --jwt-role VALUE=ROLE: without them, "
                "tokens for other services would be accepted, or no user would have a role"
            )
        with optional_imports():
            from lakebed.server.security.identity_tokens import IdentityRules, IdentityTokens

        rules = IdentityRules(self.issuer, self.audience, dict(self.jwt_roles), self.roles_claim, self.name_claim)
        access.check_roles(dict(self.jwt_roles).values())
        return IdentityTokens(self.jwks, rules, access)


_OPTIONS = (
    click.option("--tls-cert", type=_FILE, help="Answer HTTPS with this certificate chain, in PEM."),
    click.option("--tls-key", type=_FILE, help="The private key of the certificate, in PEM."),
    click.option("--jwks", type=_FILE, help="Accept JWTs that a key of this key set (JWKS) has signed."),
    click.option("--jwt-issuer", "issuer", metavar="URL", help="The issuer that JWTs must name."),
    click.option("--jwt-audience", "audience", metavar="TEXT", help="The audience that JWTs must name."),
    click.option(
        "--jwt-role",
        "jwt_roles",
        metavar="VALUE=ROLE",
        type=name_value,
        multiple=True,
        help="The role for a value of the claim. May be repeated.",
    ),
    click.option("--jwt-roles-claim", "roles_claim", default="roles", show_default=True, help="The claim with roles."),
    click.option("--jwt-name-claim", "name_claim", default="sub", show_default=True, help="The claim with the name."),
    click.option(
        "--cors-origin", "origins", metavar="ORIGIN", multiple=True, help="Let pages of this origin use the API."
    ),
    click.option(
        "--audit-log",
        "audit_place",
        metavar="FILE",
        help="Log each request and its principal to this file, or - for stderr.",
    ),
    click.option(
        "--iceberg-properties",
        type=_FILE,
        help="For Iceberg clients that read all (`lakebed docs open`).",
    ),
)


def protection(function: Callable[..., None]) -> Callable[..., None]:
    """Return the options as one parameter ``protection``."""

    @functools.wraps(function)
    def with_protection(*args: Any, **given: Any) -> None:
        names = Protection.__dataclass_fields__
        own = Protection(**{name: value for name, value in given.items() if name in names})
        function(*args, protection=own, **{name: value for name, value in given.items() if name not in names})

    wrapped: Callable[..., None] = with_protection
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


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
            from lakebed.server.web.waiting import RequestLimits

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
    help="Answer Flight SQL on this port (0: free).",
)


@dataclass(frozen=True, slots=True)
class S3Options:
    """The options of the object gateway."""

    port: int
    alone: bool
    cache_bytes: int


def s3_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the object gateway, as one parameter ``s3``: None without it."""

    @click.option(
        "--s3",
        "s3_port",
        metavar="PORT",
        type=WholeNumber(0, 65535),
        help="Show tables as an S3 bucket on this port (0: free).",
    )
    @click.option("--s3-only", is_flag=True, help="Serve the S3 bucket alone, without HTTP API and maintenance.")
    @click.option(
        "--s3-cache",
        "cache_bytes",
        metavar="BYTES",
        default=10 * 1024 * MIB,
        type=WholeNumber(min=1),
        help="Disk for files that the bucket rewrites. Default: 10 GiB.",
    )
    @functools.wraps(function)
    def with_s3(*args: Any, s3_port: int | None, s3_only: bool, cache_bytes: int, **others: Any) -> None:
        if s3_only and s3_port is None:
            raise Code.ARGUMENTS_CONFLICT("--s3-only needs the port of the bucket: add --s3 PORT")
        if s3_only and others["flight_port"] is not None:
            raise Code.ARGUMENTS_CONFLICT("--s3-only and --flight-port exclude each other; give one")
        function(*args, s3=None if s3_port is None else S3Options(s3_port, s3_only, cache_bytes), **others)

    return with_s3


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
@s3_options
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
@click.option(
    "--followers",
    is_flag=True,
    help="Run followers (`lakebed follow create`), with the passwords of this environment. Everyone who can write to "
    "the storage can add one.",
)
@request_limits
@protection
@upkeep
def serve(
    cli: Invocation,
    *,
    host: str,
    port: int,
    flight_port: int | None,
    s3: S3Options | None,
    public_metrics: bool,
    metrics_tables: int,
    read_cache_bytes: int | None,
    otlp: str | None,
    hook_commands: bool,
    followers: bool,
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

        # A package that is missing is named before the service starts.
        for name in ("flight.flight_server",) * (flight_port is not None) + ("gateway.gateway",) * (s3 is not None):
            import_module(f"lakebed.server.{name}")
    if read_cache_bytes is not None:
        set_read_cache_bytes(read_cache_bytes)
    asked = threading.Event()
    instance = cli.instance_to_serve()
    is_alone = s3 is not None and s3.alone
    tls, authenticator = protection.tls, None if is_alone else protection.authenticator(instance, host)
    service = upkeep.service(instance, hook_commands=hook_commands, followers=followers)
    monitor = Monitor(service, tables_max=metrics_tables, public=public_metrics)
    if cli.owns_process:
        # Full collections would look at every object of all modules each time: a pause of 40 ms.
        gc.freeze()
    with ExitStack() as stack:
        stack.enter_context(stop_on_signal(asked.set))
        if otlp is not None:
            stack.enter_context(_otlp(otlp, service.instance, monitor))
        listening = None if is_alone else stack.enter_context(server.listen(host, port))
        gateway_listening = None if s3 is None else stack.enter_context(server.listen(host, s3.port))
        stack.enter_context(monitor.installed())
        if not is_alone:
            stack.enter_context(service)
        exposure = protection.exposure(is_open=authenticator is None, host=host)
        if flight_port is not None:
            stack.callback(_flight(service, monitor, (host, flight_port), (authenticator, limits, tls, exposure)).stop)
        if s3 is not None and gateway_listening is not None:
            gateway = _gateway(service, monitor, s3, limits, exposure)
            print(f"lakebed: S3 at {server.url_of(gateway_listening, tls)}, bucket lakebed", file=sys.stderr)
            if listening is None:
                server.serve(gateway, gateway_listening, asked, tls)
                return
            stack.enter_context(_beside(asked, server.serve, gateway, gateway_listening, asked, tls))
        assert listening is not None
        print(f"lakebed: serving {service.instance.url} at {server.url_of(listening, tls)}", file=sys.stderr)
        app = make_app(service, authenticator, limits, monitor=monitor, exposure=exposure)
        server.serve(app, listening, asked, tls)


def _otlp(url: str, instance: Instance, monitor: Monitor) -> Otlp:
    with optional_imports():
        from lakebed.server.monitoring.otlp import Otlp

    return Otlp(url, instance, monitor)


@contextmanager
def _beside(asked: threading.Event, function: Callable[..., object], *arguments: object) -> Iterator[None]:
    """Run a function that returns once the event is set, in a thread beside the block."""
    thread = threading.Thread(target=function, args=arguments, name="lakebed-gateway")
    thread.start()
    try:
        yield
    finally:
        asked.set()
        thread.join()


def _flight(
    service: Service,
    monitor: Monitor,
    address: tuple[str, int],
    rules: tuple[Authenticator | None, RequestLimits, tuple[Path, Path] | None, Exposure],
) -> FlightServer:
    """Return the Flight SQL server of a service, which runs."""
    from lakebed.server.flight.flight_server import FlightServer
    from lakebed.server.flight.statement_runs import StatementLimits

    authenticator, limits, tls, exposure = rules
    bounds = StatementLimits.of_memory(limits.sql_memory_bytes)
    pair = None if tls is None else (tls[0].read_bytes(), tls[1].read_bytes())
    started = FlightServer(
        service, *address, authenticator=authenticator, limits=bounds, tls=pair, audit=exposure.audit
    )
    monitor.watch(started.statements)
    print(f"lakebed: Flight SQL at {started.url}", file=sys.stderr)
    return started


def _gateway(service: Service, monitor: Monitor, s3: S3Options, limits: RequestLimits, exposure: Exposure) -> Any:
    """Return the object gateway to the instance of a service."""
    from lakebed.server.gateway.gateway import make_gateway
    from lakebed.server.security.access_keys import AccessKeys
    from lakebed.server.security.stored import AccessList

    storage = service.instance.storage
    keys = AccessKeys(storage, AccessList(storage))
    return make_gateway(service, keys, limits, monitor, exposure.audit, cache_bytes=s3.cache_bytes)
