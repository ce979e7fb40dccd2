"""SQL of a principal: over the tables that it may read, as it may see them.

Core functions: :func:`run_statement`, :func:`execute_statement`. With limits, a query runs in a worker process with the
same roles (:func:`main`): the process of the service never parses, plans or evaluates it. Of a statement that changes
something it reads the head, and writes the rows of the query.

Errors: as :meth:`lakebed.table.instance.Instance.sql`; a table that the principal may not read is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, assert_never

from lakebed.engine.change_statements import (
    AlterStatement,
    CreateIndexStatement,
    CreateTableStatement,
    DeleteStatement,
    DropStatement,
    InsertStatement,
    MergeStatement,
    TruncateStatement,
    UpdateStatement,
    parse,
)
from lakebed.read.snapshot.restricted import RestrictedSnapshot
from lakebed.read.sql.limited import Limits, StatementWorker, run_limited
from lakebed.read.sql.query import SqlEngine
from lakebed.read.sql.spare_workers import SpareWorkers
from lakebed.server.security.principal import Permission, Principal
from lakebed.table import sql_worker
from lakebed.table.instance import Instance, table_in
from lakebed.table.statement_run import ChangeReport, execute

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from lakebed.read.snapshot.snapshot import Snapshot

_WORKER = __name__


def spare_workers(instance: Instance, count: int | None = None) -> SpareWorkers:
    """Workers that are started ahead, for the statements of any principal."""
    return SpareWorkers(instance.location, _WORKER, count)


def run_statement(
    principal: Principal, instance: Instance, statement: str, limits: Limits | None, spare: SpareWorkers | None = None
) -> pa.RecordBatchReader:
    """Return the rows of a query over the tables that the principal may read; as :meth:`Instance.sql` otherwise.

    With limits, it runs in a process of its own, which is killed at a limit, or when the reader is closed or dropped:
    one of the ``spare`` workers of the instance, or a new one. Without limits, it runs in this process: only for a
    process that serves one caller.
    """
    if limits is None:
        return engine_of(principal, instance).run(statement, instance.sql_pool_bytes())
    worker = StatementWorker(instance.location, _WORKER) if spare is None else spare.take()
    return run_limited(worker, statement, limits, principal=principal.to_json())


def execute_statement(
    principal: Principal,
    instance: Instance,
    text: str,
    rows: Callable[[str], pa.RecordBatchReader],
    commit_id: str | None = None,
) -> ChangeReport:
    """Run a statement that changes something, as :meth:`Instance.execute`; ``rows`` runs its queries as the principal.

    Raises AccessError unless the principal may write the table, or administer what CREATE, DROP and ALTER name.
    """
    statement = parse(text)
    match statement:
        case CreateIndexStatement():
            principal.require(Permission.ADMIN, statement.index)
            principal.require(Permission.ADMIN, statement.table)
            # Its entries are of all rows.
            principal.require_all_rows(statement.table)
        case DropStatement():
            principal.require_drop(instance, statement.name)
        case AlterStatement():
            principal.require(Permission.ADMIN, statement.table)
            if statement.new_name is not None:
                principal.require(Permission.ADMIN, statement.new_name)
        case CreateTableStatement():
            principal.require(Permission.ADMIN, statement.table)
        case InsertStatement() | UpdateStatement() | DeleteStatement() | MergeStatement() | TruncateStatement():
            principal.require(Permission.WRITE, statement.table)
        case _:
            assert_never(statement)
    return execute(instance, text, rows, commit_id=commit_id)


def engine_of(principal: Principal, instance: Instance) -> SqlEngine:
    """Return an engine that knows the tables of the principal, and no others."""

    def snapshot_of(name: str) -> Snapshot | RestrictedSnapshot | None:
        table = table_in(name)
        if principal.permission(table) is None:
            return None
        found = instance.snapshot_named(name)
        policy = principal.policy(table)
        return found if found is None or policy is None else RestrictedSnapshot(found, policy)

    return SqlEngine(snapshot_of, lambda: principal.visible(instance.tables()))


def main() -> NoReturn:
    """Answer the request on stdin, as the worker of one statement, and end the process."""

    def engine(instance: Instance, request: Any) -> tuple[SqlEngine, int]:
        return engine_of(Principal.from_json(request["principal"]), instance), instance.sql_pool_bytes()

    sql_worker.main(engine)
