"""The Flight SQL server of a service: its calls, and who makes them.

========================================  ===========================================================
call                                      result
========================================  ===========================================================
GetFlightInfo, GetSchema of a command     the columns of the answer, and a ticket for it
DoGet of a ticket                         rows of a statement, or the answer of the catalog
DoAction Create/ClosePreparedStatement    a statement as a handle (:class:`Statement`)
DoPut of CommandPreparedStatementQuery    values for its parameters: a new handle
DoPut of CommandStatementIngest           rows into a table
DoPut of an update                        a statement that changes something: the count of its rows
DoAction CancelFlightInfo, CancelQuery    ends a statement that runs in this process
========================================  ===========================================================

Calls share no state: handles and tickets are self-contained, so any service of the instance answers them.

The principal of a call is found from its header ``authorization`` by the service's authenticator. Drivers with a user
name and a password send them once, in a handshake: the password is the token, the user name is ignored, and the answer
has the bearer header for all further calls.

Bulk ingest of ADBC adds the rows of a stream to a table, in one commit. A missing table is created if the metadata of
the stream's schema names its key columns: ``lakebed.row_key`` and ``lakebed.sort_key``, names separated by commas. A
repeat with the same ``lakebed.commit_id`` adds nothing. The stream of a disconnected caller ends like a complete one:
in gRPC only the state of the call differs. So a call that was cancelled by then adds nothing.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import flight

from lakebed import clock
from lakebed.engine.change_statements import changes
from lakebed.errors import Code, UsageError
from lakebed.model.schema import Schema
from lakebed.server.flight import catalog_answers, messages
from lakebed.server.flight.catalog_answers import CATALOG, SCHEMA
from lakebed.server.flight.messages import TableExists
from lakebed.server.flight.statement_runs import Statement, StatementLimits, StatementRuns, call_errors, parameter_types
from lakebed.server.security.principal import Open, Permission

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakebed.server.security.audit import AuditLog
    from lakebed.server.security.principal import Authenticator, Principal
    from lakebed.server.service.service import Service
    from lakebed.table.instance import Instance
    from lakebed.table.table import Table


KEY = "principal"
"""The name of the middleware that has the :class:`Caller` of a call."""

_HEADER = "authorization"


class Caller(flight.ServerMiddleware):  # type: ignore[misc]
    """The principal of one call; writes the line of the audit log when the call ends."""

    def __init__(self, principal: Principal, bearer: str | None, method: str, audit: AuditLog | None) -> None:
        self.principal = principal
        self.statement: str | None = None
        self._bearer = bearer
        self._method = method
        self._audit = audit
        self._began_s = clock.monotonic_s()

    def sending_headers(self) -> dict[str, str]:
        """Return the header for further calls if a password was sent."""
        return {} if self._bearer is None else {_HEADER: self._bearer}

    def call_completed(self, exception: BaseException | None) -> None:
        """Write the line of the audit log."""
        if self._audit is not None:
            self._audit.record(
                principal=self.principal.name,
                interface="flight",
                method=self._method,
                path="",
                statement=self.statement,
                status="ok" if exception is None else type(exception).__name__,
                seconds=clock.monotonic_s() - self._began_s,
                peer=None,
            )


class Callers(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Authenticates every call before it begins."""

    def __init__(self, authenticator: Authenticator, audit: AuditLog | None = None) -> None:
        self._authenticator = authenticator
        self._audit = audit

    def start_call(self, info: Any, headers: Mapping[str, Sequence[Any]]) -> Caller:
        """Return the caller. Raises FlightUnauthenticatedError."""
        with call_errors():
            found = [value for name, values in headers.items() if name.lower() == _HEADER for value in values]
            if len(found) > 1:
                raise Code.REQUEST_INVALID(f"the call has two headers {_HEADER}; send one")
            given = found[0] if found else None
            bearer = bearer_of_password(given) if given is not None else None
            principal = self._authenticator.authenticate(bearer or given)
            return Caller(principal, bearer, info.method.name.lower(), self._audit)


class Handshakes(flight.ServerAuthHandler):  # type: ignore[misc]
    """Accepts the handshake, whose header :class:`Callers` has checked."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Send nothing: the token is in a header of the answer."""

    def is_valid(self, token: bytes) -> str:  # noqa: ARG002 - calls are authenticated by their header
        """Accept any token: an empty name of the peer."""
        return ""


