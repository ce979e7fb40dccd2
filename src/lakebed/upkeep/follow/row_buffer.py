"""The changed rows of one table of a source, on their way into a table.

Rows are collected as lists of values in the form of the source, and converted column by column, some thousands at a
time. A value that the source left out, because it did not change, makes its row a partial one.

Core types: :class:`RowBuffer`; :class:`SourceType` converts a column. A row with a value that its field cannot hold
goes to the dead letters. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from lakebed.model.row_kinds import KIND, RowKind, presence_name

if TYPE_CHECKING:
    from lakebed.upkeep.follow.target import ChangeTarget

ROWS_MAX = 16_384
"""Rows are converted this many at a time; at the end of a batch, the rest."""

SHOWN_CHARS = 60


class _Unchanged(Enum):
    UNCHANGED = "unchanged"


UNCHANGED: Final = _Unchanged.UNCHANGED
"""A value that an update left out."""


class SourceType(Protocol):
    """A type of a source: the name of the field's type, and how values become a column of it."""

    @property
    def name(self) -> str:
        """The type of the field."""

    def array(self, values: list[Any]) -> pa.Array:
        """Convert values, of which some may be None. Raises one of :data:`REFUSALS` if one is no such value."""

    def shown(self, value: Any) -> str:
        """Return a value as a message shows it."""


REFUSALS = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    AttributeError,
    IndexError,
    KeyError,
    OverflowError,
    TypeError,
    ValueError,
)


def column(kind: SourceType, values: list[Any]) -> tuple[pa.Array, dict[int, str]]:
    """Return a column of values, and what is wrong with those that are none, by their positions; there it has null."""
    try:
        return kind.array(values), {}
    except REFUSALS:
        pass
    wrong: dict[int, str] = {}
    for position, one in enumerate(values):
        try:
            kind.array([one])
        except REFUSALS:
            wrong[position] = f"{kind.shown(one)[:SHOWN_CHARS]!r} is no value of the type {kind.name}"
    return kind.array([None if position in wrong else one for position, one in enumerate(values)]), wrong


Reject = Callable[[str, Mapping[str, Any], Mapping[str, Any], Any], None]
"""Takes the reason of a dead letter, its key, the row, both by the names of columns, and the origin of the row."""


class RowBuffer:
    """Rows with the columns ``names``, whose types are ``types``. ``reject`` takes rows that do not fit."""

    def __init__(self, target: ChangeTarget, names: Sequence[str], types: Sequence[SourceType], reject: Reject) -> None:
        self.target = target
        self.names = [*names]
        self.types = [*types]
        self.key = [self.names.index(name) for name in target.table.schema.row_key_names]
        self._value_fields = [field for field in target.table.schema.values if field.name in self.names]
        self._reject = reject
        self._rows: list[Sequence[Any]] = []
        self._kinds = bytearray()
        self._origins: list[Any] = []
        self._marked = self._partial = False

    def add(self, row: Sequence[Any], origin: Any = None) -> None:
        """Add a row, a partial one if a value is UNCHANGED."""
        if UNCHANGED in row:
            self._partial = self._marked = True
            self._add(row, RowKind.PARTIAL, origin)
        else:
            self._add(row, RowKind.WHOLE, origin)

    def delete(self, row: Sequence[Any], origin: Any = None) -> None:
        """Delete the row with the key of this one."""
        self._marked = True
        keys = set(self.key)
        self._add([value if at in keys else None for at, value in enumerate(row)], RowKind.DELETE, origin)

    def truncate(self) -> None:
        """Delete all rows."""
        self._clear()
        self.target.pending.truncate()

    def _clear(self) -> None:
        self._rows, self._kinds, self._origins = [], bytearray(), []
        self._marked = self._partial = False

    def _add(self, row: Sequence[Any], kind: RowKind, origin: Any) -> None:
        self._rows.append(row)
        self._kinds.append(kind)
        self._origins.append(origin)
        if len(self._rows) >= ROWS_MAX:
            self.flush()

    def flush(self) -> None:
        """Convert the rows, and add them to what is pending for the table."""
        if not self._rows:
            return
        rows, kinds, origins = self._rows, self._kinds, self._origins
        marked, partial = self._marked, self._partial
        self._clear()
        columns: dict[str, pa.Array] = {}
        wrong: dict[int, str] = {}
        present: dict[str, list[bool]] = {}
        for name, kind, found in zip(self.names, self.types, zip(*rows, strict=True), strict=True):
            values: list[Any] = [*found]
            if partial:
                present[name] = [value is not UNCHANGED for value in values]
                values = [None if value is UNCHANGED else value for value in values]
            columns[name], refused = column(kind, values)
            wrong |= {position: f"column {name}: {reason}" for position, reason in refused.items()}
        if marked:
            columns[KIND] = pa.array(kinds, pa.int8())
        if partial:
            for field in self._value_fields:
                columns[presence_name(field)] = pa.array(present[field.name], pa.bool_())
        batch = pa.RecordBatch.from_arrays([*columns.values()], names=[*columns])
        for position, reason in sorted(wrong.items()):
            row = dict(zip(self.names, map(self._shown, self.types, rows[position]), strict=True))
            self._reject(reason, {self.names[at]: row[self.names[at]] for at in self.key}, row, origins[position])
        if wrong:
            batch = batch.filter(pa.array([position not in wrong for position in range(len(rows))]))
        self.target.pending.add(batch)

    @staticmethod
    def _shown(kind: SourceType, value: Any) -> str | None:
        return "(unchanged)" if value is UNCHANGED else None if value is None else kind.shown(value)
