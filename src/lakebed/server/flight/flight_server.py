"""The Flight SQL server of a service: its calls, each answered by another module.

========================================  ===========================================================
call                                      result
========================================  ===========================================================
GetFlightInfo, GetSchema of a command     the columns of the answer, and a ticket for it
DoGet of a ticket                         rows of a statement, or the answer of the catalog
DoAction Create/ClosePreparedStatement    a statement as a handle (:mod:`lakebed.server.flight.prepared_statement`)
DoPut of CommandPreparedStatementQuery    values for its parameters: a new handle
DoPut of CommandStatementIngest           rows into a table (:mod:`lakebed.server.flight.ingest_call`)
DoPut of an update                        refused: SQL only reads
DoAction CancelFlightInfo, CancelQuery    ends a statement that runs in this process
========================================  ===========================================================

Calls share no state: handles and tickets are self-contained, so any service of the instance answers them. The plan made
for the columns of a statement is cached briefly for its rows (:mod:`lakebed.server.flight.kept_statements`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import flight

from lakebed import clock
from lakebed.errors import Code, UsageError
from lakebed.server.flight import catalog_answers, messages
from lakebed.server.flight.call_errors import call_errors
from lakebed.server.flight.callers import KEY, Callers, Handshakes, principal_of
from lakebed.server.flight.ingest_call import ingest
from lakebed.server.flight.prepared_statement import Statement, parameter_types
from lakebed.server.flight.statement_runs import StatementLimits, StatementRuns
from lakebed.server.security.principal import Open

if TYPE_CHECKING:
    from lakebed.server.security.audit import AuditLog
    from lakebed.server.security.principal import Authenticator, Principal
    from lakebed.server.service.service import Service

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
                raise Code.SQL_READ_ONLY(
                    "SQL only reads here; add rows with bulk ingest (adbc_ingest), and change tables with the HTTP API"
                )
            else:
                raise Code.REQUEST_INVALID(f"{name} takes no rows")
            writer.write(answer.SerializeToString())


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
