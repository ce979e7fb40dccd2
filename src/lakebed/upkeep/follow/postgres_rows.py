"""The changes of one table of PostgreSQL, on their way into a table.

Rows of messages are collected as texts and converted column by column, some thousands at a time. An update that left a
large value out becomes a partial row. An update of a key becomes a delete and a row; a value that such an update left
out is looked up under the old key, in what is pending and in the table.

Core types: :class:`RowBuffer`. A row with a value that its field cannot hold goes to the dead letters.

Source: docs/follow.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.row_kinds import KIND, RowKind, presence_name
from lakebed.upkeep.follow.pgoutput import UNCHANGED, Relation, Row, Value
from lakebed.upkeep.follow.postgres_values import TEXT, PostgresType, column

if TYPE_CHECKING:
    from lakebed.upkeep.follow.target import ChangeTarget

ROWS_MAX = 16_384
"""Rows are converted this many at a time; at the end of a batch, the rest."""

Reject = Callable[[str, Mapping[str, str | None], Mapping[str, str | None]], None]
"""Takes the reason of a dead letter, its key, and the row as it came."""


class RowBuffer:
    """The rows of a relation. ``types`` are those of its columns by name, ``reject`` takes rows that do not fit."""

    def __init__(
        self, relation: Relation, target: ChangeTarget, types: Mapping[str, PostgresType], reject: Reject
    ) -> None:
        self.relation = relation
        self.target = target
        fields = target.table.schema.by_name
        self.names = [one.name for one in relation.columns]
        # A field that is text takes the server's text, whatever the type is now.
        self._types = [TEXT if pa.types.is_string(fields[name].type) else types[name] for name in self.names]
        self._key = [self.names.index(name) for name in target.table.schema.row_key_names]
        self._value_fields = [field for field in target.table.schema.values if field.name in self.names]
        self._reject = reject
        self._rows: list[Row] = []
        self._kinds = bytearray()
        self._marked = self._partial = False

    def insert(self, row: Row) -> None:
        """Add a row."""
        self._add(row, RowKind.WHOLE)

    def update(self, old: Row | None, row: Row) -> None:
        """Change a row."""
        if old is not None:
            moved = any(old[at] != row[at] for at in self._key)
            if self.relation.identity == "f":
                row = [before if value is UNCHANGED else value for before, value in zip(old, row, strict=True)]
            if moved:
                if UNCHANGED in row:
                    self._carry(old, row)
                self.delete(old)
        if UNCHANGED in row:
            self._partial = self._marked = True
            self._add(row, RowKind.PARTIAL)
        else:
            self._add(row, RowKind.WHOLE)

    def delete(self, old: Row) -> None:
        """Delete the row of a key."""
        self._marked = True
        keys = set(self._key)
        self._add([value if at in keys else None for at, value in enumerate(old)], RowKind.DELETE)

    def truncate(self) -> None:
        """Delete all rows."""
        self._rows.clear()
        self._kinds.clear()
        self._marked = self._partial = False
        self.target.pending.truncate()

    def _add(self, row: Row, kind: RowKind) -> None:
        self._rows.append(row)
        self._kinds.append(kind)
        if len(self._rows) >= ROWS_MAX:
            self.flush()

    def flush(self) -> None:
        """Convert the rows, and add them to what is pending for the table."""
        if not self._rows:
            return
        rows, kinds = self._rows, self._kinds
        self._rows, self._kinds = [], bytearray()
        marked, partial = self._marked, self._partial
        self._marked = self._partial = False
        columns: dict[str, pa.Array] = {}
        wrong: dict[int, str] = {}
        present: dict[str, list[bool]] = {}
        for name, kind, found in zip(self.names, self._types, zip(*rows, strict=True), strict=True):
            values: list[Any] = [*found]
            if partial:
                present[name] = [value is not UNCHANGED for value in values]
                values = [_bytes(value) for value in values]
            columns[name], refused = column(kind, values)
            wrong |= {position: f"column {name}: {reason}" for position, reason in refused.items()}
        if marked:
            columns[KIND] = pa.array(kinds, pa.int8())
        if partial:
            for field in self._value_fields:
                columns[presence_name(field)] = pa.array(present[field.name], pa.bool_())
        batch = pa.RecordBatch.from_arrays([*columns.values()], names=[*columns])
        for position, reason in sorted(wrong.items()):
            key = {self.names[at]: _shown(rows[position][at]) for at in self._key}
            row = {name: _shown(value) for name, value in zip(self.names, rows[position], strict=True)}
            self._reject(reason, key, row)
        if wrong:
            batch = batch.filter(pa.array([position not in wrong for position in range(len(rows))]))
        self.target.pending.add(batch)

    def _carry(self, old: Row, row: Row) -> None:
        """Add a row of the new key with the values that the update left out; the row itself is then a partial one."""
        self.flush()
        missing = [self.names[at] for at, value in enumerate(row) if value is UNCHANGED]
        found, complete = self._pending_values(old, missing)
        if not complete:
            values = [column(self._types[at], [_bytes(old[at])])[0][0].as_py() for at in self._key]
            stored = self.target.table.get(*values, columns=missing)
            if stored.num_rows:
                found = {name: stored.column(name).combine_chunks() for name in missing} | found
        keys = {self.names[at]: column(self._types[at], [_bytes(row[at])])[0] for at in self._key}
        self.target.pending.add(pa.RecordBatch.from_pydict({**keys, **found, KIND: pa.array([0], pa.int8())}))

    def _pending_values(self, old: Row, missing: list[str]) -> tuple[dict[str, pa.Array], bool]:
        """Return the values that pending changes gave the old key, and whether those in the table do not matter."""
        fields = self.target.table.schema.by_name
        found: dict[str, pa.Array] = {}
        for batch in reversed([*self.target.pending.batches()]):
            same = None
            for at in self._key:
                value = column(self._types[at], [_bytes(old[at])])[0][0]
                equal = pc.equal(batch.column(self.names[at]), value)
                same = equal if same is None else pc.and_(same, equal)
            rows = batch.filter(same)
            for position in reversed(range(rows.num_rows)):
                row = rows.slice(position, 1)
                kind = row.column(KIND)[0].as_py() if KIND in row.schema.names else RowKind.WHOLE
                if kind == RowKind.DELETE:
                    return found, True
                for name in missing:
                    presence = presence_name(fields[name])
                    has = presence not in row.schema.names or row.column(presence)[0].as_py()
                    if has and name in row.schema.names:
                        found.setdefault(name, row.column(name))
                if kind == RowKind.WHOLE or len(found) == len(missing):
                    return found, True
        return found, self.target.pending.truncated


def _bytes(value: Value) -> bytes | None:
    return None if value is UNCHANGED else value


def _shown(value: Value) -> str | None:
    return "(unchanged)" if value is UNCHANGED else None if value is None else value.decode("utf-8", "replace")
