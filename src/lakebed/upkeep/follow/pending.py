"""TableChanges of one table since its last commit, in order, in bounded memory.

A source adds batches of rows with the columns of the table and the hidden columns of row kinds
(:mod:`lakebed.model.row_kinds`): whole rows, deletes, and partial rows with a flag for each value field that they have.
Batches beyond a bound are kept in a file, so a transaction of any size becomes one commit. A truncation drops what was
added before it.

Core types: :class:`PendingChanges`, :class:`Memory`. Errors: StorageError if the disk is full.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from lakebed.model.row_kinds import KIND, is_hidden
from lakebed.storage.disk_space import writing_to
from lakebed.write.row_encoder import Action, Operation
from lakebed.write.source_rows import SourceRows

STORED = Operation(Action.STORED)


class Memory:
    """The memory that the changes of all tables share; beyond it, those of the table with the most go to a file."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._users: list[PendingChanges] = []

    @property
    def used_bytes(self) -> int:
        """The bytes in memory."""
        return sum(one.memory_bytes for one in self._users)

    def join(self, user: PendingChanges) -> None:
        """Count the changes of a table."""
        self._users.append(user)

    def relieve(self) -> None:
        """Make room, if there is none."""
        while self.used_bytes > self.bytes_max:
            max(self._users, key=lambda one: one.memory_bytes).spill()


class PendingChanges:
    """Batches in the order in which they were added. ``folder`` is for files, which it removes."""

    def __init__(self, folder: Path, memory: Memory) -> None:
        self.truncated = False
        self.rows = 0
        self.memory_bytes = 0
        self._folder = folder
        self._memory = memory
        self._batches: list[pa.RecordBatch] = []
        self._files: list[Path] = []
        self._numbers = 0
        memory.join(self)

    def __bool__(self) -> bool:
        return self.truncated or self.rows > 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch."""
        self._batches.append(batch)
        self.memory_bytes += batch.nbytes
        self.rows += batch.num_rows
        self._memory.relieve()

    def truncate(self) -> None:
        """Drop what was added, and all rows that the table has."""
        self.clear()
        self.truncated = True

    def clear(self) -> None:
        """Forget everything, after a commit."""
        for path in self._files:
            path.unlink(missing_ok=True)
        self._files, self._batches = [], []
        self.memory_bytes = self.rows = 0
        self.truncated = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the batches in order."""
        for path in self._files:
            with pa.memory_map(str(path)) as source:
                yield from pa.ipc.open_stream(source)
        yield from self._batches

    def columns(self) -> pa.Schema:
        """Return the columns of all batches, those of the last ones with their types."""
        found: dict[str, pa.Field] = {}
        for schema in (*(self._schema_of(path) for path in self._files), *(one.schema for one in self._batches)):
            found |= {column.name: column for column in schema}
        return pa.schema(list(found.values()))

    @property
    def operation(self) -> Operation:
        """How the batches are written: as plain rows if there is nothing else among them."""
        return STORED if KIND in self.columns().names else Operation()

    def source_rows(self, source: str) -> Iterator[SourceRows]:
        """Return the rows, all with the same columns: a partial row has none of the columns that its batch lacks."""
        columns, before = self.columns(), 0
        for batch in self.batches():
            yield SourceRows(_filled(batch, columns), source, before)
            before += batch.num_rows

    def spill(self) -> None:
        """Write the batches to files, one for each of their schemas."""
        with writing_to(self._folder):
            groups: list[list[pa.RecordBatch]] = []
            for batch in self._batches:
                if not groups or groups[-1][0].schema != batch.schema:
                    groups.append([])
                groups[-1].append(batch)
            for group in groups:
                self._numbers += 1
                path = self._folder / f"{id(self)}-{self._numbers}.arrow"
                self._files.append(path)
                with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, group[0].schema) as writer:
                    for batch in group:
                        writer.write_batch(batch)
        self._batches, self.memory_bytes = [], 0

    @staticmethod
    def _schema_of(path: Path) -> pa.Schema:
        with pa.memory_map(str(path)) as source:
            return pa.ipc.open_stream(source).schema


def _filled(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    def column(field: pa.Field) -> pa.Array:
        if field.name in batch.schema.names:
            found = batch.column(field.name)
            return found if found.type == field.type else found.cast(field.type)
        if field.name != KIND and is_hidden(field.name):
            return pa.repeat(pa.scalar(value=False), batch.num_rows)
        return pa.nulls(batch.num_rows, field.type)

    return pa.RecordBatch.from_arrays([column(field) for field in columns], schema=columns)
