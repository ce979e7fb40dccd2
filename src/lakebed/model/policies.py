"""Policies: the rows and columns of a table that a reader may see. Pure.

Core type: :class:`Policy`. A policy belongs to a reader and not to the table: it is never stored with the table, and
:class:`~lakebed.read.snapshot.restricted.RestrictedSnapshot` applies it.

Errors: AccessError for a policy that does not fit the columns of a table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakebed.errors import Code, Error
from lakebed.model.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Collection


@dataclass(frozen=True, slots=True)
class Policy:
    """Shows only rows for which each predicate of ``wheres`` is true, without the columns ``hidden``.

    Each of the columns in ``masks`` has the value of a constant SQL expression instead of its own.
    """

    wheres: tuple[str, ...] = ()
    hidden: frozenset[str] = frozenset()
    masks: tuple[tuple[str, str], ...] = ()

    @property
    def where(self) -> str | None:
        """The row filters as one predicate; None if there is none."""
        return " AND ".join(f"({where}\n)" for where in self.wheres) or None

    def schema_of(self, schema: Schema, null_masks: Collection[str] = ()) -> Schema:
        """Return the visible fields. Those with a mask of NULL are nullable.

        No field is marked as generated, because an expression may name a hidden field.

        Raises AccessError for a policy that hides or masks a key field, since rows are found and ordered by their keys,
        or a field that the schema does not have, for example because it was renamed.
        """
        named = self.hidden | dict(self.masks).keys()
        unknown = sorted(named - set(schema.names))
        if unknown:
            raise policy_failed(
                f"it hides or masks {', '.join(unknown)}, which the table does not have at this version"
            )
        covered = sorted(named & set(schema.sort_names))
        if covered:
            raise policy_failed(
                f"it hides or masks {', '.join(covered)}, which is a key field; rows are found by their keys, so give "
                "access to a view without it"
            )
        groups = (
            [
                replace(field, expression="", inputs=(), nullable=field.nullable or field.name in null_masks)
                for field in group
                if field.name not in self.hidden
            ]
            for group in (schema.row_key, schema.sort_key, schema.values)
        )
        return Schema(*groups, version=schema.version)


def policy_failed(why: str) -> Error:
    """Return the error for a policy that cannot be applied. It says nothing about the rows."""
    return Code.POLICY_FAILED(f"a role of this principal does not fit the table: {why}. An admin can correct the role")
