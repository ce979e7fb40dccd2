"""The operation of a write: add rows, add partial rows, or delete keys.

Core types: :class:`Operation`, :class:`Action`; :data:`LETTERS`, the row kinds of change data capture.

Rules. Only a table that merges by ``Latest`` takes partial rows and deletes: in any other table they would be kept
beside the rows that they are meant to change. Pure: no I/O.

Errors: UsageError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lakebed.errors import Code
from lakebed.model.checks import check_flag, is_text, shown
from lakebed.model.merge_modes import MergeMode
from lakebed.model.row_kinds import RowKind


class Action(StrEnum):
    """The action of rows without a row kind. An upsert adds whole rows, which the merge mode combines."""

    UPSERT = "upsert"
    PARTIAL = "partial"
    DELETE = "delete"
    STORED = "stored"
    """The rows were stored before, with their hidden columns."""


LETTERS: Mapping[str, RowKind | None] = {
    "c": RowKind.WHOLE, "r": RowKind.WHOLE, "u": RowKind.WHOLE, "d": RowKind.DELETE,
    "+I": RowKind.WHOLE, "+U": RowKind.WHOLE, "-U": None, "-D": RowKind.DELETE,
}  # fmt: skip
"""The row kinds of Debezium (create, read, update, delete) and of Paimon and Flink. None: the row is left out, as the
row before an update is."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An action, and the column of row kinds, if the rows have one: a row that it says is a delete is one."""

    action: Action = Action.UPSERT
    row_kind: str | None = None

    @classmethod
    def of(cls, partial: Any, row_kind: Any) -> Operation:
        """Return the operation of a write. Raises UsageError for values that are none."""
        check_flag("partial", partial)
        if row_kind is not None and (not is_text(row_kind) or not row_kind):
            raise Code.ARGUMENT_INVALID(f"row_kind = {shown(row_kind)}: must be the name of a column")
        return cls(Action.PARTIAL if partial else Action.UPSERT, row_kind)

    @property
    def marks(self) -> bool:
        """Whether its rows may be markers: partial rows or deletes."""
        return self.action is not Action.UPSERT or self.row_kind is not None

    def check(self, mode: MergeMode) -> None:
        """Raise UsageError unless a table of this mode takes it."""
        if self.action is Action.PARTIAL and mode.by_sort_key:
            # Decision 0012: merging two files already would lose what one with a sort key between theirs has to say.
            raise Code.MERGE_MODE_MISMATCH(
                "partial rows need a table that merges by arrival, and this one merges by sort key: a partial row that "
                "arrives late may belong between two rows that are merged already; write whole rows"
            )
        if not self.marks or mode.takes_markers:
            return
        what, remedy = _WORDS["row_kind" if self.row_kind is not None else self.action]
        raise Code.MERGE_MODE_MISMATCH(
            f"{what} need a table that merges by Latest, and this one merges by {mode}; {remedy}, or make a table with "
            "merge=Latest() and import the rows into it"
        )


UPSERT = Operation()
DELETE = Operation(Action.DELETE)

_WORDS = {
    Action.PARTIAL: ("partial rows", "write whole rows"),
    Action.DELETE: ("deletes", "take away all rows of key ranges with remove()"),
    "row_kind": ("rows with a kind", "write the rows without row_kind"),
}
