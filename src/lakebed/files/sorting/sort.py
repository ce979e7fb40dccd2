"""Sorts rows: unsorted batches become one sorted run, or the pieces that the map tasks of a bulk import send.

:func:`sort_runs` takes rows in chunks of a known size, each sorted in memory. A single chunk is written at once;
several are spilled as sorted Arrow files and merged. The memory of this external merge sort follows a setting.
DataFusion's own fails under a small pool, because its last merge may not fit beside what is buffered.

By a merge mode other than ``KeepAll`` rows with equal merge keys become one, in the order of the input: a chunk is
sorted stably and merged before it is written, and the chunks are merged in their order. A run then has one row for each
merge key, however many the input has.

Chunks with a single key of integers, dates or timestamps are sorted by NumPy, which takes a third of the CPU of an
engine. Others are sorted by Arrow if they are small, so that a small write does not load an engine, and by DataFusion,
which takes about half the time of Arrow for two million rows. DataFusion's sort is not stable, so it gets the position
of each row as a last column to sort by where that matters.

:func:`sort_runs` holds no sorted copy of a large chunk. Another thread makes its batches, some ahead of those that are
written (:func:`_made_ahead`), so that rows are gathered and encoded at the same time.

Rules. Local paths only; scratch files are deleted when a call returns or raises.

Errors: StorageError if there is no room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakebed.files.merging.row_merger import RowMerger
from lakebed.files.parquet.file_writer import as_schema, write_run
from lakebed.files.parquet.layout import Layout, SortedFile
from lakebed.files.parquet.sizes import gather
from lakebed.files.sorting.merge_inputs import arrow_options, batches_of, write_spill
from lakebed.model.arrays import Integers
from lakebed.model.keys import sorted_by
from lakebed.model.merge_modes import KEEP_ALL
from lakebed.model.row_kinds import ARRIVAL, KIND, merge_schema, visible_schema
from lakebed.storage.disk_space import scratch_folder

if TYPE_CHECKING:
    from lakebed.model.merge_modes import MergeMode
    from lakebed.model.schema import Field, Schema

PIECE_BYTES_MAX = 32 * 1024 * 1024
"""The size of a part of a piece. Of larger values, Spark's shuffle and its Python workers copy more at once than a task
should hold."""

_CHUNK_SHARE = 3
"""A chunk, its sorted copy and the keys and indices of the sort take about three times the chunk."""

_STREAMED_CHUNK_SHARE = 2
"""NumPy sorts keys and positions alone. A chunk that it sorts is held twice at most, while the columns of its batches
are copied into one piece each; then once, beside the positions, the batches made ahead and a row group."""

_NUMBERED_CHUNK_SHARE = 5
"""The sort of a chunk by the positions of its rows as well encodes keys and positions as one: about as much again, and
more for narrow rows."""

_CHUNK_BYTES_MAX = 1024 * 1024 * 1024
"""Offsets of Arrow strings have 32 bits: a chunk must stay below 2 GiB whatever the memory limit."""

SMALL_ROWS = 100_000
"""The rows up to which a chunk is sorted by Arrow, if NumPy cannot sort it."""

_SORT_BATCH_ROWS = 32_768
_SORT_BATCH_BYTES = 8 * 1024 * 1024

_COPIED_AT_ONCE = 2
"""Columns that are copied into one piece, or the keys that are sorted."""

_AHEAD_SHARE = 8
_AHEAD_BYTES_MAX = 64 * 1024 * 1024
"""The bytes of a row group: the next one is made while one is encoded."""


def sort_chunks(
    batches: Iterable[pa.RecordBatch],
    schema: Schema,
    *,
    memory_limit_bytes: int,
    mode: MergeMode = KEEP_ALL,
    small_rows: int = SMALL_ROWS,
) -> Iterator[pa.Table]:
    """Return the rows in chunks that fit the memory limit, each sorted by row key, then sort key; none is empty.

    By a ``mode`` other than ``KeepAll`` a chunk has one row for each merge key of its rows; or none, if the table's
    function drops its rows. A chunk of up to ``small_rows`` rows is sorted without the engine.
    """
    share = _CHUNK_SHARE if mode.keeps_all else _NUMBERED_CHUNK_SHARE
    for chunk in _chunks(batches, schema, memory_limit_bytes // share):
        ordered = pa.Table.from_batches(_sorted_rows(chunk, schema, mode, small_rows), schema=schema.arrow)
        # A suspended generator keeps its variables: both chunks would be held while the next one is gathered.
        del chunk
        if ordered.num_rows:
            yield ordered
        del ordered


def _chunks(batches: Iterable[pa.RecordBatch], schema: Schema, bytes_max: int) -> Iterator[pa.Table]:
    """Return the rows in chunks of a size, not empty."""
    return gather((as_schema(batch, schema) for batch in batches), 2**31 - 1, min(bytes_max, _CHUNK_BYTES_MAX))


def sort_runs(  # noqa: PLR0913 - input, layout, folder, memory, cuts and mode
    batches: Iterable[pa.RecordBatch],
    layout: Layout,
    scratch: Path,
    *,
    memory_limit_bytes: int,
    cuts: Sequence[bytes] = (),
    mode: MergeMode = KEEP_ALL,
    small_rows: int = SMALL_ROWS,
) -> list[SortedFile]:
    """Sort all rows and write them as one run in the folder ``scratch``; see
    :func:`~lakebed.files.parquet.file_writer.write_run`.

    Memory follows ``memory_limit_bytes``, not the size of the input. Beyond one chunk, ``scratch`` also holds the rows
    as lightly compressed spills.

    By a ``mode`` other than ``KeepAll`` the run has one row for each merge key. Deletes and partial rows stay; the
    schema of the layout has the hidden fields if the rows have them. ``small_rows`` is that of :func:`sort_chunks`.
    """
    exhausted = False

    def watched() -> Iterator[pa.RecordBatch]:
        nonlocal exhausted
        yield from batches
        exhausted = True

    schema, limit = layout.schema, memory_limit_bytes
    ahead = min(_AHEAD_BYTES_MAX, limit // _AHEAD_SHARE)
    chunks = _chunks(watched(), schema, limit // _chunk_share(schema, mode))
    chunk = next(chunks, None)
    if chunk is None:
        return []
    if exhausted:
        rows = chunk.num_rows
        ordered = _sorted_rows(chunk, schema, mode, small_rows, ahead_bytes=ahead)
        # Only the sort holds the chunk, and releases what it has copied.
        del chunk
        return write_run(ordered, layout, scratch, rows_estimate=rows, cuts=cuts, memory_limit_bytes=limit)

    from lakebed.files.sorting.merge import merge_runs

    with scratch_folder("sort", scratch) as folder:
        spills: list[Path] = []
        while chunk is not None:
            ordered = _sorted_rows(chunk, schema, mode, small_rows, ahead_bytes=ahead)
            chunk = None
            spills.append(write_spill(ordered, schema.arrow, folder / f"{len(spills):06d}.arrow"))
            # Release the sorted rows before the next chunk is gathered.
            del ordered
            chunk = next(chunks, None)
        # Return what the sort has freed: the merge uses another allocator.
        pa.default_memory_pool().release_unused()
        return merge_runs(spills, layout, scratch, key_range=None, memory_limit_bytes=limit, cuts=cuts, mode=mode)


def cut_pieces(chunk: pa.Table, boundaries: Sequence[bytes], schema: Schema) -> Iterator[tuple[int, pa.Table]]:
    """The non-empty slices of a sorted chunk between ascending boundary keys, each with its index (0 is below all)."""
    keys = chunk.select(schema.row_key_names).combine_chunks()
    ends = [0, *schema.codec.lower_ranks(keys, boundaries), chunk.num_rows]
    for index, (begin, end) in enumerate(pairwise(ends)):
        if end > begin:
            yield index, chunk.slice(begin, end - begin)


def encode_piece(table: pa.Table) -> Iterator[pa.Buffer]:
    """Return the rows, in order, as one compressed Arrow IPC file in parts: its bytes, 32 MiB each and the rest in the
    last.

    The parts are slices of the file, which is held. No part without rows.
    """
    if not table.num_rows:
        return
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=arrow_options()) as writer:
        for batch in batches_of(table.to_batches()):
            writer.write_batch(batch)
    piece = sink.getvalue()
    for begin in range(0, piece.size, PIECE_BYTES_MAX):
        yield piece.slice(begin, min(PIECE_BYTES_MAX, piece.size - begin))


# -- sorting ------------------------------------------------------------------------------------------------------


def _chunk_share(schema: Schema, mode: MergeMode) -> int:
    """Return the part of the memory limit that a chunk may take which is written as it is sorted."""
    if not mode.keeps_all:
        return _NUMBERED_CHUNK_SHARE
    return _CHUNK_SHARE if _integer_key(schema) is None else _STREAMED_CHUNK_SHARE


def _integer_key(schema: Schema) -> Field | None:
    """Return the only field to sort by, if NumPy can sort it."""
    key = schema.by_name[schema.sort_names[0]]
    return key if len(schema.sort_names) == 1 and key.key_type.sign == "i" else None


def _sorted_rows(
    chunk: pa.Table, schema: Schema, mode: MergeMode, small_rows: int, *, ahead_bytes: int = 0
) -> Iterator[pa.RecordBatch]:
    """Return the sorted rows of a chunk; by a mode other than ``KeepAll`` one for each merge key, in the order of the
    chunk before. At most ``ahead_bytes`` of a large chunk are sorted before they are taken.
    """
    if mode.keeps_all:
        return _in_order(chunk, schema, small_rows, stable=False, ahead_bytes=ahead_bytes)
    visible = visible_schema(schema)
    order = merge_schema(mode, visible, hidden=KIND in schema.by_name)
    rows = _in_order(chunk, order, small_rows, stable=True, ahead_bytes=ahead_bytes)
    return RowMerger(mode, visible, complete=False).merge(rows)


def _in_order(
    chunk: pa.Table, schema: Schema, small_rows: int, *, stable: bool, ahead_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a chunk in the order of a schema; ``stable`` keeps that of rows with equal sort columns."""
    small = chunk.num_rows <= small_rows
    key = _integer_key(schema)
    if key is not None:
        rows = _sorted_by_integers(chunk, key, stable=stable or small)
    elif small:
        return iter(sorted_by(chunk.combine_chunks(), schema.sort_names).to_batches())
    else:
        rows = _sorted_by_engine(chunk, schema, stable=stable)
    return _made_ahead(rows, ahead_bytes // _batch_bytes(chunk)) if ahead_bytes and not small else rows


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


def _sorted_by_integers(chunk: pa.Table, key: Field, *, stable: bool) -> Iterator[pa.RecordBatch]:
    """Return the rows sorted by one column of integers, dates or times."""
    batch_rows, schema, columns = _batch_rows(chunk), chunk.schema, chunk.columns
    del chunk
    first = schema.get_field_index(key.name)
    _copy_into_one_piece(columns, first)
    keys = columns[first].view(f"int{8 * key.width}").to_numpy()
    # The keys are sorted while the other columns are copied, if there is a core for it.
    with ThreadPoolExecutor(min(_COPIED_AT_ONCE, pa.cpu_count()), "lakebed-sort") as threads:
        order = threads.submit(_order, keys, stable=stable)
        others = [index for index in range(len(columns)) if index != first]
        list(threads.map(partial(_copy_into_one_piece, columns), others))
        places = pa.array(order.result())
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    del columns
    for begin in range(0, len(places), batch_rows):
        yield rows.take(places.slice(begin, batch_rows))


def _copy_into_one_piece(columns: list[pa.ChunkedArray | pa.Array], index: int) -> None:
    """Put one piece into the place of a column, whose batches are then released."""
    columns[index] = columns[index].combine_chunks()


def _order(keys: Integers, *, stable: bool) -> Integers:
    """Return the positions of the keys, of which there is one at least, in ascending order of the keys."""
    bits = (len(keys) - 1).bit_length()
    lowest, highest = int(keys.min()), int(keys.max())
    if highest - lowest >= 2 ** (63 - bits):
        return np.argsort(keys, kind="stable" if stable else None)
    # One number has the key, from the lowest, and below it the position. Sorting such numbers is stable, and takes
    # NumPy a fifth of the time of an argsort.
    order = keys.astype(np.int64)
    order -= lowest
    order <<= bits
    for begin in range(0, len(order), _SORT_BATCH_ROWS):
        part = order[begin : begin + _SORT_BATCH_ROWS]
        part |= np.arange(begin, begin + len(part))
    order.sort()
    order &= 2**bits - 1
    return order


def _sorted_by_engine(chunk: pa.Table, schema: Schema, *, stable: bool) -> Iterator[pa.RecordBatch]:
    from lakebed.engine.datafusion import column, context, sort_order

    engine = context(partitions=1, batch_rows=_batch_rows(chunk), pool_bytes=2**62)
    order = sort_order(schema)
    if stable:
        chunk = chunk.append_column(ARRIVAL, pa.array(np.arange(chunk.num_rows)))
        order.append(column(ARRIVAL).sort())
    frame = engine.create_dataframe([chunk.to_batches()]).sort(*order)
    if stable:
        frame = frame.select(*map(column, schema.names))
    for batch in frame.execute_stream():
        yield as_schema(batch.to_pyarrow(), schema)


def _batch_rows(chunk: pa.Table) -> int:
    """Return the number of rows of a sorted batch: fewer if they are wide, since offsets of strings have 32 bits."""
    return max(1, min(_SORT_BATCH_ROWS, _SORT_BATCH_BYTES // _row_bytes(chunk)))


def _batch_bytes(chunk: pa.Table) -> int:
    return _batch_rows(chunk) * _row_bytes(chunk)


def _row_bytes(chunk: pa.Table) -> int:
    return int(max(1, chunk.nbytes // chunk.num_rows))
