"""SQL of a principal: over the tables that it may read, as it may see them.

Core function: :func:`run`. With limits, the statement runs in a worker process with the same roles
(:mod:`lakebed.server.security.restricted_worker`): the process of the service never parses, plans or evaluates it.

Errors: as :meth:`lakebed.table.instance.Instance.sql`; a table that the principal may not read is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.read.snapshot.restricted import RestrictedSnapshot
from lakebed.read.sql.limited import Limits, StatementWorker, run_limited
from lakebed.read.sql.query import SqlEngine
from lakebed.read.sql.spare_workers import SpareWorkers
from lakebed.table.instance import Instance
from lakebed.table.instance_queries import table_in

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.read.snapshot.snapshot import Snapshot
    from lakebed.server.security.principal import Principal

_WORKER = "lakebed.server.security.restricted_worker"


def spare_workers(instance: Instance) -> SpareWorkers:
    """Workers that are started ahead, for the statements of any principal."""
    return SpareWorkers(instance.location, _WORKER)


def run(
    principal: Principal, instance: Instance, statement: str, limits: Limits | None, spare: SpareWorkers | None = None
) -> pa.RecordBatchReader:
    """As :meth:`Principal.sql`."""
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
