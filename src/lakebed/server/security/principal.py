"""Principals: the callers of a service, and their permissions.

An interface of the service (HTTP, Flight SQL) authenticates each request by an :class:`Authenticator`, asks the
:class:`Principal` for a permission, and reads tables through :meth:`Principal.readable` and
:func:`lakebed.server.security.sql.run_statement` alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lakebed.errors import Code, Error, NotFoundError
from lakebed.model.checks import shown
from lakebed.model.policies import Policy
from lakebed.server.security.roles import BUILT_IN, Permission, Role, policy_of

if TYPE_CHECKING:
    from lakebed.table.instance import Instance
    from lakebed.table.restricted_table import RestrictedTable
    from lakebed.table.table import Table

__all__ = ["Authenticator", "Open", "Permission", "Principal", "Role"]

Named = TypeVar("Named", bound="str | Table")


@dataclass(frozen=True, slots=True)
class Principal:
    """The name under which requests are logged, and the roles that give permissions."""

    name: str
    roles: tuple[Role, ...]

    @classmethod
    def everywhere(cls, name: str, permission: Permission) -> Principal:
        """Return a principal with the same permission on all rows of all tables."""
        return cls(name, (BUILT_IN[permission.name.lower()],))

    def permission(self, table: str | None = None) -> Permission | None:
        """Return the highest permission on a table; without one, on all tables, whole. None if there is none."""
        if table is None:
            if any(role.is_restricted for role in self.roles):
                return None
            found = [role for role in self.roles if role.tables is None]
        else:
            found = [role for role in self.roles if role.covers(table)]
        highest = max((role.permission for role in found), default=None)
        if highest is None or table is None or self.policy(table) is None:
            return highest
        return Permission.READ

    def require(self, permission: Permission, table: str | None = None) -> None:
        """Raise AccessError unless the principal has this permission on the table of that name.

        Without a table: on all tables, those to come included. To list tables, ask :meth:`visible` instead.
        """
        found = self.permission(table)
        if found is None or found < permission:
            raise self._missing(permission.name.lower(), table)

    def require_drop(self, instance: Instance, name: str) -> None:
        """Raise AccessError unless the principal may drop the table or index of that name: an index only with ADMIN on
        the table that it is of as well, whose reads would become slow.
        """
        self.require(Permission.ADMIN, name)
        # A table that does not exist is for the drop to say; an index whose table is gone is a table like any other.
        with suppress(NotFoundError):
            fed = instance.table(name).state().view
            if fed is not None and fed.index is not None:
                self.require(Permission.ADMIN, instance.named(fed.table).name)

    def require_all_rows(self, table: str) -> None:
        """Raise AccessError unless the principal may read the table whole: for operations that count or list all rows.

        Files, partitions, the history and jobs reveal rows that a row filter hides.
        """
        self.require(Permission.READ, table)
        if self.policy(table) is not None:
            raise Code.PERMISSION_MISSING(
                f"{self.name} sees only a part of table {table}, and this is of all its rows; read rows instead",
                permission="READ",
                table=table,
            )

    def reads_whole(self, table: str) -> bool:
        """Return whether the principal may read all rows of the table."""
        return self.permission(table) is not None and self.policy(table) is None

    def readable(self, table: Table) -> Table | RestrictedTable:
        """Return the table as this principal may see it. Raises AccessError.

        If it sees a part, the result is a :class:`~lakebed.table.restricted_table.RestrictedTable`: it has the reads of
        a table, and raises AccessError for anything else.
        """
        self.require(Permission.READ, table.name)
        policy = self.policy(table.name)
        if policy is None:
            return table
        from lakebed.table.restricted_table import RestrictedTable

        return RestrictedTable(table, policy)

    def to_json(self) -> dict[str, Any]:
        """Return the principal as a document; :meth:`from_json` gives it back."""
        return {"name": self.name, "roles": [role.to_json() for role in self.roles]}

    @classmethod
    def from_json(cls, document: Any) -> Principal:
        """Return the principal of a document. Raises UsageError if it is none."""
        match document:
            case {"name": str(name), "roles": list(roles)}:
                return cls(name, tuple(map(Role.from_json, roles)))
            case _:
                pass
        raise Code.ROLE_INVALID(f"not a principal: {shown(document)}")

    def visible(self, tables: Iterable[Named]) -> list[Named]:
        """Return the tables, or names of tables, that are visible to this principal."""
        return [one for one in tables if self.permission(one if isinstance(one, str) else one.name) is not None]

    def policy(self, table: str) -> Policy | None:
        """Return the visible part of the table; None if all of it is visible."""
        return policy_of(role for role in self.roles if role.covers(table))

    def _missing(self, permission: str, table: str | None) -> Error:
        what = "every table" if table is None else f"table {table}"
        return Code.PERMISSION_MISSING(
            f"{self.name} may not {permission} {what}; an admin can grant it, by a token with another role",
            permission=permission.upper(),
        )


class Authenticator(Protocol):
    """Finds the principal of a request."""

    def authenticate(self, authorization: str | None) -> Principal:
        """Return the principal of an ``Authorization`` header's value. Raises AccessError."""


class Open:
    """Permits everything to everyone: for a service that only this machine can reach."""

    def authenticate(self, authorization: str | None) -> Principal:  # noqa: ARG002 - there is nothing to check
        """Return the local user, with every permission."""
        return Principal.everywhere("local", Permission.ADMIN)
