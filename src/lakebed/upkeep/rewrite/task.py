"""The task of a rewrite: reads the rows of one file, and writes the remaining rows, changed or not, as new files.

A file is read twice. The first read covers only the columns that the predicate and the expressions name, and only rows
for which the predicate may be true: if none of them changes, the file is kept and nothing is written. Otherwise all of
its rows are read in key order and written again. Both reads stream, so memory follows ``memory_limit_bytes``.

Core types: :class:`RewriteTask`, :class:`RewrittenFile`.

Errors: those of a row (:mod:`lakebed.upkeep.rewrite.rows`), which name its key; DamagedError names the file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakebed.errors import Code
from lakebed.model.files import DataFile, NewFile, data_name
from lakebed.model.keys import EncodedRange, by_bits
from lakebed.model.row_kinds import with_hidden
from lakebed.write.run import send_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from lakebed.engine.predicate import Predicate
    from lakebed.files.parquet.layout import Layout
    from lakebed.model.schema import Schema
    from lakebed.storage.contract import Storage
    from lakebed.upkeep.rewrite.plan import RowChange
    from lakebed.upkeep.rewrite.rows import RowCounts


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Rewrite the rows that a file has in the ``slices``; ``cuts`` are the partition boundaries inside them."""

    job: str
    table_id: str
    file: DataFile
    slices: tuple[EncodedRange, ...]
    cuts: tuple[bytes, ...]
    change: RowChange
    layout: Layout
    value_bytes_max: int
    memory_limit_bytes: int
    rows: int

    @property
    def schema(self) -> Schema:
        """The columns of the new files: hidden ones too, if the file has deletes or partial rows."""
        return with_hidden(self.layout.schema) if self.file.markers else self.layout.schema


@dataclass(frozen=True, slots=True)
class RewrittenFile:
    """The result of a task. ``changed`` counts the rows for which ``where`` is true; their values may be the same as
    before.

    ``files`` is None if no row differs: the file is kept. It is empty if no row is left.
    """

    job: str
    rows: int
    deleted: int
    changed: int
    files: tuple[NewFile, ...] | None


def run_rewrite_task(task: RewriteTask, storage: Storage, scratch: Path) -> RewrittenFile:
    """Fetch, verify, read, write and store: the work of one task."""
    # Imported here, because the planning process does not need the engine.
    from lakebed.files.parquet.file_writer import write_run
    from lakebed.upkeep.rewrite.rows import RowRewriter

    name = data_name(task.table_id, task.file)
    with storage.fetch(name, digest=task.file.digest) as path:
        looked = _unless_changed(task, path, scratch)
        if looked is not None:
            return RewrittenFile(task.job, task.rows, 0, looked.changed, None)
        rewriter = RowRewriter(task.change, task.schema, task.value_bytes_max)

        def kept() -> Iterator[pa.RecordBatch]:
            for keys in task.slices:
                yield from map(rewriter.apply, _rows_of_file(task, path, scratch, task.schema, keys=keys))

        run = write_run(
            kept(),
            replace(task.layout, schema=task.schema),
            scratch,
            rows_estimate=task.rows,
            cuts=task.cuts,
            memory_limit_bytes=task.memory_limit_bytes,
        )
        files = send_run(storage, task.table_id, run, job=task.job)
    counts = rewriter.counts
    if sum(new.file.rows for new in files) + counts.deleted + counts.deletes != counts.rows:
        raise Code.ROWS_LOST(f"{name}: {counts.rows} rows were read, but another number was written and deleted")
    return RewrittenFile(task.job, counts.rows, counts.deleted, counts.changed, files)


def _unless_changed(task: RewriteTask, path: Path, scratch: Path) -> RowCounts | None:
    """Return the counts if no row of the file would differ; None if one would."""
    from lakebed.upkeep.rewrite.rows import RowRewriter

    narrow = RowRewriter(task.change, task.schema, task.value_bytes_max).narrow()
    rewriter = RowRewriter(task.change, narrow, task.value_bytes_max)
    first, last = task.change.ranges[0], task.change.ranges[-1]
    for keys in task.slices:
        within = keys.intersect(EncodedRange(first.min, last.max))
        for rows in _rows_of_file(task, path, scratch, narrow, keys=within, where=rewriter.concerned):
            after = rewriter.apply(rows)
            if not _are_same(after, rows):
                return None
    return rewriter.counts


def _are_same(after: pa.RecordBatch, rows: pa.RecordBatch) -> bool:
    if after is rows or after.num_rows != rows.num_rows:
        return after is rows
    return all(by_bits(one).equals(by_bits(other)) for one, other in zip(after.columns, rows.columns, strict=True))


def _rows_of_file(  # noqa: PLR0913 - which rows and columns of which file
    task: RewriteTask,
    path: Path,
    scratch: Path,
    schema: Schema,
    *,
    keys: EncodedRange,
    where: Predicate | None = None,
) -> Iterator[pa.RecordBatch]:
    from lakebed.files.sorting.merge import merge_stream

    return merge_stream(
        [path],
        schema,
        key_range=None if task.file.lies_in(keys) else keys,
        where=where,
        memory_limit_bytes=task.memory_limit_bytes,
        scratch=scratch,
    )
