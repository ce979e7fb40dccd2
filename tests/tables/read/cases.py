"""Small tables on a local root: files of given rows in given partitions, as a commit would leave them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from lakebed import Schema
from lakebed.files.parquet.file_writer import write_run
from lakebed.files.parquet.layout import Layout
from lakebed.files.parquet.open_files import OpenFiles
from lakebed.files.parquet.read_cache import ReadCache
from lakebed.model.files import DataFile, data_name
from lakebed.model.keys import EncodedRange
from lakebed.model.settings import Settings
from lakebed.read.rows.plan import PartitionQuery, QueryPlan
from lakebed.storage import connect
from lakebed.storage.contract import Storage
from lakebed.write.run import send_run

TABLE = "table-0001"
LETTERS = Schema({"k": "string"}, {"n": "int64"}, {"v": "string"})


def layout(schema: Schema, **settings: Any) -> Layout:
    """Files with pages and row groups small enough to have several of each."""
    return Layout.of(schema, Settings(**{"page_rows": 100, "row_group_rows": 1000, **settings}))


def stored(storage: Storage, schema: Schema, rows: pa.Table, scratch: Path, **settings: Any) -> tuple[DataFile, ...]:
    """The rows, sorted, as the data files of one run in the store."""
    ordered = rows.combine_chunks().sort_by([(name, "ascending") for name in schema.sort_names])
    run = write_run(ordered.to_batches(), layout(schema, **settings), scratch, rows_estimate=rows.num_rows)
    job = f"job-{len(list(storage.list(''))) // 2:08d}"
    return tuple(new.file for new in send_run(storage, TABLE, run, job=job))


def files_kept_in(cache: ReadCache | None = None) -> OpenFiles:
    """The open files of a table, in a cache of their own."""
    return OpenFiles(connect("memory://files"), TABLE, lambda _file: True, cache or ReadCache(1 << 20))


def lettered(text: str, first: int = 0) -> pa.Table:
    """A row for each letter: ``lettered("bab")`` has keys b, a, b, numbered as they come."""
    rows = [{"k": letter, "n": first + i, "v": letter * 3} for i, letter in enumerate(text)]
    return pa.Table.from_pylist(rows, schema=LETTERS.arrow)


def one_partition(files: tuple[DataFile, ...], *ranges: EncodedRange, schema: Schema = LETTERS) -> QueryPlan:
    """A plan over a single partition; the ranges must be disjoint and ascend."""
    return QueryPlan((PartitionQuery(1, ranges, files),), schema)


def object_path(root: Path, file: DataFile) -> Path:
    """Where a data file lies below a local root."""
    return root / data_name(TABLE, file)


def parts_of(stream: IO[bytes]) -> Callable[[Sequence[tuple[int, int]]], list[bytes]]:
    """What reads (offset, length) parts of an open file."""
    return lambda places: [os.pread(stream.fileno(), length, offset) for offset, length in places]
