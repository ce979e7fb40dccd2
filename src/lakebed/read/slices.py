"""A key range cut into slices, so that what is read at once is small; and rows in reverse order, in bounded memory.

:func:`forwards` and :func:`backwards` cut at the beginnings of pages, from either end. A slice is a key range like any
other, so any cut is right; it is well chosen if the slices are of about even size. The rows of one key stay together,
however many.

:func:`reversed_rows` gives rows in reverse order. Those that do not fit into memory go to local disk as Arrow IPC,
whose batches can be read from the end.
"""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakebed.model.keys import EncodedRange
from lakebed.parquet.pages import PagedFile
from lakebed.sorting.sort import arrow_options
from lakebed.storage.disk_space import scratch_folder, writing_to

SLICE_BYTES = 8 * 1024 * 1024
"""Planning a slice takes about 2 ms, decoding it 40 ms or more."""

SLICE_FILE_BYTES = 2 * 1024 * 1024
"""At each end of a slice each file decodes up to a page too many, some 0.05 MB: of so much, 2.5%."""

LAST_BYTES = 128 * 1024
"""The first slice from the end, for those who want a few rows; each one after it is twice as large, up to the full."""


def forwards(files: Sequence[PagedFile], keys: EncodedRange) -> Iterator[EncodedRange]:
    """Disjoint slices of the range, in key order."""
    begin, size, enough = keys.min, 0, _enough(files)
    starts = (_starts(file, keys) for file in files)
    for start, size_bytes in heapq.merge(*starts):
        if size >= enough and start > begin:
            yield EncodedRange(begin, start)
            begin, size = start, 0
        size += size_bytes
    yield EncodedRange(begin, keys.max)


def backwards(files: Sequence[PagedFile], keys: EncodedRange) -> Iterator[EncodedRange]:
    """Disjoint slices of the range, the last one first; the first few are small."""
    end, size, enough = keys.max, 0, LAST_BYTES
    starts = (_starts(file, keys, last_first=True) for file in files)
    for start, size_bytes in heapq.merge(*starts, reverse=True):
        size += size_bytes
        if size >= enough and keys.min < start and (end is None or start < end):
            yield EncodedRange(start, end)
            end, size, enough = start, 0, min(2 * enough, _enough(files))
    yield EncodedRange(keys.min, end)


def _enough(files: Sequence[PagedFile]) -> int:
    return max(SLICE_BYTES, len(files) * SLICE_FILE_BYTES)


def _starts(file: PagedFile, keys: EncodedRange, *, last_first: bool = False) -> Iterator[tuple[bytes, int]]:
    """Lower bounds of the keys of successive parts of a file, with the bytes of each, from one end to the other."""
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
                # A page's own bound may be looser than its row group's.
                yield max(footer.fences.starts[position], fences.starts[page]), page_bytes


def reversed_rows(batches: Iterable[pa.RecordBatch], hold_bytes: int) -> Generator[pa.RecordBatch]:
    """The rows of the batches, the last one first. Holds about ``hold_bytes``; raises StorageError if the disk is full.

    All are read before the first is given.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    with ExitStack() as scratch:
        folder: Path | None = None
        aside: list[Path] = []
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            if size > hold_bytes:
                folder = folder or scratch.enter_context(scratch_folder(Path(tempfile.gettempdir()), "reversed"))
                aside.append(_put_aside(held, folder / f"{len(aside):06d}.arrow"))
                held, size = [], 0
        yield from map(_backwards, reversed(held))
        for path in reversed(aside):
            with pa.memory_map(str(path)) as source:
                reader = pa.ipc.open_file(source)
                for index in reversed(range(reader.num_record_batches)):
                    yield _backwards(reader.get_batch(index))


def _put_aside(batches: Iterable[pa.RecordBatch], path: Path) -> Path:
    held = list(batches)
    with writing_to(path.parent), pa.ipc.new_file(path, held[0].schema, options=arrow_options()) as writer:
        for batch in held:
            writer.write_batch(batch)
    return path


def _backwards(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.take(pa.array(np.arange(batch.num_rows - 1, -1, -1)))
