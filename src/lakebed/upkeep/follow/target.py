"""The tables that take the changes of a source.

A :class:`ChangeTarget` is a table with the changes that wait for its next commit, and the positions up to which it has
the changes of the source. It creates the table, fits its schema to the columns of the source, and commits.

Rules. One follower writes a table, in the order of the source, so rows are merged by arrival: only then may a row keep
values that an update left out. A column that is new at the source becomes a field, one that became wider is widened.
One that is gone keeps its field, in which new rows have null. Any other change stops the follower.

A commit is refused if rows were added since the table was looked at, and a follower that finds changes of another one
drops its own: it may have been suspended, and what it has may be older.

Errors: SchemaMismatchError for a change that cannot be followed; ContentionError for another follower; those of writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.errors import Code, RejectedError
from lakebed.model import types
from lakebed.model.keys import KeyRange
from lakebed.model.merge_modes import Latest
from lakebed.model.schema import Schema
from lakebed.model.state.transactions.schema_changes import AddField, WidenField
from lakebed.upkeep.follow.pending import Memory, PendingChanges
from lakebed.upkeep.follow.positions import Positions, applied, commit_id
from lakebed.write.run import Write, add
from lakebed.write.source_rows import RowInput

if TYPE_CHECKING:
    from lakebed.model.state.table_state import TableState
    from lakebed.model.state.transactions.schema_changes import SchemaChange
    from lakebed.table.instance import Instance
    from lakebed.table.table import Table

ATTEMPTS_MAX = 5
"""Of one commit. A table that is followed has one writer, and now and then rows that a person corrects."""


@dataclass(frozen=True, slots=True)
class SourceColumns:
    """The columns of a table at the source: its name there, its key, and the type of each column by its name."""

    name: str
    key: tuple[str, ...]
    types: Mapping[str, str]


@dataclass(slots=True)
class ChangeTarget:
    """A table that takes changes. ``positions`` are those up to which it has them; none: it has no snapshot yet.

    ``streams`` are those that concern it; None: all.
    """

    table: Table
    pending: PendingChanges
    positions: dict[int, int] = field(default_factory=dict)
    streams: set[int] | None = None
    generation: int = 0
    changes: int = 0
    """The changes that were committed since the follower was started."""
    _committed: int = 0
    """The version of the last commit."""

    @classmethod
    def open(
        cls, instance: Instance, name: str, columns: SourceColumns | None, folder: Path, memory: Memory
    ) -> ChangeTarget | None:
        """Return the table of that name. If there is none, it is created with these columns; None without columns.

        Raises UsageError if there is one with another key or another merge mode.
        """
        found = instance.catalog().named(name)
        if found is None:
            if columns is None:
                return None
            table = instance.create_table(name, schema_of(columns), merge=Latest(), if_not_exists=True)
        else:
            table = instance.opened(found)
        target = cls(table, PendingChanges(folder, memory))
        target.check(columns)
        return target

    def check(self, columns: SourceColumns | None) -> None:
        """Raise UsageError unless the table merges by arrival, and has the key of the source, if that is known."""
        state = self.table.state()
        if not (state.merge.takes_markers and not state.merge.by_sort_key):
            raise Code.MERGE_MODE_MISMATCH(
                f"table {self.table.name} merges by {state.merge}; changes of a source need a table that merges by "
                "Latest(): let follow create it, under another name (--table SOURCE=TABLE)",
                table=self.table.name,
            )
        if columns is not None and state.created.row_key_names != columns.key:
            raise Code.SOURCE_CHANGE_UNSUPPORTED(
                f"table {self.table.name} has the row key {', '.join(state.created.row_key_names)}, and {columns.name} "
                f"has the key {', '.join(columns.key)}: follow it into another table (--table "
                f"{columns.name}=NEW_NAME), which gets a snapshot",
                table=self.table.name,
            )

    def applied(self, source: str, recorded: Positions) -> None:
        """Read the positions from the commit ids of the table, or from what was recorded, whichever is later."""
        self.positions, self.generation = applied(self.table.state().requests, source)
        for stream, at in recorded.items():
            self.positions[stream] = max(at, self.positions.get(stream, 0))

    def forget(self) -> None:
        """Forget the positions, and those in the commit ids: all rows will be replaced."""
        self.positions = {}
        self.generation += 1

    def fit(self, columns: SourceColumns) -> None:
        """Add fields for new columns, and widen fields of columns that are wider now.

        Raises SchemaMismatchError for another change of a type, and for another key.
        """
        schema = self.table.schema
        if schema.row_key_names != columns.key:
            self.check(columns)
        changes: list[SchemaChange] = []
        for name, kind in columns.types.items():
            wanted = types.parse(kind)
            known = schema.by_name.get(name)
            if known is None:
                changes.append(AddField(name, wanted))
                continue
            found = known.type
            if found == wanted or pa.types.is_string(found) or types.can_become(wanted, found):
                continue
            if not types.can_become(found, wanted) or name not in {one.name for one in schema.values}:
                raise Code.SOURCE_CHANGE_UNSUPPORTED(
                    f"{columns.name}: column {name} is now {kind}, and the field of table {self.table.name} is "
                    f"{found}, which cannot become that. Rename the column at the source, which adds a field; or "
                    f"follow the table into another one (--table {columns.name}=NEW_NAME), which gets a snapshot",
                    table=self.table.name,
                    column=name,
                    found=kind,
                    expected=str(found),
                )
            changes.append(WidenField(name, wanted))
        if changes:
            self.table.alter(*changes)

    @property
    def empty(self) -> bool:
        """Whether the table has no rows."""
        return not self.table.state().files

    def load(self, source: str, positions: Positions, batches: Iterator[pa.RecordBatch], columns: pa.Schema) -> int:
        """Replace all rows by those of a snapshot at these positions; returns their number.

        Rows that are there are removed in a commit before. After a crash in between, the snapshot is taken again.
        """
        if not self.empty:
            self.table.remove(KeyRange())
        rows = RowInput.of_batches(columns, batches, source)
        added = add(self.table, rows, Write(commit_id(source, positions, self.generation)))
        self.positions = dict(positions)
        return added.rows

    def commit(self, source: str, positions: Positions) -> None:
        """Commit what is pending, which ends at these positions."""
        if not self.pending:
            return
        moved = {
            stream: at
            for stream, at in positions.items()
            if at > self.positions.get(stream, 0) and (self.streams is None or stream in self.streams)
        }
        name, truncated = commit_id(source, moved, self.generation), self.pending.truncated
        for _ in range(ATTEMPTS_MAX):
            state = self.table.state()
            if state.version != self._committed:
                self._check_alone(source, state)
            if truncated and not self.empty:
                # Before the commit that records it, so after a crash it is repeated; nothing was written in between.
                self.table.remove(KeyRange())
                state, truncated = self.table.state(), False
            columns = self.pending.columns() if self.pending.rows else self.table.schema.arrow
            rows = RowInput(((source, columns),), self.pending.source_rows(source))
            write = Write(name, operation=self.pending.operation, sequence=state.next_sequence)
            try:
                self._committed = add(self.table, rows, write).version
            except RejectedError as error:
                if error.code is not Code.KEYS_CHANGED:
                    raise
                continue
            break
        else:
            raise Code.COMMIT_CONTENDED(
                f"table {self.table.name}: other writers added rows before each of {ATTEMPTS_MAX} attempts; let the "
                "follower alone write it",
                attempts=ATTEMPTS_MAX,
            )
        self.positions.update(moved)
        self.changes += self.pending.rows
        self.pending.clear()

    def _check_alone(self, source: str, state: TableState) -> None:
        """Raise ContentionError if another follower has committed changes: those that are pending may be older."""
        found, generation = applied(state.requests, source)
        if generation != self.generation or any(at > self.positions.get(one, 0) for one, at in found.items()):
            raise Code.SOURCE_BUSY(
                f"table {self.table.name}: another follower of {source} has committed changes, while this one was "
                "suspended or beside it; one is enough",
                transient=True,
            )


def schema_of(columns: SourceColumns) -> Schema:
    """Return the schema of a new table. Raises UsageError for a column or a key type that a table cannot have."""
    values = {name: kind for name, kind in columns.types.items() if name not in columns.key}
    return Schema(row_key={name: columns.types[name] for name in columns.key}, values=values)


DEAD_LETTERS = Schema(
    row_key={"source": "string", "stream": "int64"},
    sort_key={"position": "int64"},
    values={"target": "string", "reason": "string", "key": "binary", "value": "binary"},
)
"""The schema of a table of changes that could not be applied; ``key`` and ``value`` are as they came."""
