"""Adds the rows of a foreign table to a table, in one commit, and verifies their number.

The rows are a stream into the write of :mod:`lakebed.write.run`, which sorts them in bounded memory. The stream fails
at its end if the number of rows differs from the source's metadata, so that a partly read source is never committed.

:mod:`lakebed.jobs.bulk_import.migration` does the same by tasks, with :meth:`Selection.conformer` and
:func:`check_count`.

Core types: :class:`Selection`, :class:`MigrationReport`. Errors: those of a write; ROWS_LOST if the numbers differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.errors import Code
from lakebed.files.parquet.sizes import BATCH_BYTES, slice_rows
from lakebed.model.reports import WorkReport
from lakebed.model.state.time_travel import committed_at
from lakebed.model.state.transactions.schema_growth import with_fields
from lakebed.model.wording import count_text
from lakebed.upkeep.migration.delta import open_delta
from lakebed.upkeep.migration.hive import open_hive
from lakebed.upkeep.migration.iceberg import open_iceberg
from lakebed.upkeep.migration.icedb import open_icedb
from lakebed.upkeep.migration.sleeper import open_sleeper
from lakebed.write.conformer import Conformer
from lakebed.write.growth import Growth
from lakebed.write.row_encoder import RowEncoder
from lakebed.write.run import Write, add
from lakebed.write.sources import plain

if TYPE_CHECKING:
    from lakebed.model.schema import Schema
    from lakebed.model.state.table_state import TableState
    from lakebed.table.table import Table
    from lakebed.upkeep.migration.foreign_table import ForeignTable, SourceLocation

SYSTEMS: Mapping[str, Callable[[SourceLocation], ForeignTable]] = {
    "delta": open_delta,
    "iceberg": open_iceberg,
    "hive": open_hive,
    "sleeper": open_sleeper,
    "icedb": open_icedb,
}


def request_key_of(state: TableState, source: ForeignTable, job_id: str | None) -> str:
    """Return the key under which the migration is committed: the job id, else one of the source and its version, so
    that a repeat adds nothing.

    Raises UsageError if another version of the source was migrated without a job id, and the table would keep the rows
    of both.
    """
    if job_id is not None:
        return job_id
    keeps_one_row = state.merge.kept is not None
    if keeps_one_row or state.answered(source.request_key) is not None:
        return source.request_key
    for key, answer in state.requests.items():
        if key.startswith(source.request_prefix):
            before = key.removeprefix(source.request_prefix)
            changed = (
                f"{source.name} was migrated at version {answer.version} of the table, and its files have changed since"
                if source.version is None
                else f"version {before} of {source.name} was migrated at version {answer.version} of the table, and "
                f"this is version {source.version}"
            )
            raise Code.SOURCE_DUPLICATE(
                f"{changed}: the rows of both would be there twice. Write what is new by `lakebed write`, migrate to "
                "another table, or add all rows nonetheless with a job id of your own (--job-id)",
                name=source.name,
            )
    return source.request_key


@dataclass(frozen=True, slots=True)
class MigrationReport(WorkReport):
    """The result of a migration. ``rows_expected`` is None if the source has no row count."""

    table: str
    version: int | None
    source: str
    source_version: str | None
    rows_read: int
    rows_expected: int | None
    repeated: bool = False

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        if self.repeated:
            return f"migrated before, at version {self.version}; nothing was added. Another job id adds the rows again"
        counted = "as many as the source says" if self.rows_expected is not None else "the source has no exact count"
        of = "" if self.source_version is None else f", of version {self.source_version} there"
        return f"{count_text(self.rows_read, 'row')} migrated{of}; {counted}"

    @property
    def done(self) -> tuple[int, None]:
        """The rows that were read."""
        return self.rows_read, None


@dataclass(frozen=True, slots=True)
class Selection:
    """The columns to read, and how: the source's column of a field, fields that are also read from text or formatted as
    text, omitted columns. Values of other types are converted without being named here if none is lost.
    """

    columns: Mapping[str, str]
    casts: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()

    def conformer(self, schema: Schema) -> Conformer:
        """Return the conversion of rows of the source to rows of a table with the schema."""
        return Conformer(schema, columns=self.columns, casts=self.casts, ignored=self.ignored)

    def new_columns(self, source: ForeignTable) -> pa.Schema:
        """Return the columns for which a table may get fields if its setting ``schema_growth`` is ``add``."""
        taken = {*self.ignored, *self.columns.values()}
        return pa.schema([one for one in source.schema if one.name not in taken])


def repeated_report(table: Table, state: TableState, source: ForeignTable, request_key: str) -> MigrationReport | None:
    """Return the report of a migration that was committed before; None: it was not."""
    first = committed_at(state, "job_id", request_key)
    if first is None:
        return None
    return MigrationReport(table.name, first, source.name, source.version, 0, source.rows, repeated=True)


def check_count(source: ForeignTable, rows: int, *, table: Table) -> None:
    """Raise DamagedError if the number of rows read differs from the source's metadata."""
    if source.rows is not None and source.rows != rows:
        raise Code.ROWS_LOST(
            f"{source.name} gave {rows:,} rows, and its metadata says {source.rows:,}; nothing was added. Migrate "
            "while nothing writes it, and check it with its own tools",
            table=table.name,
        )


def migrate(
    table: Table, source: ForeignTable, chosen: Selection, job_id: str | None, progress: Callable[[int], None]
) -> MigrationReport:
    """Add all rows of the source, in one commit; a repeat with the same job id adds nothing, nor one of the same
    version without a job id.

    Raises as :meth:`lakebed.table.table.Table.write` and :func:`request_key_of`, and SchemaMismatchError for columns
    that do not fit.
    """
    read = 0
    state, settings = table.state(), table.settings_in_force()
    request_key = request_key_of(state, source, job_id)
    if (repeated := repeated_report(table, state, source, request_key)) is not None:
        return repeated
    growth, schema = Growth.of(state, settings), table.schema
    if growth is not None:
        schema = with_fields(schema, growth.fields(schema, [(source.name, chosen.new_columns(source))], ()))
    bytes_max = settings.value_bytes_max
    conformer = replace(chosen.conformer(schema), grows=growth is not None, value_bytes_max=bytes_max)
    encoder = RowEncoder(conformer, state.merge)

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal read
        encoder.check(source.schema, source.name)
        for batch in source.batches():
            for part in slice_rows(plain(batch), BATCH_BYTES):
                yield encoder.conform(part, source.name, rows_before=read)
                read += part.num_rows
                progress(read)
        check_count(source, read, table=table)

    added = add(table, pa.RecordBatchReader.from_batches(encoder.schema.arrow, rows()), Write(request_key))
    return MigrationReport(
        table.name, added.version, source.name, source.version, read, source.rows, repeated=added.repeated
    )