def bearer_of_password(header: str) -> str | None:
    """Return the bearer header whose token is the password of a Basic one; None for others. Raises AccessError."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        # Some drivers omit the padding.
        bare = encoded.strip().rstrip("=")
        data = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
        _, separator, password = data.decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        separator = password = ""
    if not separator or not password:
        raise Code.NOT_AUTHENTICATED("the Basic authorization has no password; give a token of this service as one")
    return f"Bearer {password}"


def principal_of(context: Any) -> Principal:
    """Return the principal of a call."""
    principal: Principal = context.get_middleware(KEY).principal
    return principal


_ROW_KEY, _SORT_KEY, _COMMIT_ID = "lakebed.row_key", "lakebed.sort_key", "lakebed.commit_id"


def ingest(instance: Instance, principal: Principal, command: Any, rows: Any, is_cancelled: Callable[[], bool]) -> int:
    """Add the rows, and return their number.

    Raises as :meth:`Table.write` and :meth:`Instance.create_table`; FlightCancelledError if the call was cancelled
    before the end of the rows.
    """
    _check_place(command)
    metadata = {key.decode(): value.decode() for key, value in (rows.schema.metadata or {}).items()}
    metadata |= {option.key: option.value for option in command.options}
    counted = _Counted(rows, is_cancelled)
    reader = counted.begun()
    table = _target_table(instance, principal, command, rows.schema, metadata)
    table.write(reader, commit_id=metadata.get(_COMMIT_ID))
    return counted.rows


def _check_place(command: Any) -> None:
    if command.temporary:
        raise Code.ARGUMENT_INVALID("there are no temporary tables; ingest into a table")
    if (command.HasField("catalog") and command.catalog not in ("", CATALOG)) or (
        command.HasField("schema") and command.schema not in ("", SCHEMA)
    ):
        raise Code.TABLE_NOT_FOUND(f"all tables are in {CATALOG}.{SCHEMA}; leave catalog and schema out")


def _target_table(
    instance: Instance, principal: Principal, command: Any, arrow: pa.Schema, metadata: dict[str, str]
) -> Table:
    """Return the table to write to, created if the command allows it."""
    options, name = command.table_definition_options, command.table
    if name in instance.tables():
        principal.require(Permission.WRITE, name)
        if options.if_exists == TableExists.REPLACE:
            raise Code.ARGUMENT_INVALID("a table cannot be replaced; drop it first, or append to it", table=name)
        if options.if_exists == TableExists.FAIL:
            raise Code.TABLE_EXISTS(f"a table named {name!r} exists already; append to it (mode='append')", table=name)
        return instance.table(name)
    if options.if_not_exist != TableExists.CREATE_IF_ABSENT:
        principal.require(Permission.WRITE, name)
        return instance.table(name)
    principal.require(Permission.ADMIN, name)
    row_key = _listed_names(metadata, _ROW_KEY)
    if not row_key:
        raise Code.ARGUMENT_MISSING(
            f"table {name!r} is created by its first rows, and needs a row key: put {_ROW_KEY}, column names with "
            f"commas between, into the metadata of the rows' schema; or create the table first, and append to it",
            table=name,
        )
    return instance.create_table(name, Schema.from_arrow(arrow, row_key, _listed_names(metadata, _SORT_KEY)))


def _listed_names(metadata: dict[str, str], key: str) -> list[str]:
    return [name.strip() for name in metadata.get(key, "").split(",") if name.strip()]


class _Counted:
    """Counts the batches of a stream. Raises FlightCancelledError at the end of a stream that was cut off."""

    def __init__(self, given: Any, is_cancelled: Callable[[], bool]) -> None:
        self.rows = 0
        self._given = given
        self._is_cancelled = is_cancelled

    def begun(self) -> pa.RecordBatchReader:
        """Return the stream once its first batch has arrived: a caller that disconnects earlier creates no table."""
        batches = self._batches()
        first = list(islice(batches, 1))
        return pa.RecordBatchReader.from_batches(self._given.schema, chain(first, batches))

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for chunk in self._given:
            if chunk.data is not None:
                self.rows += chunk.data.num_rows
                yield chunk.data
        if self._is_cancelled():
            raise flight.FlightCancelledError("the caller went away before the end of the rows; nothing was added")


_ACTIONS = {
    "CreatePreparedStatement": "Make a handle of a query.",
    "ClosePreparedStatement": "Accepted; a handle takes nothing.",
    "CancelFlightInfo": "End a statement that runs.",
    "CancelQuery": "The same for older drivers.",
}


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Answers calls from its construction to :meth:`stop`; :attr:`port` is that of the socket."""

    def __init__(  # noqa: PLR0913 - an address, its authentication, and limits
        self,
        service: Service,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        authenticator: Authenticator | None = None,
        limits: StatementLimits | None = None,
        tls: tuple[bytes, bytes] | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        """``tls`` has the certificate chain and the private key, as PEM. Raises UsageError for a port in use."""
        self._instance = service.instance
        bounds = limits or StatementLimits()
        # Without authentication all calls are of one principal.
        share = bounds.statements_max if isinstance(authenticator or Open(), Open) else None
        self._runs = StatementRuns(service.instance, bounds, service.spare_workers, share)
        self.statements = self._runs.room
        place = f"[{host}]" if ":" in host else host
        try:
            location = flight.Location.for_grpc_tls(place, port) if tls else flight.Location.for_grpc_tcp(place, port)
            super().__init__(
                location,
                auth_handler=Handshakes(),
                tls_certificates=[tls] if tls else None,
                middleware={KEY: Callers(authenticator or Open(), audit)},
            )
        except pa.ArrowException as error:
            raise Code.ARGUMENT_INVALID(
                f"cannot answer Flight SQL on {host} port {port}: {error}; choose another --host or --flight-port"
            ) from error
        self.url = f"grpc{'+tls' if tls else ''}://{place}:{self.port}"

    def running(self) -> int:
        """Return the number of running statements."""
        return self._runs.running()

    def stop(self) -> None:
        """End all statements, and return when no call is left."""
        self._runs.stop()
        self.shutdown()

    # -- questions ----------------------------------------------------------------------------------------------

    def place_of(self, context: Any, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:  # noqa: ARG002
        """Return the location of the rows of a command: this server, with a ticket."""
        with call_errors():
            name, command = messages.unpacked(descriptor.command or b"")
            if name in catalog_answers.ANSWERS:
                schema, ticket = catalog_answers.schema_of(name, command), descriptor.command
            else:
                # The columns come with the rows: finding them here would plan the statement twice.
                handle = _statement(name, command).run(clock.random_token()).handle
                schema, ticket = None, messages.packed("TicketStatementQuery", statement_handle=handle)
            return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(ticket, [])], -1, -1)

    get_flight_info = place_of
    """The name that PyArrow requires."""

    def get_schema(self, context: Any, descriptor: flight.FlightDescriptor) -> flight.SchemaResult:
        """Return the columns of the answer to a command."""
        with call_errors():
            name, command = messages.unpacked(descriptor.command or b"")
            if name in catalog_answers.ANSWERS:
                return flight.SchemaResult(catalog_answers.schema_of(name, command))
            return flight.SchemaResult(self._result_schema(principal_of(context), _statement(name, command)))

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        """Return the rows of a ticket."""
        with call_errors():
            principal = principal_of(context)
            name, command = messages.unpacked(ticket.ticket)
            if name in catalog_answers.ANSWERS:
                return flight.RecordBatchStream(catalog_answers.ANSWERS[name](command, self._instance, principal))
            if name != "TicketStatementQuery":
                raise Code.REQUEST_INVALID(f"{name} is not a ticket of this service; ask for its flight info first")
            statement = Statement.of(command.statement_handle)
            context.get_middleware(KEY).statement = statement.sql
            return self._runs.start(principal, statement.sql, ticket.ticket, context.is_cancelled)

    # -- actions ------------------------------------------------------------------------------------------------

    def list_actions(self, context: Any) -> list[tuple[str, str]]:  # noqa: ARG002 - Flight's signature
        """Return the actions that :meth:`do_action` accepts."""
        return list(_ACTIONS.items())

    def do_action(self, context: Any, action: flight.Action) -> Iterator[bytes]:
        """Prepare, close or cancel a statement."""
        with call_errors():
            body = action.body.to_pybytes()
            if action.type == "CreatePreparedStatement":
                return iter([self._prepared(principal_of(context), messages.unpacked(body)[1])])
            if action.type == "ClosePreparedStatement":
                return iter([])
            if action.type == "CancelFlightInfo":
                status = self._cancelled(messages.parsed("CancelFlightInfoRequest", body).info)
                return iter([messages.message("CancelFlightInfoResult", status=status).SerializeToString()])
            if action.type == "CancelQuery":
                status = self._cancelled(messages.parsed("FlightInfo", messages.unpacked(body)[1].info))
                return iter([messages.packed("ActionCancelQueryResult", result=status)])
            raise Code.REQUEST_INVALID(f"no action {action.type!r}; there are: {', '.join(_ACTIONS)}")

    def _prepared(self, principal: Principal, request: Any) -> bytes:
        statement = Statement(request.query)
        dataset = b""
        if changes(statement.query):
            types = parameter_types(statement.query, {}) if statement.parameters else []
            parameters = pa.schema([pa.field(f"parameter_{n}", kind) for n, kind in enumerate(types, 1)])
            return messages.packed(
                "ActionCreatePreparedStatementResult",
                prepared_statement_handle=statement.handle,
                dataset_schema=b"",
                parameter_schema=parameters.serialize().to_pybytes() if statement.parameters else b"",
            )
        try:
            dataset = self._result_schema(principal, statement).serialize().to_pybytes()
        except UsageError:
            # The columns may depend on the values of parameters.
            if not statement.parameters:
                raise
        parameters = pa.schema([])
        if statement.parameters:
            names = principal.visible(self._instance.tables())
            schemas = {
                name: principal.readable(self._instance.table(name)).schema for name in names if name in statement.query
            }
            types = parameter_types(statement.query, schemas)
            parameters = pa.schema([pa.field(f"parameter_{n}", kind) for n, kind in enumerate(types, 1)])
        return messages.packed(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=statement.handle,
            dataset_schema=dataset,
            parameter_schema=parameters.serialize().to_pybytes() if statement.parameters else b"",
        )

    def _result_schema(self, principal: Principal, statement: Statement) -> pa.Schema:
        if statement.parameters and not statement.values:
            # It cannot run before it has values.
            return self._runs.columns(principal, statement.sql_for_columns)
        return self._runs.prepare(principal, statement.sql)

    def _cancelled(self, info: Any) -> int:
        tickets = {endpoint.ticket.ticket for endpoint in info.endpoint}
        return messages.CANCELLED if self._runs.cancel(tickets) else messages.NOT_CANCELLABLE

    # -- rows in ------------------------------------------------------------------------------------------------

    def do_put(self, context: Any, descriptor: flight.FlightDescriptor, reader: Any, writer: Any) -> None:
        """Receive rows, or values of parameters."""
        with call_errors():
            name, command = messages.unpacked(descriptor.command or b"")
            if name == "CommandPreparedStatementQuery":
                bound = Statement.of(command.prepared_statement_handle).bound(_bound_rows(reader))
                answer = messages.message("DoPutPreparedStatementResult", prepared_statement_handle=bound.handle)
            elif name == "CommandStatementIngest":
                rows = ingest(self._instance, principal_of(context), command, reader, context.is_cancelled)
                answer = messages.message("DoPutUpdateResult", record_count=rows)
            elif name in ("CommandStatementUpdate", "CommandPreparedStatementUpdate"):
                count = self._updated(context, name, command, reader)
                answer = messages.message("DoPutUpdateResult", record_count=count)
            else:
                raise Code.REQUEST_INVALID(f"{name} takes no rows")
            writer.write(answer.SerializeToString())

    def _updated(self, context: Any, name: str, command: Any, reader: Any) -> int:
        """Run a statement that changes something; returns the number of rows, -1 where they are not counted."""
        if name == "CommandStatementUpdate":
            statement = Statement(command.query)
        else:
            statement = Statement.of(command.prepared_statement_handle)
            if statement.parameters:
                statement = statement.bound(_bound_rows(reader))
        context.get_middleware(KEY).statement = statement.sql
        report = self._runs.execute(principal_of(context), statement.sql)
        return -1 if report.rows is None else report.rows


def _statement(name: str, command: Any) -> Statement:
    """Return the statement of a command. Raises UsageError for a command of another kind."""
    if name == "CommandStatementQuery":
        return Statement(command.query)
    if name == "CommandPreparedStatementQuery":
        return Statement.of(command.prepared_statement_handle)
    raise Code.REQUEST_INVALID(f"{name} has no rows to get")


def _bound_rows(reader: Any) -> pa.Table:
    """Return the rows of bound values: one, or enough to show that there are more."""
    batches: list[pa.RecordBatch] = []
    for chunk in reader:
        if chunk.data is not None:
            batches.append(chunk.data)
        if sum(batch.num_rows for batch in batches) > 1:
            break
    return pa.Table.from_batches(batches, reader.schema)
