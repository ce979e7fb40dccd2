"""The worker process of one statement of a principal: that of :mod:`lakebed.table.sql_worker`, with its roles."""

from __future__ import annotations

from typing import Any, NoReturn

from lakebed.read.sql.query import SqlEngine
from lakebed.server.security.principal import Principal
from lakebed.server.security.sql import engine_of
from lakebed.table import sql_worker
from lakebed.table.instance import Instance


def main() -> NoReturn:
    """Answer the request on stdin, and end the process."""
    sql_worker.main(_engine)


def _engine(instance: Instance, request: Any) -> tuple[SqlEngine, int]:
    return engine_of(Principal.from_json(request["principal"]), instance), instance.sql_pool_bytes()
