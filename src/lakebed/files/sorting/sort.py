"""Sorts rows: unsorted batches become one sorted run.

:func:`sort_runs` takes rows in chunks of a known size, each sorted in memory. A single chunk is written at once;
several are spilled as sorted Arrow files and merged. The memory of this external merge sort follows a setting.
DataFusion's own fails under a small pool, because its last merge may not fit beside what is buffered.

A chunk is sorted stably, by integers of its keys (:mod:`lakebed.files.sorting.key_words`). By a merge mode other than
``KeepAll`` rows with equal merge keys become one, in the order of the input: a chunk is merged before it is written,
and the chunks are merged in their order. A run then has one row for each merge key, however many the input has.

No sorted copy of a chunk is held. Another thread makes its batches, some ahead of those that are written
(:func:`_made_ahead`), so that rows are gathered and encoded at the same time.

Rules. Local paths only; scratch files are deleted when a call returns or raises.

Errors: StorageError if there is no room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.files.merging.row_merger import RowMerger
from lakebed.files.parquet.file_writer import as_schema, write_run
from lakebed.files.parquet.layout import Layout, SortedFile
from lakebed.files.parquet.sizes import gather
from lakebed.files.sorting.key_words import ascending, chunk_limits, key_words
from lakebed.files.sorting.merge_inputs import write_spill
from lakebed.model.arrays import of_integers
from lakebed.model.merge_modes import KEEP_ALL
from lakebed.model.row_kinds import KIND, merge_schema, visible_schema
from lakebed.storage.disk_space import scratch_folder

if TYPE_CHECKING:
    from lakebed.model.merge_modes import MergeMode
    from lakebed.model.schema import Schema

_CHUNK_SHARE = 3
"""A chunk is held twice at most, while the columns of its batches are copied into one piece each; then once, beside the
batches made ahead and a row group."""

_SMALL_ROWS = 100_000
"""No thread is started for fewer rows."""

_SORT_BATCH_ROWS = 32_768
_SORT_BATCH_BYTES = 8 * 1024 * 1024

_COPIED_AT_ONCE = 2
"""Columns that are copied into one piece."""

_AHEAD_SHARE = 8
_AHEAD_BYTES_MAX = 64 * 1024 * 1024
"""The bytes of a row group: the next one is made while one is encoded."""


def sort_runs(  # noqa: PLR0913 - input, layout, folder, memory, cuts and mode
    batches: Iterable[pa.RecordBatch],
    layout: Layout,
    scratch: Path,
    *,
    memory_limit_bytes: int,
    cuts: Sequence[bytes] = (),
    mode: MergeMode = KEEP_ALL,
) -> list[SortedFile]:
    """Sort all rows and write them as one run in the folder ``scratch``; see
    :func:`~lakebed.files.parquet.file_writer.write_run`.

    Memory follows ``memory_limit_bytes``, not the size of the input. Beyond one chunk, ``scratch`` also holds the rows
    as lightly compressed spills.

    By a ``mode`` other than ``KeepAll`` the run has one row for each merge key. Deletes and partial rows stay; the
    schema of the layout has the hidden fields if the rows have them.
    """
    exhausted = False

    def watched() -> Iterator[pa.RecordBatch]:
        nonlocal exhausted
        yield from batches
        exhausted = True

    schema, limit = layout.schema, memory_limit_bytes
    ahead = min(_AHEAD_BYTES_MAX, limit // _AHEAD_SHARE)
    rows = (as_schema(batch, schema) for batch in watched())
    chunks = gather(rows, *chunk_limits(limit, _CHUNK_SHARE))
    chunk = next(chunks, None)
    if chunk is None:
        return []
    if exhausted:
        count = chunk.num_rows
        ordered = _sorted_rows(chunk, schema, mode, ahead_bytes=ahead)
        # Only the sort holds the chunk, and releases what it has copied.
        del chunk
        return write_run(ordered, layout, scratch, rows_estimate=count, cuts=cuts, memory_limit_bytes=limit)

    from lakebed.files.sorting.merge import merge_runs

    with scratch_folder("sort", scratch) as folder:
        spills: list[Path] = []
        while chunk is not None:
            ordered = _sorted_rows(chunk, schema, mode, ahead_bytes=ahead)
            chunk = None
            spills.append(write_spill(ordered, schema.arrow, folder / f"{len(spills):06d}.arrow"))
            # Release the sorted rows before the next chunk is gathered.
            del ordered
            chunk = next(chunks, None)
        # Return what the sort has freed: the merge uses another allocator.
        pa.default_memory_pool().release_unused()
        return merge_runs(spills, layout, scratch, key_range=None, memory_limit_bytes=limit, cuts=cuts, mode=mode)


# -- sorting ------------------------------------------------------------------------------------------------------


def _sorted_rows(chunk: pa.Table, schema: Schema, mode: MergeMode, *, ahead_bytes: int) -> Iterator[pa.RecordBatch]:
    """Return the sorted rows of a chunk; by a mode other than ``KeepAll`` one for each merge key, in the order of the
    chunk before. At most ``ahead_bytes`` of a large chunk are sorted before they are taken.
    """
    if mode.keeps_all:
        return _in_order(chunk, schema, ahead_bytes)
    visible = visible_schema(schema)
    order = merge_schema(mode, visible, hidden=KIND in schema.by_name)
    return RowMerger(mode, visible, complete=False).merge(_in_order(chunk, order, ahead_bytes))


def _in_order(chunk: pa.Table, schema: Schema, ahead_bytes: int) -> Iterator[pa.RecordBatch]:
    """Return the rows of a chunk in the order of a schema; those with equal sort columns keep theirs."""
    rows = _gathered(chunk, schema)
    if chunk.num_rows <= _SMALL_ROWS:
        return rows
    return _made_ahead(rows, ahead_bytes // (_batch_rows(chunk) * _row_bytes(chunk)))


def _made_ahead(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """Return the batches, of which a thread makes ``count``, at least one, before they are taken."""
    thread = ThreadPoolExecutor(1, "lakebed-sort")
    try:
        ahead = deque(thread.submit(next, batches, None) for _ in range(max(1, count)))
        while (batch := ahead.popleft().result()) is not None:
            ahead.append(thread.submit(next, batches, None))
            yield batch
    finally:
        thread.shutdown(wait=True, cancel_futures=True)


def _gathered(chunk: pa.Table, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Return the rows of a chunk in order, in batches. The chunk is released when it was copied."""
    batch_rows, columns, stored = _batch_rows(chunk), chunk.columns, chunk.schema
    del chunk
    with ThreadPoolExecutor(min(_COPIED_AT_ONCE, pa.cpu_count()), "lakebed-sort") as threads:
        list(threads.map(partial(_copy_into_one_piece, columns), range(len(columns))))
    rows = pa.RecordBatch.from_arrays(columns, schema=stored)
    del columns
    order = of_integers(ascending(key_words(rows, [schema.by_name[name] for name in schema.sort_names])))
    for begin in range(0, len(order), batch_rows):
        yield rows.take(order.slice(begin, batch_rows))


def _copy_into_one_piece(columns: list[pa.ChunkedArray | pa.Array], index: int) -> None:
    """Put one piece into the place of a column, whose batches are then released."""
    columns[index] = columns[index].combine_chunks()


def _batch_rows(chunk: pa.Table) -> int:
    """Return the number of rows of a sorted batch: fewer if they are wide, since offsets of strings have 32 bits."""
    return max(1, min(_SORT_BATCH_ROWS, _SORT_BATCH_BYTES // _row_bytes(chunk)))


def _row_bytes(chunk: pa.Table) -> int:
    return int(max(1, chunk.nbytes // chunk.num_rows))
