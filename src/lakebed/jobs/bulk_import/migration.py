"""Migrates a table of another system by tasks: they read its parts, and their rows are sorted as in a bulk import.

Each task reads some parts (:class:`lakebed.upkeep.migration.foreign_table.RowsPart`) as a migration in one process
does, with deletes applied, and stages a sorted run. The rows are counted against the source before the shuffle, and
one entry commits them. No connector of the other system for Spark is needed.

Errors: those of a bulk import; DamagedError (ROWS_LOST) if the source says another number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.files.parquet.sizes import BATCH_BYTES, slice_rows
from lakebed.jobs.bulk_import.importer import Importer, ImportRequest
from lakebed.upkeep.migration.run import MigrationPlan, MigrationReport, Selection, check_count, report_of
from lakebed.write.run import check_runs
from lakebed.write.source_rows import SourceRows
from lakebed.write.sources import plain

if TYPE_CHECKING:
    from lakebed.upkeep.migration.foreign_table import RowsPart

TASK_BYTES = 256 * 1024 * 1024
"""Parts are read together up to this size. A larger part is one task, which spills what does not fit into memory."""


def migrate_rows(importer: Importer, planned: MigrationPlan, chosen: Selection) -> MigrationReport:
    """Add the rows of a plan, in one commit, as :func:`lakebed.upkeep.migration.run.migrate`."""
    table, source = importer.table, planned.source
    if planned.done is not None:
        return report_of(table, planned, planned.done, 0, repeated=True)
    state = table.state()
    check_runs(table)
    columns = pa.schema([one for one in source.schema if one.name not in chosen.ignored])
    counted = partial(check_count, source, table=table)
    made = importer.staged(bundled(source.parts()), _rows_of_parts, chosen.conformer, [(source.name, columns)], counted)
    version, repeated = importer.commit(made.files, ImportRequest(planned.request_key, state.version))
    return report_of(table, planned, version, made.rows_read, repeated=repeated)


def bundled(parts: Sequence[RowsPart]) -> list[tuple[RowsPart, ...]]:
    """Return the parts of each task: neighbours up to :data:`TASK_BYTES`, at least one."""
    tasks: list[list[RowsPart]] = []
    size = 0
    for part in parts:
        if not tasks or size + part.size_bytes > TASK_BYTES:
            tasks.append([])
            size = 0
        tasks[-1].append(part)
        size += part.size_bytes
    return [tuple(task) for task in tasks]


def _rows_of_parts(parts: Sequence[RowsPart]) -> Iterator[SourceRows]:
    """Return the rows of the parts of a task."""
    for part in parts:
        before = 0
        for rows in part.batches():
            for piece in slice_rows(plain(rows), BATCH_BYTES):
                yield SourceRows(piece, part.name, before)
                before += piece.num_rows
