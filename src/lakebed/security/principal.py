"""Principals: whoever makes a request of a service, and what that one is allowed.

A door of the service (HTTP, Flight SQL) authenticates each request by an :class:`Authenticator`, asks the
:class:`Principal` for a permission, and reads tables through :meth:`Principal.readable` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from lakebed.errors import Code

if TYPE_CHECKING:
    from lakebed.snapshot.snapshot import Readable
    from lakebed.table.table import Table


class Permission(IntEnum):
    """What a request needs; each includes those before it."""

    READ = 1
    WRITE = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Principal:
    """The name under which requests are logged, and the highest permission."""

    name: str
    permission: Permission

    def require(self, permission: Permission, table: str | None = None) -> None:
        """Raise AccessError unless the principal has this permission; ``table`` is the name of the table asked for."""
        if self.permission < permission:
            what = "" if table is None else f" on table {table}"
            raise Code.PERMISSION_MISSING(
                f"{self.name} may not {permission.name.lower()}{what}; an admin can grant it",
                permission=permission.name,
            )

    def readable(self, table: Readable) -> Readable:
        """The table, or a snapshot of it, as this principal may see it. Raises AccessError."""
        return table

    def visible(self, tables: list[Table]) -> list[Table]:
        """Those of the tables that this principal may know of."""
        return tables


class Authenticator(Protocol):
    """Finds the principal of a request."""

    def authenticate(self, authorization: str | None) -> Principal:
        """The principal of an ``Authorization`` header's value. Raises AccessError."""


class Open:
    """Everyone may do everything: for a service that only this machine can reach."""

    def authenticate(self, authorization: str | None) -> Principal:  # noqa: ARG002 - there is nothing to check
        """The local user, with every permission."""
        return Principal("local", Permission.ADMIN)
