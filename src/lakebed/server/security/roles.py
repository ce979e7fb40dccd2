"""Roles: a permission on some tables or all, and the rows and columns that it shows. Pure.

Core type: :class:`Role`. What several roles together show of one table is a :class:`~lakebed.model.policies.Policy`.

Rules: roles add up to the highest permission; their restrictions add up as well. A row is visible if every row filter
is true for it, and a column is hidden or masked if any role says so. No other role shows what one role hides. A role
with restrictions is for reading alone: who does not see all rows of a table may not change them.

Tables are named, not identified: a role without a table list covers those that are created later, and one with a list
covers whatever table has the name.

Errors: UsageError.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from lakebed.errors import Code
from lakebed.model.checks import TABLE_NAME, TAG_NAME, are_names, are_texts, is_text, shown
from lakebed.model.policies import Policy


class Permission(IntEnum):
    """What a request needs; each includes those before it."""

    READ = 1
    WRITE = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Role:
    """A permission on the named tables, or on all of them if ``tables`` is None.

    Of these tables only rows are visible for which the predicate ``where`` is true, without the columns ``hidden``. The
    columns ``masks`` show the value of a constant expression in SQL, such as ``'***'`` or ``NULL``, in every row.
    """

    name: str
    permission: Permission
    tables: frozenset[str] | None = None
    where: str = ""
    hidden: frozenset[str] = frozenset()
    masks: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not is_text(self.name) or not TAG_NAME.fullmatch(self.name):
            raise Code.ROLE_INVALID(
                f"role name {shown(self.name)}: must be 1 to 128 of the characters A-Z a-z 0-9 _ . -, and not begin "
                "with - or ."
            )
        for table in self.tables or ():
            if not TABLE_NAME.fullmatch(table):
                raise Code.ROLE_INVALID(f"role {self.name}: {shown(table)} is not the name of a table")
        if self.tables is not None and not self.tables:
            raise Code.ROLE_INVALID(f"role {self.name}: an empty list of tables; leave it out for all tables")
        both = self.hidden & dict(self.masks).keys()
        if both:
            raise Code.ROLE_INVALID(f"role {self.name}: {', '.join(sorted(both))} is hidden and masked; choose one")
        if (self.hidden or self.masks) and self.tables is None:
            raise Code.ROLE_INVALID(
                f"role {self.name}: name the tables whose columns it hides or masks; a table without them is refused"
            )
        if self.is_restricted and self.permission is not Permission.READ:
            raise Code.ROLE_INVALID(
                f"role {self.name}: a role with a row filter, hidden or masked columns is for reading: its permission "
                f"must be read, not {self.permission.name.lower()}"
            )

    @property
    def is_restricted(self) -> bool:
        """Whether it hides anything of the tables that it covers."""
        return bool(self.where or self.hidden or self.masks)

    def covers(self, table: str) -> bool:
        """Return whether the table is one of the role's."""
        return self.tables is None or table in self.tables

    def to_json(self) -> dict[str, Any]:
        """Return the role as a document; :meth:`from_json` gives it back."""
        return {
            "name": self.name,
            "permission": self.permission.name.lower(),
            "tables": None if self.tables is None else sorted(self.tables),
            "where": self.where,
            "hidden": sorted(self.hidden),
            "masks": dict(self.masks),
        }

    @classmethod
    def from_json(cls, document: Any) -> Role:
        """Return the role of a document. Raises UsageError if it is none."""
        match document:
            case {
                "name": str(name),
                "permission": str(permission),
                "tables": tables,
                "where": str(where),
                "hidden": hidden,
                "masks": masks,
            } if (tables is None or are_texts(tables)) and are_texts(hidden) and are_names(masks):
                names = None if tables is None else frozenset(tables)
                return cls(name, permission_named(permission), names, where, frozenset(hidden), tuple(masks.items()))
            case _:
                pass
        raise Code.ROLE_INVALID(f"not a role: {shown(document)}")


def policy_of(roles: Iterable[Role]) -> Policy | None:
    """Return the policy of roles that all cover one table; None if they show all. The first mask of a column counts."""
    wheres: dict[str, None] = {}
    hidden: frozenset[str] = frozenset()
    masks: dict[str, str] = {}
    for role in roles:
        if role.where:
            wheres[role.where] = None
        hidden |= role.hidden
        for column, value in role.masks:
            masks.setdefault(column, value)
    if not (wheres or hidden or masks):
        return None
    return Policy(tuple(wheres), hidden, tuple([one for one in masks.items() if one[0] not in hidden]))


def permission_named(name: str) -> Permission:
    """Return the permission ``read``, ``write`` or ``admin``. Raises UsageError."""
    found = {one.name.lower(): one for one in Permission}.get(name)
    if found is None:
        raise Code.ROLE_INVALID(f"permission {shown(name)}: is one of read, write, admin")
    return found


BUILT_IN = {one.name.lower(): Role(one.name.lower(), one) for one in Permission}
"""The roles ``read``, ``write`` and ``admin``, on all tables."""
