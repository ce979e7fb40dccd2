"""The tables of the instance as a request may use them: the permission first, then the table.

Core types: :class:`OpenTables`. A name is looked up in the catalog once a second at most, so that a read by key costs
no request for it: after a rename the old name works that much longer. A dropped table refuses every use by its own log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.security.principal import Permission, Principal
from lakebed.state.time_travel import moment_in

if TYPE_CHECKING:
    from lakebed.service.service import Service
    from lakebed.snapshot.snapshot import Snapshot
    from lakebed.table.table import Table

LOOKUP_S = 1.0
"""How long a name stands for the table that it was found to be."""

NAMES_MAX = 512
"""Names that are kept, since a handle keeps the state of its table in memory; then all are looked up again."""


class OpenTables:
    """Finds tables by name. Safe to use from many threads."""

    def __init__(self, service: Service) -> None:
        self._instance = service.instance
        self._found: dict[str, tuple[Table, float]] = {}

    def table(self, principal: Principal, permission: Permission, name: str) -> Table:
        """The table of that name, for what the permission allows. Raises AccessError, NotFoundError."""
        principal.require(permission, name)
        known = self._found.get(name)
        now = clock.monotonic_s()
        if known is not None and now - known[1] <= LOOKUP_S:
            return known[0]
        try:
            table = self._instance.table(name)
        except Error as error:
            self._found.pop(name, None)
            if error.code is Code.TABLE_NOT_FOUND:
                # Its message lists all tables, which this principal may not know of.
                raise Code.TABLE_NOT_FOUND(f"no table named {name!r}", table=name) from error
            raise
        if len(self._found) >= NAMES_MAX:
            self._found.clear()
        self._found[name] = table, now
        return table

    def readable(self, principal: Principal, name: str, at: str | None = None) -> Table | Snapshot:
        """The table as the principal may read it, or as it was at a version, a tag or a time.

        Raises AccessError, NotFoundError, NotRetainedError.
        """
        table = principal.readable(self.table(principal, Permission.READ, name))
        return table if at is None else table.at(**moment_in(at))

    def forget(self, name: str) -> None:
        """Look the name up again: its table was renamed or dropped."""
        self._found.pop(name, None)
