"""Cuts a key range into slices, so that memory is bounded, and reverses rows in bounded memory.

:func:`forwards` and :func:`backwards` cut at the beginnings of pages, from either end. Any cut is correct, because a
slice is a key range like any other; the cuts only make the slices about equal in size. The rows of one key stay
together, however many.

:func:`reversed_rows` returns rows in reverse order. Rows that do not fit into memory go to local disk as Arrow IPC,
whose batches can be read from the end.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakebed.files.parquet.pages import PagedFile
from lakebed.files.sorting.merge_inputs import arrow_options
from lakebed.model.keys import EncodedRange
from lakebed.read.rows.request import ReadLimits
from lakebed.storage.disk_space import scratch_folder, writing_to


def forwards(files: Sequence[PagedFile], keys: EncodedRange, limits: ReadLimits) -> Iterator[EncodedRange]:
    """Disjoint slices of the range, in key order."""
    begin, size, slice_bytes = keys.min, 0, _slice_bytes(files, limits)
    starts = (_starts(file, keys) for file in files)
    for start, size_bytes in heapq.merge(*starts):
        if size >= slice_bytes and start > begin:
            yield EncodedRange(begin, start)
            begin, size = start, 0
        size += size_bytes
    yield EncodedRange(begin, keys.max)


def backwards(files: Sequence[PagedFile], keys: EncodedRange, limits: ReadLimits) -> Iterator[EncodedRange]:
    """Disjoint slices of the range, the last one first; the first few are small."""
    end, size, slice_bytes = keys.max, 0, limits.last_slice_bytes
    starts = (_starts(file, keys, last_first=True) for file in files)
    for start, size_bytes in heapq.merge(*starts, reverse=True):
        size += size_bytes
        if size >= slice_bytes and keys.min < start and (end is None or start < end):
            yield EncodedRange(start, end)
            end, size, slice_bytes = start, 0, min(2 * slice_bytes, _slice_bytes(files, limits))
    yield EncodedRange(keys.min, end)


def _slice_bytes(files: Sequence[PagedFile], limits: ReadLimits) -> int:
    return max(limits.slice_bytes, len(files) * limits.slice_file_bytes)


def _starts(file: PagedFile, keys: EncodedRange, *, last_first: bool = False) -> Iterator[tuple[bytes, int]]:
    """Lower bounds of the keys of successive pages of a file, with the bytes of each, in key order or the reverse."""
    footer = file.footer
    groups = footer.fences.reaching(keys)
    if not footer.paged:
        for position in reversed(groups) if last_first else groups:
            yield footer.fences.starts[position], footer.groups[position].size_bytes
        return
    with file:
        for position in reversed(groups) if last_first else groups:
            group = footer.groups[position]
            fences = file.key_pages(position, group).fences
            page_bytes = group.size_bytes // len(fences.starts)
            reaching = fences.reaching(keys)
            for page in reversed(reaching) if last_first else reaching:
                # The bound of a page may be looser than the bound of its row group.
                yield max(footer.fences.starts[position], fences.starts[page]), page_bytes


def reversed_rows(batches: Iterable[pa.RecordBatch], hold_bytes: int) -> Generator[pa.RecordBatch]:
    """Return the rows of the batches in reverse order, in about ``hold_bytes`` of memory.

    Reads all batches before it returns the first row. Raises StorageError if the disk is full.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    with ExitStack() as scratch:
        folder: Path | None = None
        spilled: list[Path] = []
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            if size > hold_bytes:
                folder = folder or scratch.enter_context(scratch_folder("reversed"))
                spilled.append(_spill(held, folder / f"{len(spilled):06d}.arrow"))
                held, size = [], 0
        yield from map(_reverse, reversed(held))
        for path in reversed(spilled):
            with pa.memory_map(str(path)) as source:
                reader = pa.ipc.open_file(source)
                for index in reversed(range(reader.num_record_batches)):
                    yield _reverse(reader.get_batch(index))


def _spill(batches: Iterable[pa.RecordBatch], path: Path) -> Path:
    held = list(batches)
    with writing_to(path.parent), pa.ipc.new_file(path, held[0].schema, options=arrow_options()) as writer:
        for batch in held:
            writer.write_batch(batch)
    return path


def _reverse(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.take(pa.array(np.arange(batch.num_rows - 1, -1, -1)))
