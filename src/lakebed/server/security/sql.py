"""SQL of a principal: over the tables that it may read, as it may see them.

Core function: :func:`run_statement`. With limits, the statement runs in a worker process with the same roles
(:func:`main`): the process of the service never parses, plans or evaluates it.

Errors: as :meth:`lakebed.table.instance.Instance.sql`; a table that the principal may not read is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from lakebed.read.snapshot.restricted import RestrictedSnapshot
from lakebed.read.sql.limited import Limits, StatementWorker, run_limited
from lakebed.read.sql.query import SqlEngine
from lakebed.read.sql.spare_workers import SpareWorkers
from lakebed.server.security.principal import Principal
from lakebed.table import sql_worker
from lakebed.table.instance import Instance, table_in

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.read.snapshot.snapshot import Snapshot

_WORKER = __name__


def spare_workers(instance: Instance) -> SpareWorkers:
    """Workers that are started ahead, for the statements of any principal."""
    return SpareWorkers(instance.location, _WORKER)


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
