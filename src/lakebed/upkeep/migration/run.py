"""Adds the rows of a foreign table to a table, in one commit, and verifies their number.

The rows are a stream into the write of :mod:`lakebed.write.run`, which sorts them in bounded memory. The stream fails
at its end if the number of rows differs from the source's metadata, so that a partly read source is never committed.

:mod:`lakebed.jobs.bulk_import.migration` does the same by tasks, with :meth:`Selection.conformer` and
:func:`check_count`.

A version of a source is added once. Of a later one only the rows that are new are added, where the source can say which
they are; else it is refused, since rows would be there twice, or replace what was written since.

Core types: :class:`MigrationPlan`, :class:`Selection`, :class:`MigrationReport`.

Errors: those of a write; ROWS_LOST if the numbers differ; SOURCE_DUPLICATE if it is not known which rows are new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.errors import Code
from lakebed.files.parquet.sizes import BATCH_BYTES, slice_rows
from lakebed.model.checks import check_request_key
from lakebed.model.reports import WorkReport
from lakebed.model.state.migration_keys import migrated_as, versions_migrated
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


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """The rows to add, and the request key of their commit. ``done`` is the version of the table that has them already.
    ``since`` is the version of the source whose rows the table has, if only later ones are added.
    """

    source: ForeignTable
    request_key: str
    done: int | None = None
    since: str | None = None


def check_again(job_id: str | None, *, again: bool) -> None:
    """Raise UsageError for ``again`` without a job id: a repeat of the call would add the rows once more."""
    if again and job_id is None:
        raise Code.ARGUMENTS_CONFLICT("--again needs --job-id, by which a repeat adds nothing")


def plan(state: TableState, source: ForeignTable, job_id: str | None, *, again: bool = False) -> MigrationPlan:
    """Return which rows of the source to add: all of them, or those since the version that was migrated last.

    A version is taken once, with a job id or without. With ``again`` all rows are added whatever was migrated before,
    once for the job id.

    Raises UsageError if an earlier version was migrated, and the source cannot say which rows are new.
    """
    check_again(job_id, again=again)
    key = source.key(job_id)
    done = None
    if job_id is not None:
        for text in (job_id, key.text):
            check_request_key("job_id", text)
        done = state.answered(job_id) or migrated_as(state, job_id)
    taken = versions_migrated(state, key.origin)
    if done is None and not again:
        done = taken.get(key.version)
    if done is not None or again or not taken:
        return MigrationPlan(source, key.text, done)
    before, here = [*taken.items()][-1]
    added = None if source.since is None else source.since(before)
    if added is None:
        raise Code.SOURCE_DUPLICATE(_why_not_migrated(state, source, before, here), name=source.name)
    return MigrationPlan(added, key.text, since=before)


def _why_not_migrated(state: TableState, source: ForeignTable, before: str, here: int) -> str:
    if source.version is None:
        said = f"{source.name} was migrated at version {here} of the table, and its files have changed since"
    else:
        said = f"version {before} of {source.name} was migrated at version {here} of the table"
        which = f"and version {source.version}"
        if source.since is None:
            said += f", {which} does not say which of its rows are new"
        else:
            said += f", {which} also changes or removes rows, or moves them to other files"
    return (
        f"{said}. Write what is new by `lakebed write`, or migrate to another table; --again with a --job-id takes all "
        f"rows, which {_AGAIN_MEANS[state.merge.kept]}"
    )


_AGAIN_MEANS = {
    None: "adds rows that are there a second time",
    0: "adds those with new keys",
    -1: "replaces rows with equal keys, also those that were written here since",
}
"""What a migration of all rows does, by which of equal rows a table keeps."""


@dataclass(frozen=True, slots=True)
class MigrationReport(WorkReport):
    """The result of a migration. ``rows_expected`` is None if the source has no row count. If the table had the
    rows of an earlier version of the source, ``since_version``, only later ones were read.
    """

    table: str
    version: int | None
    source: str
    source_version: str | None
    rows_read: int
    rows_expected: int | None
    repeated: bool = False
    since_version: str | None = None

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        if self.repeated:
            return f"migrated before, at version {self.version}; nothing was added"
        counted = "as many as the source says" if self.rows_expected is not None else "the source has no exact count"
        of = "" if self.source_version is None else f", of version {self.source_version} there"
        added = "" if self.since_version is None else f", those since version {self.since_version}"
        return f"{count_text(self.rows_read, 'row')} migrated{of}{added}; {counted}"

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


def report_of(
    table: Table, planned: MigrationPlan, version: int | None, read: int, *, repeated: bool
) -> MigrationReport:
    """Return the report of a migration that was committed at the version, now or before."""
    source = planned.source
    rows = (0 if repeated else read), source.rows
    return MigrationReport(table.name, version, source.name, source.version, *rows, repeated, planned.since)


def check_count(source: ForeignTable, rows: int, *, table: Table) -> None:
    """Raise DamagedError if the number of rows read differs from the source's metadata."""
    if source.rows is not None and source.rows != rows:
        raise Code.ROWS_LOST(
            f"{source.name} gave {rows:,} rows, and its metadata says {source.rows:,}; nothing was added. Migrate "
            "while nothing writes it, and check it with its own tools",
            table=table.name,
        )


def migrate(
    table: Table, planned: MigrationPlan, chosen: Selection, progress: Callable[[int, int | None], None]
) -> MigrationReport:
    """Add the rows of a plan, in one commit. ``progress`` is given the rows so far, and those in total if known.

    Raises as :meth:`lakebed.table.table.Table.write`, and SchemaMismatchError for columns that do not fit.
    """
    if planned.done is not None:
        return report_of(table, planned, planned.done, 0, repeated=True)
    read = 0
    source, state, settings = planned.source, table.state(), table.settings_in_force()
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
                progress(read, source.rows)
        check_count(source, read, table=table)

    added = add(table, pa.RecordBatchReader.from_batches(encoder.schema.arrow, rows()), Write(planned.request_key))
    return report_of(table, planned, added.version, read, repeated=added.repeated)
