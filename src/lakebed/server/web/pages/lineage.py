"""What a table is made from and what is made from it: its source, views, indexes, copies, and what other engines read.

Rule: names of tables only for principals that may read them whole, and places outside of the instance for admins of the
table alone. Core type: :class:`Lineage`. Source: docs/pages.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from lakebed.model.state.table_state import TableState
from lakebed.read.inspect.history import CopyRecord
from lakebed.server.security.principal import Permission, Principal
from lakebed.server.service.service import Service
from lakebed.server.service.status import TableStatus
from lakebed.table.table import Table

Kind = Literal["source", "view", "index", "export", "quarantine", "query", "publication"]


@dataclass(frozen=True, slots=True)
class LineageNode:
    """A table or a place. ``version`` is that of the source that it has; ``behind``, how many versions it lacks.

    ``name`` is None if the principal may not see it, or if the table was dropped; ``is_table``: it has a page.
    """

    kind: Kind
    name: str | None
    is_table: bool
    version: int
    behind: int | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Lineage:
    """``sources`` feed the table, ``targets`` are fed by it. ``select`` is the query of a view; empty for others."""

    sources: tuple[LineageNode, ...]
    targets: tuple[LineageNode, ...]
    select: str


def lineage_of(
    service: Service, principal: Principal, table: Table, status: TableStatus | None, copies: Sequence[CopyRecord]
) -> Lineage:
    """Return the lineage of a table; ``copies`` are the records of its copies, newest first."""
    state = table.state()
    known = service.instance.known_tables()
    names = {table_id: name for table_id, name in known.items() if principal.reads_whole(name)}
    sources: tuple[LineageNode, ...] = ()
    if state.view is not None:
        name = names.get(state.view.table)
        sources = (LineageNode("source", name, is_table=True, version=state.view.version),)
    return Lineage(
        sources,
        (*_fed_tables(service, names, state), *_publications(status), *_copies(principal, table.name, copies)),
        "" if state.view is None else state.view.select,
    )


def _fed_tables(service: Service, names: Mapping[str, str], state: TableState) -> list[LineageNode]:
    """Return the views and indexes of a table, by name; those that may not be seen, which have none, are last."""
    indexes = {one.table for one in state.indexes}
    fed = service.fed_from(state.table)
    return [
        LineageNode(
            "index" if table in indexes else "view",
            names.get(table),
            is_table=True,
            version=version,
            behind=max(0, state.version - version),
        )
        for table, version in sorted(fed.items(), key=lambda one: (one[0] not in names, names.get(one[0], one[0])))
    ]


def _publications(status: TableStatus | None) -> list[LineageNode]:
    if status is None or not status.published:
        return []
    return [
        LineageNode(
            "publication", "Apache Iceberg", is_table=False, version=status.published, behind=status.published_lag
        )
    ]


def _copies(principal: Principal, table: str, copies: Sequence[CopyRecord]) -> list[LineageNode]:
    is_admin = principal.permission(table) is Permission.ADMIN
    return [
        LineageNode(one.kind.value, one.url if is_admin else None, is_table=False, version=one.version, at=one.time)
        for one in copies
    ]
