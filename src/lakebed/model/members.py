"""Finds members of Python values that the struct of their column does not have. Pure.

Arrow makes a struct of a dict by looking up the names that it knows, so a misspelt or an additional member would be
lost, and its field be null. JSON and rows of Python objects are therefore checked before they become columns.

Errors: :class:`UnknownMemberError`, at any depth, with the path of the member; the caller names the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from lakebed.model.checks import shown


class UnknownMemberError(ValueError):
    """A member that a struct does not have; ``path`` begins with the name of a member of the column, or with ``[]``."""

    def __init__(self, path: str, value: Any, kind: pa.DataType) -> None:
        name = path.rpartition(".")[2]
        alike = [member.name for member in kind if member.name.casefold() == name.casefold()]
        meant = f"; did you mean {alike[0]}?" if alike else ""
        super().__init__(
            f"has the member {path} ({shown(value)}), and {kind} has no such member{meant}; rename it, leave it out, "
            "or put it into a column of its own"
        )
        self.path = path


def check_members(values: Iterable[Any], kind: pa.DataType) -> None:
    """Raise UnknownMemberError for a member that the type of the values does not have; other misfits are ignored."""
    if pa.types.is_nested(kind):
        _check_levels([value for value in values if value is not None], kind, "")


def _check_levels(values: list[Any], kind: pa.DataType, path: str) -> None:
    if pa.types.is_struct(kind):
        rows = [row for row in map(_members_of, values) if row is not None]
        known = {member.name for member in kind}
        for row in rows:
            if not known.issuperset(row):
                name = next(name for name in row if name not in known)
                raise UnknownMemberError(f"{path}{name}", row[name], kind)
        for member in kind:
            if pa.types.is_nested(member.type):
                _check_level([row.get(member.name) for row in rows], member.type, f"{path}{member.name}")
    elif pa.types.is_map(kind):
        pairs = [pair for value in values for pair in _pairs_of(value)]
        for place, inner in enumerate((kind.key_type, kind.item_type)):
            _check_level([pair[place] for pair in pairs], inner, f"{path}[]")
    elif pa.types.is_nested(kind.value_type):
        items = [item for value in values if isinstance(value, Iterable) for item in value]
        _check_level(items, kind.value_type, f"{path}[]")


def _check_level(values: list[Any], kind: pa.DataType, path: str) -> None:
    if pa.types.is_nested(kind):
        _check_levels(
            [value for value in values if value is not None], kind, f"{path}." if pa.types.is_struct(kind) else path
        )


def _members_of(value: Any) -> Mapping[Any, Any] | None:
    """Return the members of a struct, a mapping or a list of pairs; None for values that Arrow refuses or counts."""
    if isinstance(value, Mapping):
        return value
    is_paired = isinstance(value, list) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value)
    return dict(value) if is_paired else None


def _pairs_of(value: Any) -> list[Any]:
    pairs = value.items() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [pair for pair in pairs if isinstance(pair, list | tuple) and len(pair) == 2]
