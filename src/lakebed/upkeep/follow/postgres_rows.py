"""The changes of one table of PostgreSQL, on their way into a table.

An update that left a large value out becomes a partial row. An update of a key becomes a delete and a row; a value that
such an update left out is looked up under the old key, in what is pending and in the table.

Core types: :class:`PostgresRows`.

Source: docs/follow.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.row_kinds import KIND, RowKind, presence_name
from lakebed.upkeep.follow.pgoutput import Relation, Row
from lakebed.upkeep.follow.postgres_values import TEXT, PostgresType
from lakebed.upkeep.follow.row_buffer import UNCHANGED, Reject, RowBuffer, column

if TYPE_CHECKING:
    from lakebed.upkeep.follow.target import ChangeTarget


class PostgresRows(RowBuffer):
    """The rows of a relation. ``types`` are those of its columns by name."""

    def __init__(
        self, relation: Relation, target: ChangeTarget, types: Mapping[str, PostgresType], reject: Reject
    ) -> None:
        fields = target.table.schema.by_name
        names = [one.name for one in relation.columns]
        # A field that is text takes the server's text, whatever the type is now.
        kinds = [TEXT if pa.types.is_string(fields[name].type) else types[name] for name in names]
        super().__init__(target, names, kinds, reject)
        self.relation = relation

    def insert(self, row: Row) -> None:
        """Add a row."""
        self.add(row)

    def update(self, old: Row | None, row: Row) -> None:
        """Change a row."""
        if old is not None:
            for at in self.key:
                row[at] = old[at] if row[at] is UNCHANGED else row[at]
            moved = any(old[at] != row[at] for at in self.key)
            if self.relation.identity == "f":
                row = [before if value is UNCHANGED else value for before, value in zip(old, row, strict=True)]
            if moved:
                if UNCHANGED in row:
                    self._carry(old, row)
                self.delete(old)
        self.add(row)

    def _carry(self, old: Row, row: Row) -> None:
        """Add a row of the new key with the values that the update left out; the row itself is then a partial one."""
        self.flush()
        missing = [self.names[at] for at, value in enumerate(row) if value is UNCHANGED]
        found, complete = self._pending_values(old, missing)
        if not complete:
            values = [column(self.types[at], [old[at]])[0][0].as_py() for at in self.key]
            stored = self.target.table.get(*values, columns=missing)
            if stored.num_rows:
                found = {name: stored.column(name).combine_chunks() for name in missing} | found
        keys = {self.names[at]: column(self.types[at], [row[at]])[0] for at in self.key}
        self.target.pending.add(pa.RecordBatch.from_pydict({**keys, **found, KIND: pa.array([0], pa.int8())}))

    def _pending_values(self, old: Row, missing: list[str]) -> tuple[dict[str, pa.Array], bool]:
        """Return the values that pending changes gave the old key, and whether those in the table do not matter."""
        fields = self.target.table.schema.by_name
        found: dict[str, pa.Array] = {}
        for batch in reversed([*self.target.pending.batches()]):
            same = None
            for at in self.key:
                value = column(self.types[at], [old[at]])[0][0]
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
