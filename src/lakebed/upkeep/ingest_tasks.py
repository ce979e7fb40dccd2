"""The task of an ingest job: reads the files of requests, sorts their rows and stores them as new files.

Any process can run one, with only the task and the store. In a table with a merge mode, the rows are merged in the
order of the parts, and of the rows in each.

Core types: :class:`IngestTask`, :class:`IngestTarget`, :class:`Ingested`.

Errors: those of the files, which name the file at fault; Error if rows are missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from lakebed.errors import Code, Error
from lakebed.files.parquet.layout import Layout
from lakebed.files.parquet.sizes import pages_bytes_max
from lakebed.model.files import NewFile
from lakebed.model.foreign_errors import error_text, translate_errors
from lakebed.model.key_columns import inside
from lakebed.model.keys import EncodedRange
from lakebed.model.merge_modes import KEEP_ALL, MergeMode
from lakebed.model.settings import Settings
from lakebed.model.state.transactions import Source
from lakebed.write.conformer import Conformer
from lakebed.write.growth import Growth
from lakebed.write.plan import Method
from lakebed.write.row_encoder import RowEncoder
from lakebed.write.send import check_rows, send_run
from lakebed.write.sources import columns_of, read_file

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.model.schema import Schema
    from lakebed.storage.contract import Storage


@dataclass(frozen=True, slots=True)
class JobPart:
    """A file to ingest, except for the rows with keys in the ranges ``without``."""

    file: Source
    without: tuple[EncodedRange, ...] = ()


@dataclass(frozen=True, slots=True)
class IngestTarget:
    """The common part of all tasks of a batch. ``cuts`` are the partition boundaries, at which summaries are exact.
    With a ``growth``, each task adds fields for the columns of its own files. ``merge`` is the table's merge mode.
    """

    table_id: str
    layout: Layout
    memory_limit_bytes: int
    cuts: tuple[bytes, ...]
    value_bytes_max: int = Settings().value_bytes_max
    growth: Growth | None = None
    merge: MergeMode = KEEP_ALL


@dataclass(frozen=True, slots=True)
class IngestTask:
    """Sort the rows of these files into new files of the job."""

    job: str
    method: Method
    parts: tuple[JobPart, ...]
    target: IngestTarget


@dataclass(frozen=True, slots=True)
class Ingested:
    """The files that a task made, and the number of their rows."""

    files: tuple[NewFile, ...]
    rows_read: int


def run_ingest_task(task: IngestTask, storage: Storage, scratch: Path) -> Ingested:
    """Read, sort and store the files of one task. Fails if a file has changed since it was found.

    Raises:
        DamagedError, SchemaMismatchError, BadKeyError: invalid content of a file; names it.
        StorageError: a file has changed or cannot be read; names it. Or ``scratch`` has no space for sorting.
    """
    from lakebed.files.sorting.sort import sort_runs

    target, growth, taken = task.target, task.target.growth, 0
    columns = (columns_of(part.file, storage) for part in task.parts)
    layout = target.layout if growth is None else growth.layout(target.layout, columns)

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        conformer = Conformer(layout.schema, value_bytes_max=target.value_bytes_max, grows=growth is not None)
        encoder = RowEncoder(conformer, target.merge)
        pages_bytes = pages_bytes_max(target.memory_limit_bytes)
        for part in task.parts:
            for batch in read_file(part.file, encoder, pages_bytes=pages_bytes, home=storage):
                rows = _outside(batch, part.without, layout.schema)
                taken += rows.num_rows
                yield rows

    def failed(error: BaseException) -> Error:
        if isinstance(error, OSError):
            return Code.TEMPORARY_STORAGE_FAILED(f"sorting needs room in {scratch}: {error}; free some")
        return Code.MERGE_FAILED(f"the rows cannot be sorted: {type(error).__name__}: {error_text(error)}")

    with translate_errors(failed):
        run = sort_runs(
            batches(),
            layout,
            scratch,
            memory_limit_bytes=target.memory_limit_bytes,
            cuts=target.cuts,
            mode=target.merge,
        )
    check_rows(taken, sum(file.rows for file in run), target.merge)
    return Ingested(send_run(storage, target.table_id, run, job=task.job), taken)


def _outside(batch: pa.RecordBatch, ranges: Sequence[EncodedRange], schema: Schema) -> pa.RecordBatch:
    """Return the rows whose keys are in none of the ranges."""
    for keys in ranges:
        batch = batch.filter(pc.invert(inside(schema.codec.encode_columns(batch), keys)))
    return batch
